"""Runs sinew-run as users do: places, ends, signals, flags. See sinew_run_case.py."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable

from sinew_run_case import ANNOUNCE, PATIENCE_S, RUN, WAIT, WORKER, Case, children, environment, eventually, main, pids_in, state

import ports  # noqa: E402  (in the folder that sinew_run_case names)

FLAGS = (
    "--nproc --nproc-per-node --role --nnodes --node-rank --master-addr --master-port --leader --leave-grace --grace"
    " --max-restarts --restart-back-off --run-id --log-dir --prefix --tls --table --help --version"
).split()
PLACE = (
    "RANK LOCAL_RANK GROUP_RANK ROLE_RANK ROLE_NAME WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE"
    " MASTER_ADDR TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS OMP_NUM_THREADS"
).split()
SHOW_PLACE = "echo " + " ".join(f"${{{name}-unset}}" for name in PLACE)


class Places(Case):
    def test_exports_the_place_of_each(self) -> None:
        ended = self.run_it("--nproc", "2", "sh", "-c", SHOW_PLACE)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(
            sorted(ended.stdout.splitlines()),
            [
                "0 0 0 0 default 2 2 1 2 127.0.0.1 0 0 1",
                "1 1 0 1 default 2 2 1 2 127.0.0.1 0 0 1",
            ],
        )
        self.assertEqual(ended.stderr, "")

    def test_ranks_follow_the_order_of_roles(self) -> None:
        ended = self.run_it(
            *("--role", "ps=1", "sh", "-c", SHOW_PLACE, "--role", "trainer=2", "sh", "-c", SHOW_PLACE)
        )
        self.assertEqual(
            sorted(ended.stdout.splitlines()),
            [
                "0 0 0 0 ps 3 3 1 1 127.0.0.1 0 0 1",
                "1 1 0 0 trainer 3 3 1 2 127.0.0.1 0 0 1",
                "2 2 0 1 trainer 3 3 1 2 127.0.0.1 0 0 1",
            ],
        )

    def test_nodes_count_on(self) -> None:
        ended = self.run_it(
            *"--nnodes 2 --node-rank 1 --master-addr 10.1.1.1 --master-port 77".split(),
            *("--role", "ps=1", "sh", "-c", SHOW_PLACE, "--role", "t=1", "sh", "-c", SHOW_PLACE + " $MASTER_PORT"),
        )
        self.assertEqual(
            sorted(ended.stdout.splitlines()),
            ["2 0 1 1 ps 4 2 2 2 10.1.1.1 0 0 1", "3 1 1 1 t 4 2 2 2 10.1.1.1 0 0 1 77"],
        )

    def test_leaves_threads_alone_where_they_are_set_or_one_process_runs(self) -> None:
        self.assertEqual(self.run_it("sh", "-c", "echo ${OMP_NUM_THREADS-unset}").stdout, "unset\n")
        many = self.run_it("-n", "2", "sh", "-c", "echo $OMP_NUM_THREADS", env={**environment(), "OMP_NUM_THREADS": "3"})
        self.assertEqual(many.stdout, "3\n3\n")

    def test_a_job_of_its_own_has_a_token(self) -> None:
        show = ("sh", "-c", "echo ${SINEW_JOB_TOKEN-unset}")
        own = {name: value for name, value in environment().items() if not name.startswith("SINEW_JOB_TOKEN")}
        first, second = self.run_it("-n", "2", *show, env=own).stdout.split()
        self.assertEqual(first, second)
        self.assertRegex(first, "^[0-9a-f]{32}$")
        self.assertNotEqual(self.run_it(*show, env=own).stdout.strip(), first)
        # Where others may belong to the job, whoever starts all of them gives it.
        for flags in (
            ("--master-port", "29999"),
            ("--nnodes", "2", "--master-addr", "10.1.1.1", "--master-port", "29999"),
        ):
            self.assertEqual(self.run_it(*flags, *show, env=own).stdout, "unset\n", flags)
        self.assertEqual(self.run_it(*show, env={**own, "SINEW_JOB_TOKEN": ""}).stdout, "\n")
        self.assertEqual(self.run_it(*show, env={**own, "SINEW_JOB_TOKEN": "given"}).stdout, "given\n")
        self.assertEqual(self.run_it(*show, env={**own, "SINEW_JOB_TOKEN_FILE": "/f"}).stdout, "unset\n")

    def test_tls_goes_by_the_token(self) -> None:
        show = ("sh", "-c", "echo $SINEW_JOB_TLS ${#SINEW_JOB_TOKEN}")
        own = {name: value for name, value in environment().items() if not name.startswith("SINEW_JOB_TOKEN")}
        self.assertEqual(self.run_it("--tls", *show, env=own).stdout, "1 32\n")
        refused = self.run_it("--tls", "--master-port", "29999", *show, env=own)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--tls goes by the job's token", refused.stderr)
        given = {**own, "SINEW_JOB_TOKEN": "0123456789abcdef"}
        self.assertEqual(self.run_it("--tls", "--master-port", "29999", *show, env=given).stdout, "1 16\n")
        ended = self.run_it("--tls", "-n", "2", WORKER, "--drive", "call", env={**own, "SINEW_ENCRYPTED_ONLY": "1"})
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_torchruns_names(self) -> None:
        flags = "--nproc_per_node 1 --nnodes 1 --node_rank 0 --master_addr 127.0.0.1 --master_port 99 --max_restarts 2"
        ended = self.run_it(
            *flags.split(),
            *("--rdzv_id", "job7", "--", "sh", "-c", "echo $MASTER_PORT $TORCHELASTIC_RUN_ID $TORCHELASTIC_MAX_RESTARTS"),
        )
        self.assertEqual(ended.stdout, "99 job7 2\n", ended.stderr)

    def test_is_no_part_of_a_torchrun_around_it(self) -> None:
        around = {**environment(), "TORCHELASTIC_USE_AGENT_STORE": "True", "RANK": "7", "MASTER_PORT": "1"}
        ended = self.run_it("sh", "-c", "echo $RANK $TORCHELASTIC_USE_AGENT_STORE; [ $MASTER_PORT != 1 ]", env=around)
        self.assertEqual((ended.returncode, ended.stdout), (0, "0 False\n"))

    def test_ports_are_free_and_of_one_job(self) -> None:
        jobs = [self.start("-n", "2", "sh", "-c", "echo $MASTER_PORT; read line; exit 0", stdin=subprocess.PIPE) for _ in range(8)]
        given = []
        for job in jobs:
            first, second = job.stdout.readline(), job.stdout.readline()
            self.assertEqual(first, second)
            given.append(int(first))
            with socket.socket() as listener:
                listener.bind(("", given[-1]))
            self.assertFalse(ports.reserve(given[-1]), "tests that run beside it do not get it")
        self.assertEqual(len(set(given)), len(given))

    def test_two_nodes_are_one_job(self) -> None:
        port = str(ports.free_port())
        flags = ["-n", "2", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port]
        nodes = [self.start(*flags, "--node-rank", str(node), WORKER, "--drive", "call") for node in range(2)]
        for node in nodes:
            _, err = node.communicate(timeout=PATIENCE_S)
            self.assertEqual(node.returncode, 0, err)
            self.assertIn("--master-addr 127.0.0.1 is this host's own loopback: unless all of the 2 of --nnodes are", err)

    def test_warns_of_hosts_that_would_meet_at_their_own_loopback(self) -> None:
        for address, is_misleading in [("localhost", True), ("::1", True), ("127.0.1.1", True), ("10.1.1.1", False)]:
            for node in "01":
                with self.subTest(address=address, node=node):
                    flags = f"--nnodes 2 --node-rank {node} --master-addr {address} --master-port 1"
                    ended = self.run_it(*flags.split(), "true")
                    warned = f"--master-addr {address} is this host's own loopback" in ended.stderr
                    self.assertEqual((ended.returncode, warned), (0, is_misleading), ended.stderr)

    def test_one_for_each_cpu(self) -> None:
        cpus = os.sched_getaffinity(0)
        one = {min(cpus)}
        for word in ("cpu", "auto"):
            for allowed in (cpus, one):
                if word == "auto" and Path("/dev/nvidia0").exists():
                    continue
                start = lambda allowed=allowed: os.sched_setaffinity(0, allowed)  # noqa: E731
                ended = self.run_it("--nproc", word, "sh", "-c", "echo $WORLD_SIZE", preexec_fn=start)
                self.assertEqual(ended.stdout, f"{len(allowed)}\n" * len(allowed), ended.stderr)

    def test_one_for_each_gpu(self) -> None:
        gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
        if gpus > 0:
            seen = {**environment(), "CUDA_VISIBLE_DEVICES": "0"}
            for word in ("gpu", "auto"):
                ended = self.run_it("--nproc", word, "sh", "-c", "echo $WORLD_SIZE", env=seen)
                self.assertEqual(ended.stdout, "1\n", ended.stderr)
        ended = self.run_it("--nproc", "gpu", "true", env={**environment(), "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--nproc: is gpu, but no GPU is to be seen here", ended.stderr)


class Ends(Case):
    def test_status_is_that_of_the_first_failure(self) -> None:
        for script, status in [("exit 3", 3), ("kill -SEGV $$", 139), ("exit 2", 2)]:
            with self.subTest(script):
                fails = f"if [ $RANK = 1 ]; then {script}; fi; {WAIT}"
                ended = self.run_it("-n", "3", "sh", "-c", fails)
                self.assertEqual(ended.returncode, status, ended.stderr)
                self.assertRegex(ended.stderr, r"sinew-run: rank 1 \(default, pid \d+\) (exited with code|was ended by)")
        self.assert_gone(pids_in(self.folder))

    def test_table_tells_who_ended_how(self) -> None:
        ended = self.run_it(
            *("--role", "ps=1", "sh", "-c", WAIT, "--role", "w=2", "sh", "-c", f"[ $RANK = 1 ] && exit 4; {WAIT}")
        )
        self.assertEqual(ended.returncode, 4)
        lines = ended.stderr.splitlines()
        self.assertRegex(lines[1], r"^ +rank +local +role +pid +seconds +end$")
        self.assertRegex(lines[2], r"^ +0 +0 +ps +\d+ +\d+\.\d\d +was ended by SIGTERM \(Terminated\), told to by SIGTERM$")
        self.assertRegex(lines[3], r"^ +1 +1 +w +\d+ +\d+\.\d\d +exited with code 4  <- failed first$")
        self.assertRegex(lines[4], r"^ +2 +2 +w ")
        self.assertEqual(len(lines), 5)

    def test_table_on_request(self) -> None:
        ended = self.run_it("--table", "true")
        self.assertEqual(ended.returncode, 0)
        self.assertRegex(ended.stderr, r"0 +0 +default +\d+ +\d+\.\d\d +exited with code 0\n")

    def test_a_program_that_cannot_be_started(self) -> None:
        file = self.folder / "text"
        file.write_text("no program\n")
        for program, status, why in [
            ("./not-there", 127, "No such file or directory"),
            ("surely-not-there", 127, "No such file or directory"),
            (str(file), 126, "Permission denied"),
            (str(self.folder), 126, "Permission denied"),
        ]:
            with self.subTest(program):
                ended = self.run_it("-n", "2", "--max-restarts", "3", program)
                self.assertEqual(ended.returncode, status)
                self.assertIn(f"sinew-run: {program} could not be started: {why}\n", ended.stderr)
                self.assertNotIn("attempt", ended.stderr)

    def test_one_that_cannot_be_started_ends_those_that_were(self) -> None:
        ended = self.run_it("--role", "a=2", "sh", "-c", WAIT, "--role", "b=1", "./not-there")
        self.assertEqual(ended.returncode, 127)
        self.assert_gone(pids_in(self.folder))

    def test_of_those_found_ended_at_once_a_crash_is_blamed(self) -> None:
        go_on = 'while ! [ -e "$DIR/go" ]; do sleep 0.01; done; '
        job = self.start("-n", "2", "sh", "-c", f"{ANNOUNCE} {go_on} [ $RANK = 0 ] && exit 1; kill -SEGV $$")
        pids = self.wait_for_pids(2)
        job.send_signal(signal.SIGSTOP)
        eventually(lambda: state(job.pid) == "T", "the stop")
        (self.folder / "go").write_text("")
        self.assert_gone(pids)
        job.send_signal(signal.SIGCONT)
        job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 139)

    def test_kills_after_the_grace(self) -> None:
        stubborn = f'trap "" TERM; {WAIT}'
        fails = 'while [ $(ls "$DIR" | wc -l) -lt 2 ]; do sleep 0.01; done; exit 9'
        ended = self.run_it("--grace", "0.2", "--role", "s=2", "sh", "-c", stubborn, "--role", "f=1", "sh", "-c", fails)
        self.assertEqual(ended.returncode, 9)
        self.assertIn("was ended by SIGKILL (Killed), told to by SIGKILL", ended.stderr)
        self.assert_gone(pids_in(self.folder))

    def test_one_that_dies_before_all_have_joined_ends_the_wait_of_the_others(self) -> None:
        ended = self.run_it("-n", "3", WORKER, "--drive", "die")
        self.assertEqual(ended.returncode, 5, ended.stderr)
        # Rather than give up by themselves, after a minute.
        self.assertEqual(ended.stderr.count("told to by SIGTERM"), 2, ended.stderr)

    def test_calls_between_the_processes_of_a_job(self) -> None:
        ended = self.run_it("-n", "3", WORKER, "--drive", "call")
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_what_a_process_leaves_behind_ends_with_it(self) -> None:
        ended = self.run_it("-n", "2", "sh", "-c", "sleep 1000 & echo $! >\"$DIR/pid.$RANK\"; exit 0")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(len(pids_in(self.folder)), 2)
        self.assert_gone(pids_in(self.folder))


class Leaders(Case):
    def test_the_job_is_over_with_its_leader(self) -> None:
        for leader in ("0", "boss"):
            with self.subTest(leader):
                ended = self.run_it(
                    *("--leader", leader, "--leave-grace", "0.1", "--table"),
                    *("--role", "boss=1", "true", "--role", "w=2", "sh", "-c", WAIT),
                )
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertEqual(ended.stderr.count("told to by SIGTERM"), 2)

    def test_the_others_may_end_by_themselves(self) -> None:
        ended = self.run_it(
            *("--leader", "boss", "--leave-grace", "100", "--table"),
            *("--role", "boss=1", "sh", "-c", ': >"$DIR/done"'),
            *("--role", "w=2", "sh", "-c", 'while ! [ -e "$DIR/done" ]; do sleep 0.01; done'),
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stderr.count("exited with code 0"), 3)

    def test_failures_count_as_ever(self) -> None:
        waits = 'while ! [ -e "$DIR/done" ]; do sleep 0.01; done; exit 6'
        ended = self.run_it(
            *("--leader", "0", "--max-restarts", "5"),
            *("--role", "boss=1", "sh", "-c", ': >"$DIR/done"', "--role", "w=1", "sh", "-c", waits),
        )
        self.assertEqual(ended.returncode, 6, ended.stderr)
        ended = self.run_it("--leader", "0", "--role", "boss=1", "sh", "-c", "exit 2", "--role", "w=1", "sh", "-c", WAIT)
        self.assertEqual(ended.returncode, 2, ended.stderr)


class Signals(Case):
    def test_passes_them_on_and_waits(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            name = number.name[3:]
            with self.subTest(name):
                script = f"trap 'echo drains; exit 0' {name}; {WAIT}"
                job = self.start("-n", "2", "sh", "-c", script)
                pids = self.wait_for_pids(2)
                job.send_signal(number)
                out, err = job.communicate(timeout=PATIENCE_S)
                self.assertEqual((job.returncode, out), (0, "drains\ndrains\n"), err)
                self.assert_gone(pids)
                for file in self.folder.iterdir():
                    file.unlink()

    def test_a_job_of_the_background_hears_of_them_too(self) -> None:
        # A shell without job control has those that it starts with & ignore SIGINT.
        def ignore() -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

        job = self.start("sh", "-c", f"trap 'echo drains; exit 0' INT; {WAIT}", preexec_fn=ignore)
        self.wait_for_pids(1)
        # Under nohup.
        job.send_signal(signal.SIGHUP)
        job.send_signal(signal.SIGINT)
        out, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual((job.returncode, out), (0, "drains\n"), err)

    def test_reaches_the_program_behind_a_script(self) -> None:
        drains = self.python_that_waits("SIG_DFL").replace(
            "d = ", "signal.signal(signal.SIGTERM, lambda *_: (print('drains', flush=True), os._exit(0)))\nd = "
        )
        job = self.start("sh", "-c", 'trap "" TERM; python3 -c "$PROGRAM"; true', env={
            **environment(), "DIR": str(self.folder), "PROGRAM": drains})
        self.wait_for_pids(1)
        job.send_signal(signal.SIGTERM)
        out, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual((job.returncode, out), (0, "drains\n"), err)

    def test_status_tells_the_signal(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                job = self.start("-n", "2", "--max-restarts", "3", "python3", "-c", self.python_that_waits("SIG_DFL"))
                self.wait_for_pids(2)
                job.send_signal(number)
                _, err = job.communicate(timeout=PATIENCE_S)
                self.assertEqual(job.returncode, 128 + number, err)
                for file in self.folder.iterdir():
                    file.unlink()

    @staticmethod
    def python_that_waits(action: str) -> str:
        return (
            "import os, signal\n"
            f"for s in signal.SIGINT, signal.SIGTERM: signal.signal(s, signal.{action})\n"
            "d = os.environ['DIR']; p = str(os.getpid())\n"
            "open(f'{d}/.{p}', 'w').write(p); os.rename(f'{d}/.{p}', f'{d}/pid.{p}')\n"
            "while True: signal.pause()\n"
        )

    def test_a_second_one_kills(self) -> None:
        job = self.start("-n", "2", "--grace", "1000", "python3", "-c", self.python_that_waits("SIG_IGN"))
        pids = self.wait_for_pids(2)
        job.send_signal(signal.SIGTERM)
        # What comes before is the first one.
        for _ in range(int(PATIENCE_S / 2.5)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(2.5)
                break
            job.send_signal(signal.SIGTERM)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)
        self.assert_gone(pids)

    def test_one_that_comes_by_several_ways_is_one(self) -> None:
        job = self.start("-n", "2", "sh", "-c", f"trap 'sleep 0.2; echo drains; exit 0' TERM INT HUP; {WAIT}")
        pids = self.wait_for_pids(2)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            job.send_signal(number)
            # It has read it when it has none to read.
            eventually(lambda: self.signals("ShdPnd", job.pid) == 0, "the reading of the signal")
        out, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual((job.returncode, out), (0, "drains\ndrains\n"), err)
        self.assert_gone(pids)

    def test_one_to_all_processes_is_one(self) -> None:
        """As service managers and schedulers send it; what the launcher passes on comes once more."""
        for seed in range(12):
            job = self.start("-n", "3", WORKER, "--drive", "work", self.folder)
            pids = self.wait_for_pids(3)
            for pid in pids:
                eventually(lambda: self.signals("SigCgt", pid) >> (signal.SIGTERM - 1) & 1 == 1, f"the handler of {pid}")
            everybody = [job.pid, *pids]
            random.Random(seed).shuffle(everybody)
            for pid in everybody:
                os.kill(pid, signal.SIGTERM)
            _, err = job.communicate(timeout=PATIENCE_S)
            self.assertEqual(job.returncode, 0, f"seed {seed}: {err}")
            self.assertEqual(len(list(self.folder.glob("result*"))), 3, f"seed {seed}")
            for file in self.folder.iterdir():
                file.unlink()

    def test_each_process_gets_one_stop_once(self) -> None:
        # Whom the launcher has passed on what it had to gets SIGCONT behind it.
        count = (
            "import os, signal, time\n"
            "got = {signal.SIGTERM: 0, signal.SIGCONT: 0}\n"
            "def take(number, _): got[number] += 1\n"
            "for number in got: signal.signal(number, take)\n"
            "open(f\"{os.environ['DIR']}/pid.{os.getpid()}\", 'w').close()\n"
            "while 0 in got.values(): time.sleep(0.01)\n"
            "print(got[signal.SIGTERM])\n"
        )

        def by_name(*pids: int) -> None:
            # By somebody who has not started the launcher.
            subprocess.run(["sh", "-c", 'kill "$@"', "sh", *map(str, pids)], check=True)

        def by_parent(*pids: int) -> None:
            for pid in pids:
                os.kill(pid, signal.SIGTERM)

        def counts(send: Callable[..., None], whom: str) -> tuple[str, float]:
            for file in self.folder.iterdir():
                file.unlink()
            job = self.start("-n", "2", "python3", "-c", count)
            eventually(lambda: len(list(self.folder.iterdir())) == 2, "the start of 2 processes")
            processes = [int(file.suffix[1:]) for file in self.folder.iterdir()]
            everybody = {"l": [job.pid], "p": processes, "g": [pid for pid in children(job.pid) if pid not in processes]}
            begin = time.monotonic()
            send(*(pid for letter in whom for pid in everybody[letter]))
            took_s = time.monotonic() - begin
            out, err = job.communicate(timeout=PATIENCE_S)
            self.assertEqual(job.returncode, 0, err)
            return out, took_s

        # The launcher, its guard, the processes.
        for whom in ("lgp", "plg", "gpl", "l"):
            with self.subTest(whom):
                for _ in range(10):
                    out, took_s = counts(by_parent, whom)
                    # The launcher does not wait for ever, if this test stands still.
                    if took_s < 0.05:
                        break
                self.assertEqual(out, "1\n1\n")
        for whom in ("l", "gl"):
            with self.subTest(f"{whom}, by name"):
                self.assertEqual(counts(by_name, whom)[0], "1\n1\n")

    def test_who_ends_by_it_before_it_is_told_has_not_failed(self) -> None:
        job = self.start("-n", "2", "sh", "-c", f"trap 'exit 7' USR2; {WAIT}")
        pids = self.wait_for_pids(2)
        os.kill(job.pid, signal.SIGSTOP)
        eventually(lambda: state(job.pid) == "T", "the stop")
        for pid in pids:
            os.kill(pid, signal.SIGUSR2)
            eventually(lambda: state(pid) == "Z", f"the end of {pid}")
        job.send_signal(signal.SIGTERM)
        job.send_signal(signal.SIGCONT)
        _, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM, err)
        self.assertNotIn("failed first", err)

    @staticmethod
    def signals(field: str, pid: int) -> int:
        return int(re.search(rf"^{field}:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.M).group(1), 16)

    def test_passes_on_users_signals_and_stops_and_goes_on(self) -> None:
        job = self.start("-n", "2", "sh", "-c", f"trap 'echo one' USR1; {WAIT}")
        pids = self.wait_for_pids(2)
        job.send_signal(signal.SIGUSR1)
        self.assertEqual([job.stdout.readline() for _ in range(2)], ["one\n", "one\n"])
        job.send_signal(signal.SIGTSTP)
        for pid in [*pids, job.pid]:
            eventually(lambda: state(pid) == "T", f"the stop of {pid}")
        job.send_signal(signal.SIGCONT)
        for pid in pids:
            eventually(lambda: state(pid) == "S", f"the start of {pid}")
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)

    def test_ends_processes_that_are_stopped(self) -> None:
        job = self.start("-n", "1", "--grace", "1000", "sh", "-c", WAIT)
        pids = self.wait_for_pids(1)
        os.kill(pids[0], signal.SIGSTOP)
        eventually(lambda: state(pids[0]) == "T", "the stop")
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=PATIENCE_S)
        self.assert_gone(pids)

    def test_nobody_outlives_a_launcher_that_is_killed(self) -> None:
        # Each has a child of its own.
        job = self.start("-n", "3", "sh", "-c", "python3 -c \"$CHILD\" & " + WAIT, env={
            **environment(), "DIR": str(self.folder), "CHILD": self.python_that_waits("SIG_IGN")})
        pids = self.wait_for_pids(6)
        job.kill()
        self.assert_gone(pids)

    def test_ends_while_it_waits_to_restart(self) -> None:
        job = self.start("--max-restarts", "3", "--restart-back-off", "1000", "sh", "-c", "exit 7")
        self.assertIn("exited with code 7", job.stderr.readline())
        self.assertRegex(job.stderr.readline(), r"starts all again in \d+\.\d s: attempt 2 of 4")
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 7)


class Restarts(Case):
    def test_starts_all_again(self) -> None:
        script = "echo $TORCHELASTIC_RESTART_COUNT $RANK $MASTER_PORT; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 4"
        ended = self.run_it("-n", "2", "--max-restarts", "5", "--restart-back-off", "0.01", "sh", "-c", script)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        lines = [tuple(line.split()) for line in ended.stdout.splitlines()]
        last = sorted(line[:2] for line in lines if line[0] == "2")
        self.assertEqual(last, [("2", "0"), ("2", "1")])
        ports = {line[0]: line[2] for line in lines}
        self.assertEqual(len(set(ports.values())), 3, "each attempt has a port of its own")
        self.assertIn("attempt 3 of 6", ended.stderr)
        self.assertIn("attempt 2 of 6", ended.stderr)

    def test_gives_up(self) -> None:
        ended = self.run_it("--max-restarts", "2", "--restart-back-off", "0.01", "sh", "-c", "echo x; exit 4")
        self.assertEqual((ended.returncode, ended.stdout), (4, "x\nx\nx\n"), ended.stderr)

    def test_a_given_port_is_kept(self) -> None:
        script = "echo $MASTER_PORT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]"
        ended = self.run_it("--master-port", "1234", "--max-restarts", "1", "--restart-back-off", "0", "sh", "-c", script)
        self.assertEqual(ended.stdout, "1234\n1234\n", ended.stderr)


class CommandLine(Case):
    def test_help_names_every_flag(self) -> None:
        ended = self.run_it("--help")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        for flag in FLAGS:
            self.assertRegex(ended.stdout, rf"(?m)^ *\S*{flag}\b|,{flag}\b|^{flag}\b|{flag} ")
        for name in PLACE:
            self.assertIn(name, ended.stdout)

    def test_version(self) -> None:
        ended = self.run_it("--version")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertRegex(ended.stdout, r"\Asinew-run \d+\.\d+\.\d+\n\Z")

    def test_mistakes_are_named(self) -> None:
        for words, text in [
            ("", "there is no program to run"),
            ("--nproc 2", "there is no program to run"),
            ("--nprocs 2 true", "there is no flag --nprocs"),
            ("-x true", "there is no flag -x"),
            ("--nproc 0 true", "--nproc: must be cpu, gpu, auto or a whole number from 1 to 4096, and '0' is not"),
            ("--nproc 2x true", "--nproc"),
            ("--nproc 5000 true", "--nproc"),
            ("--nproc", "--nproc"),
            ("--nproc 1 --nproc 2 true", "--nproc"),
            ("--nproc 2 --role a=1 true", "--role"),
            ("--master-port 65536 true", "--master-port"),
            ("--max-restarts -1 true", "--max-restarts"),
            ("--grace nan true", "--grace"),
            ("--grace -1 true", "--grace"),
            ("--leave-grace x true", "--leave-grace"),
            ("--restart-back-off 1e99 true", "--restart-back-off"),
            ("--nnodes 2 --master-port 1 true", "--nnodes needs --master-addr"),
            ("--nnodes 2 --master-addr h true", "--nnodes needs --master-port"),
            ("--nnodes 0 true", "--nnodes"),
            ("--node-rank 1 true", "--node-rank is 1, but --nnodes is 1"),
            ("--leader b --role a=1 true", "--leader must be a role or a rank from 0 to 0, and 'b' is not"),
            ("--leader 2 -n 2 true", "--leader"),
            ("--role a true", "--role: write NAME=N"),
            ("--role =1 true", "--role: write NAME=N"),
            ("--role a/b=1 true", "--role: write NAME=N"),
            ("--role a=0 true", "--role a=N: N must be"),
            ("--role a=9999999999 true", "--role a=N: N must be"),
            ("--role a=1", "--role a: write its program behind it"),
            ("--role a=1 true --role b=1", "--role b: write its program behind it"),
            ("--role a=1 --role b=1 true", "--role a=1 has no program"),
            ("--role a=1 true --role a=1 true", "--role a is there twice"),
            ("--role a=1 true --role b=1 --prefix true", "there is no flag --prefix; flags stand before the first --role"),
            ("--role a=3000 true --role b=3000 true", "--role: there may be 4096"),
            ("--run-id a/b true", "--run-id"),
        ]:
            with self.subTest(words):
                ended = self.run_it(*words.split())
                self.assertEqual(ended.returncode, 2, ended.stderr)
                self.assertIn(text, ended.stderr)
                self.assertTrue(ended.stderr.startswith("sinew-run: "), ended.stderr)
                self.assertIn("--help", ended.stderr)
                self.assertEqual(ended.stdout, "")

    def test_what_follows_the_program_is_its_own(self) -> None:
        ended = self.run_it("-n", "1", "sh", "-c", 'echo "$@"', "sh", "--nproc", "7", "--role", "a=1", "-h", "--")
        self.assertEqual(ended.stdout, "--nproc 7 --role a=1 -h --\n", ended.stderr)
        ended = self.run_it("--role", "a=1", "sh", "-c", 'echo "$@"', "sh", "--role", "actor", "--help")
        self.assertEqual(ended.stdout, "--role actor --help\n", ended.stderr)

    def test_needs_no_libtorch(self) -> None:
        libraries = subprocess.run(["ldd", str(RUN)], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(libraries, r"libtorch|libc10|libgrpc")


if __name__ == "__main__":
    main()
