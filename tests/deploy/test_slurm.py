#!/usr/bin/python3
"""The scripts of deploy/slurm under a Slurm of this machine.

usage: test_slurm.py EXAMPLES [unittest arguments]     EXAMPLES is the folder of the built examples

Prints "skipped: " and a reason where there can be no Slurm.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("support", "examples", "launchers")]
import example_process  # noqa: E402
import image_files  # noqa: E402
from slurm_cluster import SlurmCluster, Unavailable  # noqa: E402

EXAMPLES = Path()
SCRIPTS = TESTS.parent / "deploy" / "slurm"
LIMIT_S = 400


class SlurmScriptsTest(unittest.TestCase):
    cluster: SlurmCluster

    @classmethod
    def setUpClass(cls) -> None:
        try:
            cls.cluster = SlurmCluster()
        except Unavailable as reason:
            print(f"skipped: {reason}", flush=True)
            raise unittest.SkipTest(str(reason)) from None
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def submit(self, script: str, program: str, *flags: str, **variables: str) -> tuple[int, str]:
        """The status of the job, and its log. Its nodes are this machine three times: they share its cores."""
        path = f"{EXAMPLES / program}:{os.environ['PATH']}"
        ended = example_process.run(
            ["sbatch", "--wait", "--overcommit", "--cpus-per-task=1", str(SCRIPTS / script), *flags],
            LIMIT_S,
            {**self.cluster.environment, "PATH": path, "MAX_RESTARTS": "0", **variables},
            cwd=str(self.folder),
        )
        self.assertIn("Submitted batch job", ended.stdout, ended)
        return ended.status, "".join(log.read_text() for log in self.folder.glob("*.log"))

    def write_text(self) -> Path:
        text = self.folder / "text.txt"
        chance = random.Random(1)
        words = [f"word{number}" for number in range(40)]
        text.write_text("\n".join(" ".join(chance.choices(words, k=12)) for _ in range(400)))
        return text

    def train_rnn(self, epochs: int) -> tuple[int, str]:
        sizes = ["--ntoken", "50", "--ninp", "8", "--nhid", "8", "--batch", "4", "--epochs", str(epochs)]
        return self.submit("ps-rnn.sbatch", "ps_rnn", "--data", str(self.write_text()), *sizes)

    def test_ps_rnn_on_three_nodes_trains_and_resumes(self) -> None:
        status, log = self.train_rnn(epochs=1)
        self.assertEqual(status, 0, log)
        self.assertIn("Epoch 1:", log)
        self.assertTrue((self.folder / "ps-rnn-checkpoint" / "latest").exists())
        status, log = self.train_rnn(epochs=2)
        self.assertEqual(status, 0, log)
        self.assertIn("Going on after epoch 1", log)
        self.assertIn("Epoch 2:", log)

    def test_ddp_on_two_nodes_trains_and_resumes(self) -> None:
        image_files.write_mnist(self.folder / "mnist", train=64, test=32)
        flags = ["--data", str(self.folder / "mnist"), "--batch", "8", "--epochs", "1"]
        for _ in range(2):
            status, log = self.submit("ddp.sbatch", "image_classifier", *flags)
            self.assertEqual(status, 0, log)
        self.assertEqual(log.count("Epoch 1: train loss"), 1, "the second one found it done")

    def test_a_mistake_in_the_flags_is_told_and_not_tried_again(self) -> None:
        status, log = self.submit("ddp.sbatch", "image_classifier", "--epoch-count", "3", MAX_RESTARTS="3")
        self.assertEqual(status, 2, log)
        self.assertIn("--epoch-count", log)
        self.assertNotIn("queued again", log)


def main() -> None:
    global EXAMPLES
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    EXAMPLES = Path(sys.argv.pop(1)).resolve()
    unittest.main()


if __name__ == "__main__":
    main()
