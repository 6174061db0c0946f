#!/usr/bin/python3
"""Runs the learner and its actors as processes, and kills, stops and starts each.

usage: test_actor_learner.py LEARNER ACTOR [unittest arguments]

LEARNER and ACTOR are the built programs; the variable SINEW_REGISTRAR names sinew-registrar.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import threading
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Callable
from xml.etree import ElementTree

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import example_process  # noqa: E402
import ports  # noqa: E402

LEARNER = Path()
ACTOR = Path()
# Only a failing test uses it up.
BOUND_S = 240
# Long for a busy machine, and short for who waits until it is over.
LEASE = ("--lease", "6")
UPDATE = re.compile(r"^Update (\d+): return (-?[\d.]+), actors (-|-?[\d.]+), (\d+) transitions, .*weights (\d+)\.(\d+)")
EPISODE = re.compile(r"^[\w.]+: episode (\d+): return (-?[\d.]+), weights (\d+)\.(\d+), (\d+) steps dropped$")


class Part:
    """A process, and what it has said so far."""

    def __init__(self, test: unittest.TestCase, name: str, command: list[str | Path]) -> None:
        self.name = name
        # A BLAS that computes on all cores keeps the others waiting.
        self.process = example_process.start(command, {"OMP_NUM_THREADS": "1"})
        self._lines: list[str] = []
        self._errors: list[str] = []
        self._changed = threading.Condition()
        self._ended = 0
        self._readers = [
            threading.Thread(target=self._read, args=arguments)
            for arguments in ((self.process.stdout, self._lines), (self.process.stderr, self._errors))
        ]
        for reader in self._readers:
            reader.start()
        test.addCleanup(self._clean)

    def _read(self, stream, lines: list[str]) -> None:
        for line in stream:
            with self._changed:
                lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended += 1
            self._changed.notify_all()

    def _clean(self) -> None:
        example_process.kill_group(self.process)
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()

    def lines(self) -> list[str]:
        with self._changed:
            return list(self._lines)

    def story(self) -> str:
        with self._changed:
            said = "\n".join(self._lines[-40:] + self._errors[-10:])
        return f"--- {self.name} ({self.process.pid}), {self.process.poll()}\n{said}\n"

    def await_line(self, what: str, wanted: Callable[[str], object], first: int = 0) -> int:
        """Waits for a line from the number `first` on that is wanted; the number of the one behind it."""

        def found() -> bool:
            nonlocal first
            while first < len(self._lines):
                first += 1
                if wanted(self._lines[first - 1]):
                    return True
            return False

        with self._changed:
            seen = False

            def over() -> bool:
                nonlocal seen
                seen = found()
                return seen or self._ended == 2

            self._changed.wait_for(over, BOUND_S)
        if not seen:
            raise AssertionError(f"{self.name} never said '{what}'\n{self.story()}")
        return first

    def await_text(self, text: str, first: int = 0) -> int:
        return self.await_line(text, lambda line: text in line, first)

    def await_error(self, text: str) -> None:
        """Waits for a line of the log with this text."""
        with self._changed:
            if not self._changed.wait_for(lambda: any(text in line for line in self._errors), BOUND_S):
                raise AssertionError(f"{self.name} never logged '{text}'")

    def here(self) -> int:
        with self._changed:
            return len(self._lines)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join()

    def end(self) -> int:
        """Waits for the end; the exit status."""
        status = self.process.wait(BOUND_S)
        for reader in self._readers:
            reader.join()
        return status

    def errors(self) -> str:
        with self._changed:
            return "\n".join(self._errors)


@dataclass(frozen=True)
class Update:
    update: int
    transitions: int


def updates(learner: Part) -> list[Update]:
    found = (UPDATE.match(line) for line in learner.lines())
    return [Update(int(match[1]), int(match[4])) for match in found if match]


def versions(actor: Part) -> list[tuple[int, int]]:
    """Those that its episodes were played by; without those before its first weights."""
    found = (EPISODE.match(line) for line in actor.lines())
    every = [(int(match[3]), int(match[4])) for match in found if match]
    return [version for version in every if version != (0, 0)]


class JobTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.parts: list[Part] = []

    def run(self, result=None):
        # What the processes said belongs to a failure.
        before = len(result.failures) + len(result.errors) if result else 0
        outcome = super().run(result)
        if result and len(result.failures) + len(result.errors) > before:
            print("".join(part.story() for part in self.parts), file=sys.stderr)
        return outcome

    def start(self, name: str, command: list[str | Path]) -> Part:
        part = Part(self, name, command)
        self.parts.append(part)
        return part

    def learner(self, init_method: str, *flags: str, updates: int = 1_000_000) -> Part:
        rhythm = ["--warm-up", "100", "--batch", "16", "--publish-every", "10", "--evaluate-every", "100"]
        rhythm += ["--checkpoint-every", "100", "--evaluation-episodes", "2", "--goal", "0"]
        files = ["--checkpoint", self.folder / "checkpoints", "--output", self.folder / "output"]
        job = [LEARNER, "--init-method", init_method, *LEASE, "--updates", str(updates)]
        return self.start("learner", [*job, *rhythm, *files, *flags])

    def actor(self, name: str, init_method: str, *flags: str) -> Part:
        speed = [] if "--speed" in flags else ["--speed", "20"]
        play = [*speed, "--log-interval", "1", "--seed", str(len(self.parts))]
        return self.start(name, [ACTOR, "--name", name, "--init-method", init_method, *LEASE, *play, *flags])

    def await_episode(self, actor: Part, first: int = 0, run: int = 0) -> int:
        """Waits for one that was played by weights of that start of the learner; 0: of any."""

        def wanted(line: str) -> bool:
            match = EPISODE.match(line)
            return match is not None and int(match[3]) >= max(run, 1)

        return actor.await_line(f"episode with weights of run {run}", wanted, first)


class KillTest(JobTest):
    def test_by_a_registrar(self) -> None:
        # Others get in while the learner is dead.
        address = f"127.0.0.1:{ports.free_port()}"
        registrar = self.start("registrar", [os.environ["SINEW_REGISTRAR"], "--bind", address, *LEASE])
        registrar.await_text(address)
        self.kill_each(f"tcp://{address}")

    def test_over_a_file(self) -> None:
        self.kill_each(f"file://{self.folder}/rendezvous")

    def test_a_learner_that_is_stopped(self) -> None:
        init_method = f"tcp://127.0.0.1:{ports.free_port()}"
        learner = self.learner(init_method)
        actors = [self.actor(name, init_method) for name in ("actor1", "actor2")]
        learner.await_line("Update", UPDATE.match)
        for actor in actors:
            self.await_episode(actor)
        learner.signal(signal.SIGSTOP)
        heard = [actor.await_text("the learner is away") for actor in actors]
        # It is lost when each of them has said so, at the end of its lease: then they look for another one.
        for actor in actors:
            actor.await_error("worker 'learner' is lost")
        learner.signal(signal.SIGCONT)
        seen = learner.await_text("was out of the job, and is back")
        for actor, first in zip(actors, heard):
            self.await_episode(actor, actor.await_text("found the learner", first))
        learner.await_line("Update", UPDATE.match, seen)
        for part in (learner, *actors):
            self.assertIsNone(part.process.poll(), part.story())

    def kill_each(self, init_method: str) -> None:
        learner = self.learner(init_method)
        actor1 = self.actor("actor1", init_method)
        actor2 = self.actor("actor2", init_method, "--queue", "100")
        learner.await_line("Update", UPDATE.match)
        for actor in (actor1, actor2):
            self.await_episode(actor)

        # An actor is killed: the others go on, and it comes back under its name.
        seen = learner.here()
        actor1.kill()
        seen = learner.await_text("actor1 lost", seen)
        seen = learner.await_line("Update", UPDATE.match, learner.await_line("Update", UPDATE.match, seen))
        first1 = actor1
        actor1 = self.actor("actor1", init_method)
        learner.await_text("actor1 joined", seen)
        self.await_episode(actor1)

        # An actor is stopped for longer than its lease.
        seen = learner.here()
        actor2.signal(signal.SIGSTOP)
        seen = learner.await_text("actor2 lost", seen)
        heard = actor2.here()
        actor2.signal(signal.SIGCONT)
        heard = actor2.await_text("was out of the job, and is back", heard)
        learner.await_text("actor2 joined", seen)
        self.await_episode(actor2, actor2.await_text("found the learner", heard))

        # The learner is killed: actors play on by what they have, others join.
        learner.await_line("Update", UPDATE.match, learner.here())
        heard = actor2.here()
        learner.kill()
        heard = self.await_episode(actor2, actor2.await_text("the learner is away", heard))
        newest = versions(actor2)[-1]
        dropped = actor2.await_line("dropped steps", lambda line: (m := EPISODE.match(line)) and int(m[5]) > 0, heard)
        self.assertEqual(versions(actor2)[-1], newest, "there are no others")
        actor1.await_text("the learner is away")
        second1 = actor1
        actor1.kill()
        actor1 = self.actor("actor1", init_method)
        actor3 = self.actor("actor3", init_method, "--queue", "40", "--overflow", "block")
        for actor in (actor1, actor3):
            actor.await_text("is in the job")
            actor.await_text("the learner is away")

        # It comes back, from the checkpoint before the one that is damaged.
        saved = sorted((self.folder / "checkpoints").glob("*.ckpt"))
        saved[-1].write_bytes(saved[-1].read_bytes()[:-1000])
        self.assertFalse([line for line in actor3.lines() if EPISODE.match(line)], "it waits for the learner")
        before = updates(learner)
        first_learner = learner
        learner = self.learner(init_method)
        learner.await_text(f"{saved[-1]} is damaged")
        learner.await_text(f"Going on from {saved[-2]}: ")
        for actor, since in ((actor1, 0), (actor2, dropped), (actor3, 0)):
            self.await_episode(actor, actor.await_text("found the learner", since), run=newest[0] + 1)
        learner.await_line("Update", UPDATE.match, learner.here())
        self.assertRegex(actor3.lines()[-1], "0 steps dropped")
        for told in (before, updates(learner)):
            self.assertEqual(sorted(told, key=lambda one: one.update), told)
            self.assertEqual(sorted(told, key=lambda one: one.transitions), told)
        self.assertGreater(updates(learner)[-1].transitions, before[0].transitions)

        # It is asked to end, and actors wait for the next one. That has nothing left to do, and says so to all.
        seen = actor2.here()
        learner.signal(signal.SIGTERM)
        self.assertEqual(learner.end(), 0, learner.story())
        self.assertIn("Stopped", learner.lines())
        actor2.await_text("the learner is away", seen)
        last = self.learner(init_method, updates=1)
        for actor in (actor1, actor2, actor3):
            actor.await_text("the training is over")
            self.assertEqual(actor.end(), 0, actor.story())
        self.assertEqual(last.end(), 1, last.story())
        self.assertIn("Not solved; try more --updates", last.lines())

        for actors in ((first1, second1, actor1), (actor2,), (actor3,)):
            played = [version for actor in actors for version in versions(actor)]
            self.assertEqual(sorted(played), played, "versions only grow")
        self.check_files(updates(first_learner)[0].update)

    def check_files(self, first: int) -> None:
        table = (self.folder / "output" / "returns.csv").read_text().splitlines()
        self.assertEqual(table[0], "update,actors,evaluation")
        rows = [row.split(",") for row in table[1:]]
        self.assertGreater(len(rows), 3)
        self.assertEqual([int(row[0]) for row in rows], [first + 100 * i for i in range(len(rows))])
        for row in rows:
            self.assertTrue(-3300 < float(row[2]) < 0, row)
            self.assertTrue(row[1] == "" or -3300 < float(row[1]) < 0, row)
        picture = ElementTree.parse(self.folder / "output" / "returns.svg").getroot()
        self.assertTrue(picture.tag.endswith("svg"))


class SmallTest(JobTest):
    def test_an_actor_that_plays_some_episodes(self) -> None:
        init_method = f"tcp://127.0.0.1:{ports.free_port()}"
        learner = self.learner(init_method)
        actor = self.actor("arm.7", init_method, "--episodes", "3", "--speed", "0")
        self.assertEqual(actor.end(), 0, actor.story())
        self.assertTrue(EPISODE.match(actor.lines()[-1].replace("arm.7", "arm7")), actor.story())
        learner.await_text("arm.7 left")
        learner.await_text("Update 500")

    def test_mistakes(self) -> None:
        for program, flags, told in (
            (LEARNER, ("--updates", "1"), "--init-method"),
            (LEARNER, ("--init-method", "tcp://127.0.0.1:1", "--gamma", "2"), "--gamma"),
            (ACTOR, ("--init-method", "tcp://127.0.0.1:1"), "--name"),
            (ACTOR, ("--init-method", "tcp://127.0.0.1:1", "--name", "a", "--overflow", "wait"), "--overflow"),
            (ACTOR, ("--init-method", "tcp://127.0.0.1:1", "--name", "a", "--queue", "0"), "--queue"),
        ):
            ended = example_process.run([program, *flags])
            self.assertEqual(ended.status, 2, ended.stderr)
            self.assertIn(told, ended.stderr)

    def test_help(self) -> None:
        for program, flag in ((LEARNER, "--checkpoint"), (ACTOR, "--overflow")):
            ended = example_process.run([program, "--help"])
            self.assertEqual((ended.status, ended.stderr), (0, ""))
            self.assertIn(flag, ended.stdout)

    def test_failures(self) -> None:
        address = f"127.0.0.1:{ports.free_port()}"
        ended = example_process.run(
            [ACTOR, "--init-method", f"tcp://{address}", "--name", "a", "--join-timeout", "1"]
        )
        self.assertEqual(ended.status, 3, ended.stderr)
        self.assertIn(address, ended.stderr)
        ended = example_process.run([LEARNER, "--init-method", "nowhere"])
        self.assertEqual(ended.status, 3, ended.stderr)
        self.assertIn("nowhere", ended.stderr)
        checkpoints = self.folder / "checkpoints"
        checkpoints.mkdir()
        (checkpoints / "checkpoint-000004.ckpt").write_text("?")
        ended = example_process.run([LEARNER, "--init-method", f"tcp://{address}", "--checkpoint", checkpoints])
        self.assertEqual(ended.status, 3, ended.stderr)
        self.assertIn("only damaged checkpoints", ended.stderr)
        self.assertIn("checkpoint-000004.ckpt", ended.stdout)


def main() -> None:
    global LEARNER, ACTOR
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    LEARNER, ACTOR = (Path(sys.argv.pop(1)).absolute() for _ in range(2))
    unittest.main()


if __name__ == "__main__":
    main()
