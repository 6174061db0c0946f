#!/usr/bin/python3
"""Runs the language model's trainers and servers as processes, for a few steps.

usage: test_ps_rnn.py SINEW_RUN PS_RNN [unittest arguments]
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import example_process  # noqa: E402
import ports  # noqa: E402
from example_process import Ended  # noqa: E402

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

    def test_a_killed_server_is_named(self) -> None:
        command = [
            PS_RNN, "--data", self.text, "--output", "", *SMALL, "--epochs", "100000", "--round", "2",
        ]  # fmt: skip
        trainer, server = example_process.start_by_hand([command, command], ports.free_port())
        for process in (trainer, server):
            self.addCleanup(process.communicate)
            self.addCleanup(example_process.kill_group, process)
        for _ in range(4):
            self.assertTrue(trainer.stdout.readline())
        server.kill()
        _, stderr = trainer.communicate(timeout=60)
        self.assertEqual(trainer.returncode, 3, stderr)
        self.assertIn("server0", stderr)


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
