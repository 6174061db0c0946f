#!/usr/bin/python3
"""Runs the language model's trainers and servers as processes, for a few steps.

usage: test_ps_rnn.py SINEW_RUN PS_RNN [unittest arguments]
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from xml.etree import ElementTree

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "docker"))
import example_process  # noqa: E402
import ports  # noqa: E402
from example_process import Ended  # noqa: E402
from lab import history  # noqa: E402

SINEW_RUN = Path()
PS_RNN = Path()
EPOCH = re.compile(
    r"^Epoch (\d+): train perplexity [\d.]+, valid perplexity ([\d.]+), \d+ words/s$", re.MULTILINE
)
UNIGRAM = re.compile(r"^Unigram model: valid perplexity ([\d.]+)$", re.MULTILINE)
SMALL = ("--ninp", "16", "--nhid", "16", "--batch", "10", "--bptt", "12")


def some_text() -> str:
    """Each word says which few may follow, so a memory of one word is worth much."""
    draw = random.Random(5)
    words = [f"w{number}" for number in range(40)]
    lines = []
    word = 0
    for _ in range(1500):
        line = []
        for _ in range(8):
            word = (word * 7 + draw.choice((1, 2, 3))) % len(words)
            line.append(words[word])
        lines.append(" ".join(line))
    return "\n".join(lines) + "\n"


class PsRnnTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.text = self.folder / "text"
        self.text.write_text(some_text())

    def train(self, *flags: str, processes: int = 2, output: str = "out", timeout_s: float = 240) -> Ended:
        job = [SINEW_RUN, "--nproc", str(processes), PS_RNN, "--data", self.text, "--output", self.folder / output]
        return example_process.run([*job, *flags], timeout_s, cwd=str(self.folder))


class TrainingTest(PsRnnTest):
    def test_learns_and_writes_the_curve(self) -> None:
        ended = self.train(*SMALL, "--epochs", "3", "--lr", "0.02", "--dropout", "0")
        self.assertEqual(ended.status, 0, ended.stderr)
        unigram = float(UNIGRAM.search(ended.stdout)[1])
        epochs = EPOCH.findall(ended.stdout)
        self.assertEqual([number for number, _ in epochs], ["1", "2", "3"])
        self.assertLess(float(epochs[-1][1]), unigram / 3, ended.stdout)
        self.assertNotIn("\r", ended.stdout + ended.stderr, "no progress bar into a pipe")
        table = (self.folder / "out" / "loss_curve.csv").read_text().splitlines()
        self.assertEqual(table[0], "epoch,train_loss,valid_loss,valid_perplexity")
        ends = [row.split(",") for row in table[1:] if not row.endswith(",,")]
        self.assertEqual([row[0] for row in ends], ["1", "2", "3"])
        self.assertAlmostEqual(float(ends[-1][3]), float(epochs[-1][1]), delta=0.01)
        picture = ElementTree.parse(self.folder / "out" / "loss_curve.svg").getroot()
        self.assertTrue(picture.tag.endswith("svg"))

    def test_trainers_and_servers(self) -> None:
        ended = self.train(
            *SMALL, "--servers", "2", "--epochs", "2", "--max-steps", "12",
            "--round", "5", "--json", "--optimizer", "adagrad", processes=4,
        )  # fmt: skip
        self.assertEqual(ended.status, 0, ended.stderr)
        (line,) = ended.stdout.splitlines()
        figures = json.loads(line)
        self.assertEqual((figures["trainers"], figures["servers"]), (2, 2))
        self.assertEqual(figures["words"], 2 * 2 * 12 * 10 * 12)
        self.assertGreater(figures["words_per_s"], 0)
        self.assertGreater(figures["valid_perplexity"], 1)

    def test_a_resumed_run_is_the_uninterrupted_one(self) -> None:
        common = (*SMALL, "--max-steps", "15", "--servers", "2", "--json")
        whole = self.train(*common, "--epochs", "3", output="whole", processes=3)
        self.assertEqual(whole.status, 0, whole.stderr)
        checkpoint = ("--checkpoint", str(self.folder / "checkpoint"))
        first = self.train(*common, *checkpoint, "--epochs", "2", output="parts", processes=3)
        self.assertEqual(first.status, 0, first.stderr)
        second = self.train(*common, *checkpoint, "--epochs", "3", "--resume", output="parts", processes=3)
        self.assertEqual(second.status, 0, second.stderr)
        self.assertIn("Going on after epoch 2", second.stderr)
        curves = [self.folder / name / "loss_curve.csv" for name in ("whole", "parts")]
        self.assertEqual(curves[0].read_text(), curves[1].read_text())

    def test_devices(self) -> None:
        flags = (*SMALL, "--epochs", "1", "--max-steps", "6", "--round", "2")
        for device, output in (((), "without"), (("--device", "cpu"), "cpu")):
            ended = self.train(*flags, *device, output=output)
            self.assertEqual(ended.status, 0, ended.stderr)
        curves = [(self.folder / name / "loss_curve.csv").read_text() for name in ("without", "cpu")]
        self.assertEqual(*curves)
        # Only the server needs one.
        command = [SINEW_RUN, "--nproc", "2", PS_RNN, "--data", self.text, "--device", "cuda"]
        ended = example_process.run(command, 240, {"CUDA_VISIBLE_DEVICES": ""}, str(self.folder))
        self.assertEqual((ended.status, ended.stdout), (3, ""), ended.stderr)
        self.assertEqual(ended.stderr.count("ps_rnn: --device cuda needs a GPU and a LibTorch with CUDA"), 1, ended.stderr)

    def test_the_tutorials_sizes(self) -> None:
        ended = self.train("--preset", "tutorial", "--epochs", "2", "--max-steps", "5")
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertEqual(len(EPOCH.findall(ended.stdout)), 2)


class MistakeTest(PsRnnTest):
    def test_wrong_flags_and_files_end_it_at_once(self) -> None:
        for flags, told in (
            (("--ntoken", "1"), "--ntoken"),
            (("--servers", "0"), "--servers"),
            (("--servers", "2"), "a job of 2 processes, and it takes 3 to 258"),
            (("--nonsense",), "--nonsense"),
            (("--resume",), "--checkpoint"),
            (("--resume", "--checkpoint", "checkpoint", "--history", "history"), "--history"),
            (("--standby", "--device", "cuda"), "--standby mirrors what is in host memory"),
            (("--standby",), "a job of 2 processes, and it takes 3 to 258"),
            (("--data", "/nowhere/text"), "/nowhere/text"),
            (("--data", "/dev/null"), "take a longer text"),
        ):
            if flags[0] == "--data":
                ended = example_process.run([SINEW_RUN, "--nproc", "2", PS_RNN, "--output", "", *flags], 30)
            else:
                ended = self.train(*flags, timeout_s=30)
            self.assertEqual(ended.status, 2, ended.stderr)
            self.assertIn(told, ended.stderr)

    def test_a_text_too_short_for_the_flags(self) -> None:
        ended = self.train("--batch", "60000", timeout_s=60)
        self.assertEqual(ended.status, 3, ended.stderr)
        self.assertIn("is too short", ended.stderr)

    def test_help(self) -> None:
        ended = example_process.run([PS_RNN, "--help"])
        self.assertEqual(ended.status, 0)
        self.assertIn("--ntoken", ended.stdout)

    def test_started_alone_it_says_how(self) -> None:
        ended = example_process.run([PS_RNN])
        self.assertEqual(ended.status, 2, ended.stderr)
        self.assertIn("sinew-run --nproc 2 ps_rnn", ended.stderr)


class JobTest(PsRnnTest):
    """A job of processes that are started, and killed, one by one."""

    epochs, steps = 2, 24
    flags: tuple[str, ...] = (*SMALL, "--epochs", "2", "--max-steps", "24", "--round", "2", "--json")
    checkpoints = ("--checkpoint", "checkpoint", "--checkpoint-rounds", "2")

    def start(self, trainers: int, servers: int, *flags: str) -> None:
        """Starts the job, and what a process of a rank is started with. With --standby it has as many standbys as servers."""
        served = servers * 2 if "--standby" in flags else servers
        self.command = [
            PS_RNN, "--data", self.text, "--output", "parts", "--history", "history", "--servers", str(servers),
            *self.flags, *flags,
        ]  # fmt: skip
        self.port = ports.free_port()
        self.processes = example_process.start_by_hand([self.command] * (trainers + served), self.port, str(self.folder))
        for process in self.processes:
            self.addCleanup(self.end, process)

    @staticmethod
    def end(process: subprocess.Popen[str]) -> None:
        example_process.kill_group(process)
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def kill(self, rank: int) -> None:
        self.processes[rank].kill()
        self.processes[rank].wait()

    def start_again(self, rank: int) -> None:
        place = example_process.place(self.port, rank, len(self.processes))
        self.end(self.processes[rank])
        self.processes[rank] = example_process.start(self.command, place, str(self.folder))
        self.addCleanup(self.end, self.processes[rank])

    def read_until(self, log: list[str], part: str) -> None:
        """Reads what the first trainer says, up to a line that has `part`."""
        while not log or part not in log[-1]:
            line = self.processes[0].stderr.readline()
            self.assertTrue(line, "".join(log))
            log.append(line)

    def read_round(self, log: list[str]) -> None:
        log.append("")
        self.read_until(log, "train perplexity")

    def end_of(self, rank: int) -> Ended:
        process = self.processes[rank]
        watchdog = threading.Timer(240, example_process.kill_group, [process])
        watchdog.start()
        # Not by communicate(), which does not know what readline() has read ahead.
        ended = Ended(-1, process.stdout.read(), process.stderr.read())
        status = process.wait()
        watchdog.cancel()
        return dataclasses.replace(ended, status=status)

    def uninterrupted(self, trainers: int, servers: int) -> dict[str, object]:
        ended = self.train(*self.flags, "--servers", str(servers), output="whole", processes=trainers + servers)
        self.assertEqual(ended.status, 0, ended.stderr)
        return json.loads(ended.stdout)

    def without_history(self) -> list[str]:
        """The command of a job that goes on."""
        command = [str(word) for word in self.command]
        at = command.index("--history")
        return command[:at] + command[at + 2 :]

    def check_history(self, acknowledged: int | None = None) -> None:
        """What trainers were told of their steps is true: each was made once."""
        entries = history.read_file(self.folder / "history")
        self.assertEqual(history.check(entries), [])
        last = {entry.id: entry for entry in entries if entry.kind == "step"}
        steps = {entry.step for entry in last.values() if entry.result == "ok"}
        self.assertGreaterEqual(len(steps), self.epochs * self.steps, history.counts(entries))
        if acknowledged is not None:
            self.assertEqual(history.counts(entries), f"step: {acknowledged} ok")

    def curves(self) -> list[str]:
        return [(self.folder / name / "loss_curve.csv").read_text() for name in ("whole", "parts")]

    def check_curve_of_take_overs(self, said: str) -> None:
        """It is nearly that of the uninterrupted job, as long as that is: a pass that is made again after a step has been
        applied reads what the step has changed, so its loss is that after the step."""
        whole, parts = ([line.split(",") for line in curve.splitlines()] for curve in self.curves())
        self.assertGreaterEqual(len(parts), len(whole), said)
        for ours, theirs in zip(parts[1:], whole[1:]):
            self.assertEqual(ours[0], theirs[0], said)
            for one, other in zip(ours[1:3], theirs[1:3]):
                self.assertEqual(one == "", other == "", said)
                if one:
                    self.assertAlmostEqual(float(one), float(other), delta=0.1, msg=said)


class FailoverTest(JobTest):
    """Processes are killed while the others train."""

    def test_killed_servers_come_back_and_nothing_is_lost_or_done_twice(self) -> None:
        self.uninterrupted(1, 2)
        seed = random.randrange(1 << 30)
        print(f"seed {seed}", flush=True)
        draw = random.Random(seed)
        self.start(1, 2, *self.checkpoints)
        log: list[str] = []
        for _ in range(3):
            # Of the 24 rounds, and some that are made again.
            for _ in range(draw.randint(1, 6)):
                self.read_round(log)
            rank = draw.randint(1, 2)
            self.kill(rank)
            if draw.random() < 0.5:
                # So that who waits for it has begun to.
                self.read_until(log, "server")
            self.start_again(rank)
        trainer = self.end_of(0)
        said = "".join(log) + trainer.stderr
        self.assertEqual(trainer.status, 0, said)
        self.assertEqual([self.end_of(rank).status for rank in (1, 2)], [0, 0])
        figures = json.loads(trainer.stdout)
        self.assertGreaterEqual(figures["failovers"], 1, said)
        self.assertLessEqual(figures["failovers"], 6, said)
        self.check_history()
        self.assertEqual(*self.curves(), said)

    def test_a_checkpoint_taken_right_after_another_was_loaded(self) -> None:
        self.start(1, 2, *self.checkpoints)
        log: list[str] = []
        # Loaded checkpoints are those of even rounds; the one is taken again as soon as it is there, and is whole when the
        # next one is due.
        for rounds in (5, 3):
            for _ in range(rounds):
                self.read_round(log)
            self.kill(1)
            self.start_again(1)
            self.read_until(log, "going on at step")
        trainer = self.end_of(0)
        said = "".join(log) + trainer.stderr
        self.assertEqual(trainer.status, 0, said)
        self.assertEqual([self.end_of(rank).status for rank in (1, 2)], [0, 0])
        self.check_history()

    def test_without_a_trainer_the_others_read_its_share(self) -> None:
        whole = self.uninterrupted(3, 1)
        self.start(3, 1, *self.checkpoints)
        log: list[str] = []
        for _ in range(4):
            self.read_round(log)
        self.kill(2)
        trainer = self.end_of(0)
        said = "".join(log) + trainer.stderr
        self.assertEqual(trainer.status, 0, said)
        self.assertIn("with 2 trainers", said)
        self.check_history()
        figures = json.loads(trainer.stdout)
        self.assertEqual(figures["words"], whole["words"], said)
        self.assertEqual([self.end_of(rank).status for rank in (1, 3)], [0, 0])
        # The next job has all of them again.
        command = self.without_history()
        command[command.index("--epochs") + 1] = "3"
        job = [SINEW_RUN, "--nproc", "4", *command, "--resume"]
        resumed = example_process.run(job, 240, cwd=str(self.folder))
        self.assertEqual(resumed.status, 0, resumed.stderr)
        self.assertIn("Going on after epoch 2", resumed.stderr)

    def test_a_trainer_that_comes_back_is_not_taken_back(self) -> None:
        # So many that it is there before they are over.
        self.epochs = 40
        self.flags = (*SMALL, "--epochs", "40", "--max-steps", "24", "--round", "2", "--json")
        self.start(3, 1, *self.checkpoints)
        log: list[str] = []
        self.read_round(log)
        self.kill(2)
        self.read_until(log, "with 2 trainers")
        self.start_again(2)
        trainer = self.end_of(0)
        said = "".join(log) + trainer.stderr
        self.assertEqual(trainer.status, 0, said)
        self.check_history()
        self.assertNotIn("with 3 trainers", said)
        others = [self.end_of(rank) for rank in (1, 2, 3)]
        self.assertEqual([ended.status for ended in others], [0, 0, 0], said + others[1].stderr)

    def test_a_server_that_does_not_come_back_is_named(self) -> None:
        self.start(1, 1, *self.checkpoints, "--server-wait", "1")
        log: list[str] = []
        self.read_round(log)
        self.kill(1)
        trainer = self.end_of(0)
        self.assertEqual(trainer.status, 3, trainer.stderr)
        self.assertIn("worker 'server0' was lost", trainer.stderr)

    def test_without_checkpoints_a_killed_server_ends_the_job(self) -> None:
        self.start(1, 1)
        log: list[str] = []
        self.read_round(log)
        self.kill(1)
        trainer = self.end_of(0)
        self.assertEqual(trainer.status, 3, trainer.stderr)
        self.assertIn("server0", trainer.stderr)


class StandbyTest(JobTest):
    """Servers are killed that others mirror. Rank 0 trains, then come the servers, and their standbys. What is made
    again draws other numbers, so there is no dropout where curves are compared."""

    epochs, steps = 3, 60
    flags = (*SMALL, "--epochs", "3", "--max-steps", "60", "--round", "4", "--json", "--dropout", "0")

    def end_well(self, log: list[str], *ranks: int) -> tuple[dict[str, object], str]:
        """Waits until the job is over, of which these processes are left beside the first trainer."""
        trainer = self.end_of(0)
        said = "".join(log) + trainer.stderr
        self.assertEqual(trainer.status, 0, said)
        self.assertEqual([self.end_of(rank).status for rank in ranks], [0] * len(ranks), said)
        return json.loads(trainer.stdout), said

    def test_a_standby_takes_over_and_nobody_goes_back(self) -> None:
        self.uninterrupted(1, 2)
        self.start(1, 2, "--standby")
        log: list[str] = []
        self.read_round(log)
        self.kill(2)
        figures, said = self.end_well(log, 1, 3, 4)
        self.assertEqual((figures["failovers"], figures["lost_steps"]), (1, 0), said)
        self.check_history(acknowledged=self.epochs * self.steps)
        self.check_curve_of_take_overs(said)

    def test_a_standby_that_is_lost_costs_nothing(self) -> None:
        self.uninterrupted(1, 1)
        self.start(1, 1, "--standby")
        log: list[str] = []
        self.read_round(log)
        self.kill(2)
        figures, said = self.end_well(log, 1)
        self.assertEqual(figures["failovers"], 0, said)
        self.check_history(acknowledged=self.epochs * self.steps)
        self.assertEqual(*self.curves(), said)

    def test_the_next_job_goes_on_after_a_standby_has_taken_over(self) -> None:
        self.start(1, 1, "--standby", *self.checkpoints)
        log: list[str] = []
        self.read_round(log)
        self.kill(1)
        _, said = self.end_well(log, 2)
        self.assertIn("a standby has taken over", said)
        command = [word for word in self.without_history() if word != "--standby"]
        command[command.index("--epochs") + 1] = str(self.epochs + 1)
        resumed = example_process.run([SINEW_RUN, "--nproc", "2", *command, "--resume"], 240, cwd=str(self.folder))
        self.assertEqual(resumed.status, 0, resumed.stderr)
        self.assertIn(f"Going on after epoch {self.epochs}", resumed.stderr)


class ReturnTest(JobTest):
    """Servers that were killed come back and stand by. The job goes on for as long as that takes on this machine, be it
    busy or not, and is compared with one of as many epochs."""

    steps = 40
    flags = (*SMALL, "--max-steps", "40", "--round", "4", "--json", "--dropout", "0")

    def start_endless(self, servers: int, *flags: str) -> None:
        self.start(1, servers, "--standby", "--epochs", "1000000", *flags)

    def compare_with_an_uninterrupted_job(self, servers: int, log: list[str]) -> None:
        """Ends the job, after its epoch."""
        self.read_until(log, "Epoch ")
        self.epochs = int(EPOCH.search(log[-1])[1])
        for rank in range(len(self.processes)):
            self.kill(rank)
        self.flags = (*self.flags, "--epochs", str(self.epochs))
        self.uninterrupted(1, servers)
        self.check_curve_of_take_overs("".join(log))

    def test_standbys_take_over_again_and_again(self) -> None:
        seed = random.randrange(1 << 30)
        print(f"seed {seed}", flush=True)
        draw = random.Random(seed)
        self.start_endless(2)
        log: list[str] = []
        # The server, and what stands by, of each pair.
        pairs = [[1, 3], [2, 4]]
        for _ in range(3):
            for _ in range(draw.randint(1, 3)):
                self.read_round(log)
            pair = draw.choice(pairs)
            self.kill(pair[0])
            self.read_until(log, "a standby has taken over")
            self.start_again(pair[0])
            self.read_until(log, "2 of 2 servers have a standby")
            pair.reverse()
        self.compare_with_an_uninterrupted_job(2, log)
        self.check_history()
        # Nobody has gone back: all steps were made once, but the one that was under way at the end.
        entries = history.read_file(self.folder / "history")
        self.assertEqual({entry.kind for entry in entries}, {"step"})
        made = [entry.step for entry in {entry.id: entry for entry in entries}.values()]
        self.assertEqual(len(made), len(set(made)))

    def test_without_a_standby_there_is_the_checkpoint(self) -> None:
        self.start_endless(1, *self.checkpoints)
        log: list[str] = []
        for _ in range(3):
            self.read_round(log)
        self.kill(1)
        self.read_until(log, "a standby has taken over")
        self.read_round(log)
        self.kill(2)
        self.start_again(1)
        self.read_until(log, "going on at step")
        self.start_again(2)
        self.read_until(log, "1 of 1 servers have a standby")
        self.compare_with_an_uninterrupted_job(1, log)
        self.check_history()
        self.assertEqual(sum("a standby has taken over" in line for line in log), 1)
        self.assertEqual(sum("going on at step" in line for line in log), 1)


class BibleTest(PsRnnTest):
    """Without --data, and with a program of that name that prints another text."""

    def train_without_data(self, bible: str) -> Ended:
        program = self.folder / "bin" / "bible"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{bible}\n")
        program.chmod(0o755)
        variables = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
        job = [SINEW_RUN, "--nproc", "3", PS_RNN, "--output", self.folder / "out"]
        return example_process.run([*job, *SMALL, "--epochs", "1", "--max-steps", "2"], 120, variables)

    def test_makes_a_text_of_the_verses(self) -> None:
        ended = self.train_without_data(f"sed 's/^/Gen1:1 /' {self.text}")
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertEqual((self.folder / "out" / "bible.txt").read_text(), self.text.read_text())
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()),
                         ["bible.txt", "loss_curve.csv", "loss_curve.svg"])  # fmt: skip

    def test_says_what_to_install(self) -> None:
        ended = self.train_without_data("exit 1")
        self.assertEqual(ended.status, 2, ended.stderr)
        self.assertIn("apt-get install bible-kjv", ended.stderr)


def main() -> None:
    global SINEW_RUN, PS_RNN
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    SINEW_RUN, PS_RNN = (Path(sys.argv.pop(1)).absolute() for _ in range(2))
    unittest.main()


if __name__ == "__main__":
    main()
