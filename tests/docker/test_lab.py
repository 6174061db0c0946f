#!/usr/bin/python3
"""Tests of the part of a lab that both kinds of hosts share, and of containers where an engine answers.

usage: test_lab.py [unittest arguments]
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from pathlib import Path
from typing import Sequence

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from lab.hosts import Lab, Unsupported  # noqa: E402
from lab.namespaces import NamespaceLab  # noqa: E402
from lab.networked_host import NetworkedHost  # noqa: E402
from lab.processes import ProcessLab  # noqa: E402
from lab.program import LabError, Program, Timeout  # noqa: E402
from scenarios import cli  # noqa: E402
from scenarios.scenario import Result, Scenario, check  # noqa: E402

LONG_S = 60


def program(script: str) -> Program:
    process = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    return Program("sh at here", process, lambda number: os.killpg(process.pid, number))


class ProgramTest(unittest.TestCase):
    def start(self, script: str) -> Program:
        started = program(script)
        self.addCleanup(started.kill)
        return started

    def test_each_line_is_found_once_and_in_order(self) -> None:
        said = self.start("echo one 1; echo two 2 >&2; echo one 3; sleep 1000")
        self.assertEqual(said.expect(r"one (\d)", LONG_S)[1], "1")
        self.assertEqual(said.expect(r"one (\d)", LONG_S)[1], "3")
        with self.assertRaisesRegex(Timeout, r"has not said 'two' within 0.1 s; it said last:\n  one 1\n  two 2"):
            said.expect("two", 0.1)

    def test_what_was_said_before_can_be_left_behind(self) -> None:
        said = self.start("echo tick; echo ready; read line; echo tock")
        said.expect("ready", LONG_S)
        said.wait(LONG_S)
        self.assertEqual(said.lines, ["tick", "ready", "tock"])
        said.catch_up()
        with self.assertRaisesRegex(LabError, "has ended with 0 before 'tock'"):
            said.expect("tock", LONG_S)

    def test_status_is_that_of_a_shell(self) -> None:
        self.assertEqual(self.start("exit 7").wait(LONG_S), 7)
        killed = self.start("echo ready; sleep 1000")
        self.assertIsNone(killed.status)
        killed.expect("ready", LONG_S)
        killed.kill()
        self.assertEqual(killed.status, 128 + signal.SIGKILL)
        self.assertFalse(killed.is_running)
        asked = self.start("trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done")
        asked.expect("ready", LONG_S)
        asked.terminate()
        self.assertEqual(asked.wait(LONG_S), 3)

    def test_one_that_is_paused_can_be_killed_and_says_nothing(self) -> None:
        paused = self.start("i=0; while :; do i=$((i + 1)); echo $i; sleep 0.01; done")
        paused.expect("^3$", LONG_S)
        paused.pause()
        # Lines may be under way.
        paused.stay(0.2)
        paused.catch_up()
        with self.assertRaises(Timeout):
            paused.expect(".", 0.3)
        paused.resume()
        paused.expect(".", LONG_S)
        paused.pause()
        paused.kill()

    def test_staying_notices_the_end(self) -> None:
        with self.assertRaisesRegex(LabError, "has ended with 5 within 60 s"):
            self.start("exit 5").stay(LONG_S)

    def test_waiting_has_an_end(self) -> None:
        with self.assertRaisesRegex(Timeout, "has not ended within 0.1 s"):
            self.start("sleep 1000").wait(0.1)


class PlainHost(NetworkedHost):
    """Its faults are told by `enter`, which runs nothing."""

    def __init__(self, name: str, address: str, enter: Sequence[str] | None) -> None:
        super().__init__()
        self.name = name
        self._address = address
        self.enter = enter

    @property
    def address(self) -> str:
        return self._address

    def _enter_network(self) -> Sequence[str] | None:
        return self.enter

    def start(self, command, env=None):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    kill = pause = resume = lambda self: None
    restart = lambda self, address=None: None  # noqa: E731


class FaultsTest(unittest.TestCase):
    """What is asked of iptables and tc."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = Path(folder.name) / "log"
        self.log.touch()
        recorder = Path(folder.name) / "record"
        recorder.write_text(f'#!/bin/sh\necho "$*" >> {self.log}\ncase "$*" in *netem*) echo no netem >&2; exit 2;; esac\n')
        recorder.chmod(0o755)
        self.recorder = [str(recorder)]
        self.host = PlainHost("a", "10.0.0.1", self.recorder)
        self.other = PlainHost("b", "10.0.0.2", None)

    def said(self) -> list[str]:
        """Since the last call; without what takes rules away, and the beginning of each command."""
        lines = [line.removeprefix("iptables --wait 10 ") for line in self.log.read_text().splitlines()]
        self.log.write_text("")
        self.assertEqual(lines[:2], ["-F INPUT", "-F OUTPUT"])
        return [line for line in lines[2:] if "qdisc del" not in line]

    def test_a_cut_is_in_both_directions_and_of_the_network_alone(self) -> None:
        self.host.cut()
        self.assertEqual(self.said(), ["-A INPUT -i eth0 -j DROP", "-A OUTPUT -o eth0 -j DROP"])
        self.host.reconnect()
        self.assertEqual(self.said(), [])

    def test_drops_are_one_way_and_replace_each_other(self) -> None:
        self.host.drop(0.05)
        self.assertEqual(
            self.said(), ["-A OUTPUT -o eth0 -m statistic --mode random --probability 0.050000 -j DROP"]
        )
        self.host.drop(0)
        self.assertEqual(self.said(), [])
        self.host.drop(to=self.other)
        self.host.drop(0.5, to=self.other)
        self.assertIn("-d 10.0.0.2 -m statistic --mode random --probability 0.500000", self.log.read_text())
        self.log.write_text("")
        self.host.heal()
        self.assertEqual(self.said(), [])

    def test_faults_add_up_and_follow_an_address(self) -> None:
        self.host.rate(100)
        self.host.drop(to=self.other)
        self.log.write_text("")
        self.other._address = "10.0.0.9"
        self.host.refuse(self.other)
        drop, refuse, shape = self.said()
        self.assertEqual(drop, "-A OUTPUT -o eth0 -d 10.0.0.9 -j DROP")
        self.assertEqual(refuse, "-A INPUT -i eth0 -s 10.0.0.9 -p tcp --syn -j REJECT --reject-with tcp-reset")
        self.assertTrue(shape.startswith("tc qdisc add dev eth0 root handle 1: tbf rate 100kbit "), shape)

    def test_a_host_that_is_down_gets_its_faults_later(self) -> None:
        self.host.enter = None
        self.host.cut()
        self.assertEqual(self.log.read_text(), "")
        self.host.enter = self.recorder
        self.host.apply_faults()
        self.assertEqual(len(self.said()), 2)

    def test_a_kernel_without_netem_delays_nothing_and_says_so(self) -> None:
        with self.assertRaisesRegex(Unsupported, "without netem"):
            self.host.delay(5)
        self.log.write_text("")
        self.host.cut()
        self.assertEqual(len(self.said()), 2, "what cannot be is not tried again")

    def test_numbers_that_are_none(self) -> None:
        for fault, text in (
            (lambda: self.host.drop(1.5), "1.5 is no fraction"),
            (lambda: self.host.rate(0), "0 kbit/s is no rate"),
            (lambda: self.host.delay(-1), "-1 ms is no delay"),
        ):
            with self.assertRaisesRegex(LabError, text):
                fault()


class ToolTest(unittest.TestCase):
    def test_wrong_arguments_are_named(self) -> None:
        done = subprocess.run(
            [Path(__file__).with_name("run"), "--scenario", "nonsense"], capture_output=True, text=True, timeout=LONG_S
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no 'nonsense'; there are: ps_server_killed", done.stderr)

    def test_programs_that_are_not_built(self) -> None:
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run(
                [Path(__file__).with_name("run"), "--backend", "namespaces", "--build-dir", empty],
                capture_output=True, text=True, timeout=LONG_S,
            )  # fmt: skip
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(f"nothing was built in {empty}: cmake --build", done.stderr)

    def test_an_interrupted_one_leaves_nothing(self) -> None:
        """While it makes the base of an image, with an engine and a debootstrap that only look so."""
        if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in ("iptables", "tc", "nsenter")):
            self.skipTest("root makes images, and has iptables, tc and nsenter")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for part in ("tools", "tmp", "build/launch"):
                (folder / part).mkdir(parents=True)
            shutil.copy("/bin/true", folder / "build/launch/sinew-run")
            for tool, does in (("docker", '[ "$1" != image ]'), ("debootstrap", f"echo $$ > {folder}/pid; exec sleep 1000")):
                (folder / "tools" / tool).write_text(f"#!/bin/sh\n{does}\n")
                (folder / "tools" / tool).chmod(0o755)
            env = {**os.environ, "PATH": f"{folder}/tools:{os.environ['PATH']}", "TMPDIR": f"{folder}/tmp"}
            command = [Path(__file__).with_name("run"), "--build-dir", folder / "build"]
            with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as running:
                self.addCleanup(running.kill)
                deadline = time.monotonic() + LONG_S
                while not (folder / "pid").exists() or not (folder / "pid").read_text():
                    self.assertLess(time.monotonic(), deadline, "it has not come so far")
                    time.sleep(0.05)
                running.terminate()
                self.assertEqual(running.wait(LONG_S), 128 + signal.SIGTERM)
            self.assertEqual(list((folder / "tmp").iterdir()), [])
            self.assertFalse(Path("/proc", (folder / "pid").read_text().strip()).exists())

    def test_quick_is_a_part(self) -> None:
        quick = cli.chosen(cli.parse_arguments(["--quick"]))
        self.assertLess(0, len(quick))
        self.assertLess(len(quick), len(cli.SCENARIOS))
        names = [scenario.name for scenario in cli.SCENARIOS]
        self.assertEqual(len(set(names)), len(names))

    def test_the_table_says_what_failed(self) -> None:
        class NoLab(Lab):
            obstacle = staticmethod(lambda: None)
            hosts = {}  # type: ignore[assignment]
            add_host = None  # type: ignore[assignment]

            def __enter__(self) -> NoLab:
                return self

            def __exit__(self, *_: object) -> None:
                pass

        def fails(_: Lab) -> Result:
            check(False, "2 instead of 3")
            return Result()

        def cannot(_: Lab) -> Result:
            raise Unsupported("no netem")

        rows = [
            cli.run_scenario(Scenario(name, run, quick=False), NoLab)  # type: ignore[abstract]
            for name, run in (("well", lambda _: Result(1.25, "as ever")), ("wrong", fails), ("cannot", cannot))
        ]
        self.assertEqual([row.result for row in rows], ["ok", "FAILED", "skipped"])
        lines = cli.table(rows).splitlines()
        self.assertRegex(lines[1], r"^well +ok +1\.2 s +0\.0 s  as ever$")
        self.assertRegex(lines[2], r"^wrong +FAILED .* 2 instead of 3$")


class ProcessLabTest(unittest.TestCase):
    def setUp(self) -> None:
        obstacle = ProcessLab.obstacle()
        if obstacle is not None:
            self.skipTest(obstacle)

    def test_programs_are_killed_and_paused_and_have_no_network(self) -> None:
        with ProcessLab() as lab:
            host = lab.add_host("one")
            ticking = host.start(["sh", "-c", "while sleep 0.05; do echo tick; done"])
            ticking.expect("tick", LONG_S)
            host.pause()
            # What it has said before is still on its way.
            with self.assertRaises(Timeout):
                for _ in range(100):
                    ticking.expect("tick", 0.5)
            host.resume()
            ticking.expect("tick", LONG_S)
            host.kill()
            self.assertEqual(ticking.status, 128 + signal.SIGKILL)
            with self.assertRaisesRegex(LabError, "one is down"):
                host.start(["true"])
            host.restart()
            self.assertEqual(host.start(["sh", "-c", "exit 3"]).wait(LONG_S), 3)
            self.assertRaises(Unsupported, host.cut)
            last = host.start(["sleep", "1000"])
        self.assertEqual(last.status, 128 + signal.SIGKILL)
        self.assertFalse(lab.folder.exists())


class ReadmeTest(unittest.TestCase):
    def test_its_example_runs(self) -> None:
        """With programs of a few lines in place of those that a user has."""
        obstacle = NamespaceLab.obstacle()
        if obstacle is not None:
            self.skipTest(obstacle)
        readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
        (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        example = re.sub(r"^from lab\.engine.*$", "from lab.namespaces import NamespaceLab", example, flags=re.MULTILINE)
        with tempfile.TemporaryDirectory() as folder:
            self.write_programs(Path(folder))
            example = example.replace('EngineLab("my-image")', f"NamespaceLab([__import__('pathlib').Path('{folder}')])")
            watchdog = threading.Timer(240, os.kill, [os.getpid(), signal.SIGABRT])
            watchdog.start()
            try:
                exec(compile(example, "README.md", "exec"), {})  # noqa: S102
            finally:
                watchdog.cancel()

    @staticmethod
    def write_programs(folder: Path) -> None:
        server = """\
            #!/usr/bin/python3
            import socket
            with socket.create_server(("", 29500)) as server:
                print("listening", flush=True)
                while True:
                    connection = server.accept()[0]
                    connection.sendall(b"x")
                    connection.close()
            """
        client = """\
            #!/usr/bin/python3
            import signal, socket, sys, time
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            host, port = sys.argv[1].split(":")
            count = 0
            while True:
                try:
                    with socket.create_connection((host, int(port)), timeout=1) as connection:
                        connection.recv(1)
                    count += 1
                    print("answer", count, flush=True)
                except OSError:
                    print("server is lost", flush=True)
                time.sleep(0.05)
            """
        for name, text in (("my-server", server), ("my-client", client)):
            (folder / name).write_text(textwrap.dedent(text))
            (folder / name).chmod(0o755)


if __name__ == "__main__":
    unittest.main()
