#!/usr/bin/python3
"""Tests of what tests/chaos/run plans and of how it judges. No worker is started."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from types import TracebackType
from typing import Mapping, Sequence

sys.dont_write_bytecode = True
_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS / "chaos"), str(_TESTS / "docker"), str(_TESTS.parent / "tools")]
from chaoslib import cli  # noqa: E402
from chaoslib.job import NAMES, ChaosJob  # noqa: E402
from chaoslib.plan import OF_PROCESSES, Blow, Fault, make_plan  # noqa: E402
from churnlib.run import Result, told_failures  # noqa: E402
from lab.hosts import Address, Host, Lab, Reach  # noqa: E402


class FakeProgram:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_running = True
        self.status: int | None = None

    def kill(self) -> None:
        self.is_running, self.status = False, 137


class FakeHost(Host):
    """Notes what is done to it."""

    address = "10.0.0.1"

    def __init__(self, name: str, done: list[str]) -> None:
        self.name = name
        self._done = done
        self.programs: list[FakeProgram] = []

    def start(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> FakeProgram:  # type: ignore[override]
        self.programs.append(FakeProgram())
        self._done.append(f"start {self.name}")
        return self.programs[-1]

    def _note(self, what: object) -> None:
        self._done.append(f"{what} {self.name}")

    def kill(self) -> None:
        self._note("power")

    def restart(self, address: Address = Address.SAME) -> None:
        self._note("restart")

    def pause(self) -> None:
        self._note("pause")

    def resume(self) -> None:
        self._note("resume")

    def cut(self) -> None:
        self._note("cut")

    def reconnect(self) -> None:
        self._note("reconnect")

    def drop(self, fraction: float = 1.0, to: Host | None = None) -> None:
        self._note(f"drop {fraction:g} to {to.name if to else 'all'} at")

    def refuse(self, source: Host) -> None:
        self._note("refuse")

    def rate(self, kbit_per_s: int | None) -> None:
        self._note(f"rate {kbit_per_s} at")

    def delay(self, ms: float) -> None:
        self._note("delay")

    def heal(self) -> None:
        self._note("heal")


class FakeLab(Lab):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[str] = []
        self._hosts: dict[str, FakeHost] = {}

    @staticmethod
    def obstacle() -> str | None:
        return None

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def add_host(self, name: str, reach: Reach = Reach.ALL) -> Host:
        self._hosts[name] = FakeHost(name, self.done)
        return self._hosts[name]

    @property
    def hosts(self) -> Mapping[str, FakeHost]:  # type: ignore[override]
        return self._hosts


class PlanTest(unittest.TestCase):
    def test_follows_from_the_seed(self) -> None:
        self.assertEqual(make_plan(6, 60, 7, 5), make_plan(6, 60, 7, 5))
        self.assertNotEqual(make_plan(6, 60, 7, 5), make_plan(6, 60, 8, 5))

    def test_has_all_faults_and_at_most_a_third_of_the_hosts_at_a_time(self) -> None:
        turns = make_plan(6, 600, 1, 5)
        self.assertEqual({turn.what.fault for turn in turns}, set(Fault))
        for turn in turns:
            at_once = [one for one in turns if one.after_s <= turn.after_s < one.until_s]
            self.assertLessEqual(len(at_once), 2)
            self.assertEqual(len({one.worker for one in at_once}), len(at_once))

    def test_has_those_alone_that_it_may_have(self) -> None:
        self.assertEqual({turn.what.fault for turn in make_plan(6, 600, 1, 5, OF_PROCESSES)}, set(OF_PROCESSES))

    def test_faults_have_what_they_need(self) -> None:
        for turn in make_plan(6, 600, 2, 5):
            if turn.what.fault is Fault.DEAF_TO_ONE:
                self.assertIn(int(turn.what.amount), set(range(6)) - {turn.worker})
            elif turn.what.fault is Fault.LOSSY:
                self.assertTrue(0 < turn.what.amount <= 0.2)
            elif turn.what.fault is Fault.PAUSE_LONG:
                self.assertGreater(turn.until_s - turn.after_s, 5)
            elif turn.what.fault is Fault.PAUSE_SHORT:
                self.assertLess(turn.until_s - turn.after_s, 5)


class JobTest(unittest.TestCase):
    def setUp(self) -> None:
        self.lab = FakeLab(Path(self.enterContext(tempfile.TemporaryDirectory())))
        self.job = ChaosJob(self.lab, Path("/bin/true"), 5, io.StringIO())
        for name in NAMES:
            self.job.start(name)
        self.lab.done.clear()

    def program(self, name: str) -> FakeProgram:
        return self.lab.hosts[name].programs[-1]

    def test_each_fault_is_done_and_healed(self) -> None:
        for fault, begun in (
            (Fault.KILL, []),
            (Fault.POWER, ["power ps0"]),
            (Fault.PAUSE_LONG, ["pause ps0"]),
            (Fault.CUT_SHORT, ["cut ps0"]),
            (Fault.DEAF_TO_ONE, ["drop 1 to trainer at ps0"]),
            (Fault.LOSSY, ["drop 3 to all at ps0"]),
            (Fault.SLOW, ["rate 3 at ps0"]),
        ):
            blow = Blow(fault, 3.0)
            self.lab.done.clear()
            self.job.begin(1, blow)
            self.assertEqual(self.lab.done, begun)
            self.assertEqual(self.program("ps0").is_running, fault not in (Fault.KILL, Fault.POWER))
            self.job.end(1, blow)
            self.assertEqual("restart ps0" in self.lab.done, fault is Fault.POWER)
            self.assertIn("heal ps0", self.lab.done)
            self.assertIn("resume ps0", self.lab.done)
            self.assertTrue(self.program("ps0").is_running)
        self.assertEqual(self.job.unexpected, [])

    def test_who_ends_by_itself_is_found_once(self) -> None:
        self.program("ps1").kill()
        for _ in range(2):
            self.job.tend()
        self.assertEqual(self.job.unexpected, ["ps1 ended by itself: 137"])

    def test_asks_all_or_one(self) -> None:
        for name in NAMES:
            self.program(name).lines += ["1 ok", "event joined 0:x:1", "2 error nothing", "E0101 oops"]
        self.assertEqual(self.job.ask("calm"), {name: "ok" for name in NAMES})
        self.assertEqual((self.lab.folder / "command").read_text(), "1 all calm\n")
        self.assertEqual(self.job.ask("view", whom="ps1"), {"ps1": "error nothing"})
        self.assertEqual((self.lab.folder / "command").read_text(), "2 ps1 view\n")
        self.assertRegex(self.job.ask("self", 0.1)["ps0"], "no answer")
        self.assertIn("ps0 0:x:1", self.job.record.texts("joined"))

    def test_what_must_not_happen_is_told(self) -> None:
        lines = ["event wrong a gradient", "event unexplained INTERNAL x", "event refused INTERNAL x", "event evicted OK x"]
        self.program("ps0").lines += [*lines, "terminate called after throwing"]
        self.job.tend()
        self.assertEqual(len(told_failures(self.job)), 5)

    def test_a_wrong_history_is_found(self) -> None:
        line = {"worker": "a", "kind": "increment", "target": "b:1", "id": "one", "result": "ok"}
        (self.lab.folder / "history" / "a.1").write_text(json.dumps(line) + "\n")
        result = Result()
        self.assertEqual(cli.check_history(self.job, result), "increment: 1 ok")
        self.assertRegex("\n".join(result.failures), "(?s)one .*was acknowledged.*nobody has read the models")


class ArgumentsTest(unittest.TestCase):
    def test_mistakes_are_named(self) -> None:
        for words, why in (
            (["--worker", "/nowhere"], "chaos_worker"),
            (["--worker", "/bin/true", "--minutes", "0"], "--minutes"),
            (["--worker", "/bin/true", "--lease", "-1"], "--lease"),
            (["--worker", "/bin/true", "--backend", "docker"], "--image"),
            (["--worker", "/bin/true", "--image", "sinew"], "--image"),
        ):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as end:
                cli.parse_arguments(words)
            self.assertEqual(end.exception.code, 2)
            self.assertIn(why, said.getvalue())


if __name__ == "__main__":
    unittest.main()
