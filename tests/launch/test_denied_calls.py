"""sinew-run, spawn and tensors between processes where a system call filter denies what newer kernels have.

Arguments: SINEW_RUN WORKER DENY_CALLS, then those of unittest. Each works, or says in a sentence which call is denied.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from typing import Callable, Iterator, Tuple

DENY = Path(sys.argv.pop(3))
from sinew_run_case import PATIENCE_S, RUN, WAIT, WORKER, Case, environment, main  # noqa: E402

Rules = Tuple[str, ...]
CALLS = ("pidfd_open", "pidfd_send_signal", "waitid:3", "waitid", "close_range", "memfd_create", "process_vm_readv", "prctl")
ERRORS = ("EPERM", "ENOSYS")
# A kernel without pidfds: waitid(P_PIDFD) too is newer than they are.
OLD_KERNEL = ("pidfd_open=ENOSYS", "pidfd_send_signal=ENOSYS", "waitid:3=ENOSYS", "close_range=ENOSYS")
NO_WAITID = ("pidfd_open=EPERM", "waitid=EPERM")
# What nobody is told of who only starts processes.
SPAWN_NEEDS = {"memfd_create": "memfd_create", "prctl": "prctl(PR_SET_PDEATHSIG)"}
REASON = {"EPERM": "Operation not permitted; a seccomp profile, or another rule of this host, denies it",
          "ENOSYS": "Function not implemented; this kernel lacks it, or a seccomp profile denies it"}  # fmt: skip


def under_each(check: Callable[[DeniedCalls, Rules], None]) -> Callable[[DeniedCalls], None]:
    def test(self: DeniedCalls) -> None:
        for rules in [(f"{call}={error}",) for call in CALLS for error in ERRORS] + [OLD_KERNEL, NO_WAITID]:
            with self.subTest(rules):
                check(self, rules)
            for file in self.folder.iterdir():
                file.unlink()

    return test


class DeniedCalls(Case):
    def start_under(self, rules: Rules, *words: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(word) for word in (DENY, *rules, *words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**environment(), "DIR": str(self.folder)},
        )  # fmt: skip
        self.addCleanup(self.end, process)
        return process

    @under_each
    def test_how_processes_ended(self, rules: Rules) -> None:
        flags = ("-n", "2", "--max-restarts", "1", "--restart-back-off", "0")
        job = self.start_under(rules, RUN, *flags, "sh", "-c", f"[ $RANK = 0 ] && exit 3; {WAIT}")
        _, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 3, err)
        self.assertEqual(len(re.findall(r"sinew-run: rank 0 \(default, pid \d+\) exited with code 3", err)), 2, err)
        job = self.start_under(rules, RUN, "sh", "-c", "ls /proc/$$/fd")
        out, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual((job.returncode, out.split()), (0, ["0", "1", "2"]), err)

    @under_each
    def test_signals(self, rules: Rules) -> None:
        script = f"trap 'echo one' USR1; trap 'echo drains; exit 0' TERM; {WAIT}"
        job = self.start_under(rules, RUN, "-n", "2", "sh", "-c", script)
        pids = self.wait_for_pids(2)
        job.send_signal(signal.SIGUSR1)
        self.assertEqual([job.stdout.readline() for _ in range(2)], ["one\n", "one\n"])
        job.send_signal(signal.SIGTERM)
        out, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual((job.returncode, out), (0, "drains\ndrains\n"), err)
        self.assert_gone(pids)

    @under_each
    def test_who_does_not_listen_is_killed(self, rules: Rules) -> None:
        job = self.start_under(rules, RUN, "-n", "2", "--grace", "0.5", "sh", "-c", f"trap '' TERM; sleep 1000 & {WAIT}")
        pids = self.wait_for_pids(2)
        before = os.times()
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=PATIENCE_S)
        after = os.times()
        self.assertEqual(job.returncode, 128 + signal.SIGTERM, err)
        self.assertEqual(err.count("was ended by SIGKILL"), 2, err)
        self.assert_gone(pids)
        used_s = after.children_user + after.children_system - before.children_user - before.children_system
        self.assertLess(used_s, 0.4, "nobody waits by turning")

    @under_each
    def test_nobody_outlives_the_launcher(self, rules: Rules) -> None:
        job = self.start_under(rules, RUN, "-n", "2", "sh", "-c", WAIT)
        pids = self.wait_for_pids(2)
        job.kill()
        self.assert_gone(pids)

    @under_each
    def test_spawn(self, rules: Rules) -> None:
        program = self.start_under(rules, WORKER, "--drive", "three")
        out, err = program.communicate(timeout=PATIENCE_S)
        call, _, error = rules[0].partition("=")
        if call in SPAWN_NEEDS:
            self.assertEqual(out.count("\n"), 1, out)
            self.assertIn(f"{SPAWN_NEEDS[call]}: {REASON[error]}", out)
        else:
            self.assertRegex(out, r"^spawned process [01] \(pid \d+\) exited with code 7 \[ABORTED\]\n$", err)

    @under_each
    def test_tensors(self, rules: Rules) -> None:
        job = self.start_under(rules, RUN, "-n", "2", WORKER, "--drive", "tensors", self.folder)
        said: list[str] = []

        def listen(lines: Iterator[str], said: list[str] = said) -> None:
            for line in lines:
                said.append(line)
                if "no tensors from a peer by same-host memory, they come through gRPC: " in line:
                    (self.folder / "enough").touch()

        listener = threading.Thread(target=listen, args=(job.stderr,))
        listener.start()
        self.assertEqual(job.wait(PATIENCE_S), 0, said)
        listener.join()
        call, _, error = rules[0].partition("=")
        text = "".join(said)
        if call == "process_vm_readv":
            self.assertIn(f"process_vm_readv: {REASON[error]}", text)
        elif call != "pidfd_open":
            # That one depends on the kernel: newer ones have a socket tell of its other end.
            self.assertEqual(text, "")
        elif text:
            self.assertIn(f"pidfd_open: {REASON[error]}", text)


if __name__ == "__main__":
    main()
