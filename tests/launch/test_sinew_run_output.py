"""Runs sinew-run as users do: what becomes of input and output. See sinew_run_case.py."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess

from sinew_run_case import ANNOUNCE, PATIENCE_S, RUN, Case, eventually, main, state


class Output(Case):
    def test_prefixes_whole_lines(self) -> None:
        # Pieces of lines, of several processes at a time, and an end without a newline.
        script = (
            "import os, sys\n"
            "rank = os.environ['RANK']\n"
            "for line in range(200):\n"
            "    for piece in f'{line} ' + rank * 50 + '\\n':\n"
            "        os.write(1, piece.encode())\n"
            "os.write(2, b'error'); os.write(1, b'end')\n"
        )
        ended = self.run_it("--prefix", "--role", "a=1", "python3", "-c", script, "--role", "b=2", "python3", "-c", script)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        expected = []
        for role, rank in (("a", 0), ("b", 1), ("b", 2)):
            expected += [f"[{role} {rank}] {line} " + str(rank) * 50 for line in range(200)] + [f"[{role} {rank}] end"]
        self.assertEqual(sorted(ended.stdout.splitlines()), sorted(expected))
        self.assertEqual(sorted(ended.stderr.splitlines()), ["[a 0] error", "[b 1] error", "[b 2] error"])
        plain = self.run_it("--prefix", "-n", "2", "sh", "-c", "echo a; echo; echo b")
        self.assertEqual(sorted(plain.stdout.splitlines()), sorted(f"[rank {r}] {t}" for r in (0, 1) for t in ("a", "", "b")))

    def test_cuts_lines_without_an_end(self) -> None:
        ended = self.run_it("--prefix", "python3", "-c", "print('x' * 65536); print('y' * 65537)")
        self.assertEqual(
            ended.stdout, f"[rank 0] {'x' * 65536}\n[rank 0] {'y' * 65536}\n[rank 0] y\n"
        )

    def test_shows_what_waits_for_the_rest_of_its_line(self) -> None:
        script = (
            "import os, time\n"
            "def wait(name):\n"
            "    while not os.path.exists(os.environ['DIR'] + '/' + name): time.sleep(0.01)\n"
            "print(end='10%', flush=True); wait('one'); print(end='\\r20%\\r', flush=True); wait('two'); print('end')\n"
        )
        job = self.start("--prefix", "python3", "-c", script)

        def read(text: str) -> None:
            shown = b""
            while len(shown) < len(text):
                self.assertTrue(select.select([job.stdout], [], [], PATIENCE_S)[0], f"only {shown} is shown")
                shown += os.read(job.stdout.fileno(), len(text) - len(shown))
            self.assertEqual(shown.decode(), text)

        read("[rank 0] 10%")
        (self.folder / "one").touch()
        read("\r[rank 0] 20%\r")
        (self.folder / "two").touch()
        self.assertEqual(job.communicate(timeout=PATIENCE_S)[0], "[rank 0] end\n")
        self.assertEqual(job.returncode, 0)

    def test_logs_of_each_rank_and_attempt(self) -> None:
        script = "echo out $RANK; echo err $RANK >&2; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit $((RANK ? 0 : 3))"
        flags = ["-n", "2", "--max-restarts", "1", "--restart-back-off", "0", "--run-id", "r1"]
        for more, shown in ([], ""), (["--prefix"], "[rank 1] out 1"):
            with self.subTest(more):
                logs = self.folder / f"logs{len(more)}"
                ended = self.run_it(*flags, *more, "--log-dir", logs, "sh", "-c", script)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertIn(shown, ended.stdout)
                self.assertIn(f"sinew-run: output goes to {logs}/r1\n", ended.stderr)
                # Rank 1 may have been told to end before it wrote.
                self.assertEqual((logs / "r1/attempt_0/rank_0/stdout.log").read_text(), "out 0\n")
                for rank in range(2):
                    attempt = logs / "r1/attempt_1" / f"rank_{rank}"
                    self.assertEqual((attempt / "stdout.log").read_text(), f"out {rank}\n")
                    self.assertEqual((attempt / "stderr.log").read_text(), f"err {rank}\n")

    def test_a_log_that_cannot_be_written(self) -> None:
        file = self.folder / "file"
        file.write_text("")
        ended = self.run_it("--log-dir", file, "true")
        self.assertEqual(ended.returncode, 126)
        self.assertIn(f"--log-dir: cannot make {file}", ended.stderr)

    def test_runs_have_folders_of_their_own(self) -> None:
        for _ in range(2):
            self.assertEqual(self.run_it("--log-dir", self.folder, "true").returncode, 0)
        self.assertEqual(len(list(self.folder.iterdir())), 2)
        # But for those of one name, of which none is lost.
        for text in ("a", "b"):
            self.run_it("--log-dir", self.folder, "--run-id", "one", "echo", text)
        self.assertEqual((self.folder / "one/attempt_0/rank_0/stdout.log").read_text(), "a\nb\n")

    def test_rank_0_reads_what_is_piped_in(self) -> None:
        script = '[ $RANK = 0 ] && exec cat; readlink /proc/$$/fd/0'
        job = self.start("-n", "2", "--prefix", "sh", "-c", script, stdin=subprocess.PIPE)
        out, err = job.communicate("text\n", timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 0, err)
        self.assertEqual(sorted(out.splitlines()), ["[rank 0] text", "[rank 1] /dev/null"])

    def test_a_reader_that_leaves_is_gone_for_the_processes_too(self) -> None:
        job = self.start("--prefix", "-n", "2", "sh", "-c", "while echo line; do :; done; exit 11")
        job.stdout.readline()
        job.stdout.close()
        job.stdout = None
        _, err = job.communicate(timeout=PATIENCE_S)
        # The shell hears of it as an error, or by SIGPIPE.
        self.assertIn(job.returncode, (11, 128 + signal.SIGPIPE), err)

    def test_a_slow_reader_loses_nothing(self) -> None:
        script = "for i in $(seq 20000); do echo 0123456789 $i; done"
        job = self.start("--prefix", "--grace", "0", "-n", "2", "sh", "-c", script)
        # All have ended long before it is read: they have no more to write than fits the pipes and the launcher.
        eventually(lambda: state(job.pid) == "S", "a full pipe")
        out, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 0, err)
        self.assertEqual(len(out.splitlines()), 40000)

    def test_a_reader_that_does_not_read_does_not_keep_it_from_ending(self) -> None:
        job = self.start("--prefix", "--grace", "0.2", "sh", "-c", f"{ANNOUNCE} while echo line; do :; done")
        pids = self.wait_for_pids(1)
        eventually(lambda: state(pids[0]) == "S", "a full pipe")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(PATIENCE_S), 128 + signal.SIGTERM)
        self.assert_gone(pids)

    def test_processes_have_no_descriptors_but_three(self) -> None:
        read, write = os.pipe()
        os.set_inheritable(read, True)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, read)
            stack.callback(os.close, write)
            ended = self.run_it("-n", "2", "sh", "-c", "ls /proc/$$/fd", close_fds=False)
        self.assertEqual(ended.stdout.split(), ["0", "1", "2"] * 2)

    def test_works_without_output(self) -> None:
        ended = subprocess.run(
            ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", str(RUN), "-n", "2", "sh", "-c", "echo a; echo b >&2; exit 3"],
            timeout=PATIENCE_S,
            check=False,
        )
        self.assertEqual(ended.returncode, 3)


if __name__ == "__main__":
    main()
