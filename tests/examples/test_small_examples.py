#!/usr/bin/python3
"""Runs the small examples as processes.

usage: test_small_examples.py SINEW_RUN EXAMPLES SOURCE_TREE [unittest arguments]

EXAMPLES is the folder of the built examples.
"""

from __future__ import annotations

import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "docker"))
import example_process  # noqa: E402
import ports  # noqa: E402
from lab import history  # noqa: E402

SINEW_RUN = Path()
EXAMPLES = Path()
SOURCE_TREE = Path()
STEP = re.compile(r"^Step (\d+): loss ([\d.]+), accuracy ([\d.]+)", re.MULTILINE)


class JobTest(unittest.TestCase):
    NAME = ""
    PROCESSES = 0

    def program(self) -> Path:
        return EXAMPLES / self.NAME / self.NAME

    def run_job(self, *flags: str, processes: int = 0) -> example_process.Ended:
        job = [SINEW_RUN, "--nproc", str(processes or self.PROCESSES), self.program()]
        return example_process.run([*job, *flags], 240)

    def check_mistakes(self, *mistakes: tuple[str, str], wanted: str = "--steps") -> None:
        for flag, value in (*mistakes, (wanted, "0"), (wanted, "x")):
            ended = self.run_job(flag, value)
            self.assertEqual(ended.status, 2, ended.stderr)
            self.assertIn(flag, ended.stderr)
        ended = example_process.run([self.program(), "--help"])
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertIn(wanted, ended.stdout)
        self.assertIn(f"sinew-run --nproc 4 {self.NAME}", ended.stdout)
        ended = example_process.run([self.program()])
        self.assertEqual(ended.status, 2, ended.stderr)
        self.assertIn(f"sinew-run --nproc 4 {self.NAME}", ended.stderr)
        ended = self.run_job(processes=1)
        self.assertEqual(ended.status, 2, ended.stderr)
        self.assertIn("a job of 1 processes, and it takes", ended.stderr)


class BatchPsTest(JobTest):
    NAME = "batch_ps"
    PROCESSES = 3

    def test_a_few_steps(self) -> None:
        ended = self.run_job("--steps", "150")
        self.assertEqual(ended.status, 0, ended.stderr)
        steps = STEP.findall(ended.stdout)
        self.assertEqual([step for step, _, _ in steps], ["100", "150"])
        self.assertLess(float(steps[1][1]), float(steps[0][1]), "the loss falls")

    def test_a_killed_trainer_is_not_waited_for(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = Path(folder.name) / "history"
        command = [self.program(), "--steps", "400", "--history", file]
        server, *trainers = example_process.start_by_hand([command] * 4, ports.free_port())
        for process in (server, *trainers):
            self.addCleanup(process.communicate)
            self.addCleanup(example_process.kill_group, process)
        self.assertIn("Step 100", server.stdout.readline())
        trainers[1].kill()
        ended = example_process.finish(server, 120)
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertIn("worker2", ended.stdout)
        self.assertIn("Step 400", ended.stdout)
        for trainer in (trainers[0], trainers[2]):
            self.assertEqual(example_process.finish(trainer, 60).status, 0)
        # What trainers were told of their gradients is true, also of those of the one that was killed.
        entries = history.read_file(file)
        self.assertEqual(history.check(entries), [])
        sent = {entry.id: entry for entry in entries if entry.kind == "increment"}
        for name in ("worker1", "worker3"):
            acknowledged = [one for one in sent.values() if one.worker == name and one.result == "ok"]
            self.assertEqual(len(acknowledged), 400)

    def test_mistakes(self) -> None:
        self.check_mistakes(("--batch", "-1"), ("--lr", "x"))


class InferenceServerTest(JobTest):
    NAME = "inference_server"
    PROCESSES = 3

    def test_a_few_requests(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ended = self.run_job("--requests", "100", "--batches", "1,8", "--width", "32", "--output", folder)
            self.assertEqual(ended.status, 0, ended.stderr)
            head, *lines = [line.split() for line in ended.stdout.splitlines() if not line.startswith("Wrote")]
            self.assertEqual(head[:4], ["max", "batch", "requests/s", "p50"])
            self.assertEqual([line[0] for line in lines], ["1", "8"])
            for line in lines:
                rate, p50, p90, p99, mean, refused = map(float, line[1:])
                self.assertTrue(rate > 0 and 0 < p50 <= p90 <= p99 and 1 <= mean <= float(line[0]) and refused == 0, line)
            for name in ("throughput", "latency"):
                self.assertEqual(len((Path(folder) / f"{name}.csv").read_text().splitlines()), 3)
                self.assertIn("<svg", (Path(folder) / f"{name}.svg").read_text())

    def test_more_requests_than_it_can_answer(self) -> None:
        flags = ("--requests", "400", "--batches", "4", "--max-queued", "4", "--rate", "1000000", "--width", "512")
        ended = self.run_job(*flags, "--output", "")
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertGreater(int(ended.stdout.splitlines()[-1].split()[-1]), 0, "the server says no")

    def test_mistakes(self) -> None:
        self.check_mistakes(("--batches", "1,x"), ("--rate", "-1"), wanted="--requests")


class CoroutineTest(unittest.TestCase):
    PROGRAM = Path("coroutine") / "coroutine"

    def test_every_worker_asks_all(self) -> None:
        ended = example_process.run([SINEW_RUN, "--nproc", "3", EXAMPLES / self.PROGRAM], 240)
        self.assertEqual((ended.status, ended.stderr), (0, ""))
        self.assertEqual(ended.stdout, "".join(f"The mean, says worker{rank}, is 10\n" for rank in range(3)))

    def test_the_documentation_shows_this_method(self) -> None:
        source = (SOURCE_TREE / "examples/coroutine/coroutine.cc").read_text()
        method = source[source.index("sinew::Future<double> mean_of_all() {") : source.index("}  // namespace app\n\nint main")]
        self.assertIn(method.strip(), (SOURCE_TREE / "docs/batching.md").read_text())


class StreamsTest(unittest.TestCase):
    def test_what_is_read_is_written(self) -> None:
        ended = example_process.run([SINEW_RUN, "--nproc", "2", EXAMPLES / "streams" / "streams"], 240)
        self.assertEqual((ended.status, ended.stderr), (0, ""))
        self.assertRegex(ended.stdout, r"^The mean of 1000 readings is [0-9.e-]+\n$")


class PipelineTest(JobTest):
    NAME = "pipeline"
    PROCESSES = 4

    def test_a_few_steps(self) -> None:
        ended = self.run_job("--micro-batches", "3", "--steps", "60", "--batch", "60")
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertEqual([step for step, _, _ in STEP.findall(ended.stdout)], ["50", "60"])

    def test_mistakes(self) -> None:
        self.check_mistakes(("--micro-batches", "0"), ("--micro-batches", "999"), ("--lr", "x"))


def main() -> None:
    global SINEW_RUN, EXAMPLES, SOURCE_TREE
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    SINEW_RUN, EXAMPLES, SOURCE_TREE = (Path(sys.argv.pop(1)).absolute() for _ in range(3))
    unittest.main()


if __name__ == "__main__":
    main()
