#!/usr/bin/python3
"""Runs the examples whose processes are ranks of a process group.

usage: test_data_parallel.py EXAMPLES SINEW_RUN [unittest arguments]

EXAMPLES is the folder of the built examples.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import example_process  # noqa: E402
import image_files  # noqa: E402
import ports  # noqa: E402
from example_process import Ended  # noqa: E402

EXAMPLES = Path()
SINEW_RUN = Path()


class RanksTest(unittest.TestCase):
    """`program` is one of the examples; its data and output lie in a folder of their own."""

    program = ""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def path(self) -> Path:
        return EXAMPLES / self.program / self.program

    def run_it(self, *flags: str, timeout_s: float = 240) -> Ended:
        return example_process.run([self.path(), *flags], timeout_s, cwd=str(self.folder))

    def run_well(self, *flags: str, timeout_s: float = 240) -> str:
        ended = self.run_it(*flags, timeout_s=timeout_s)
        self.assertEqual((ended.status, ended.stderr), (0, ""), ended.stdout)
        return ended.stdout

    def launch(self, ranks: int, *flags: str) -> Ended:
        """By sinew-run."""
        return example_process.run(
            [SINEW_RUN, "--nproc", str(ranks), self.path(), *flags], 240, cwd=str(self.folder)
        )

    def run_in_slurm(self, ranks: int, *flags: str) -> list[Ended]:
        """What Slurm would start: each process with the variables of its task, and nothing else."""
        tasks = []
        for rank in range(ranks):
            variables = {
                "SLURM_JOB_ID": str(os.getpid()),
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": str(rank),
                "SLURM_NTASKS": str(ranks),
                "SLURM_LOCALID": str(rank),
                "SLURM_NODEID": "0",
                "SLURM_STEP_NUM_NODES": "1",
                "SLURM_NNODES": "1",
                "SLURM_STEP_NODELIST": "n1",
                "SLURM_STEP_TASKS_PER_NODE": str(ranks),
                "MASTER_PORT": self.slurm_port(),
            }
            tasks.append(example_process.start([self.path(), *flags], variables, cwd=str(self.folder)))
        return [example_process.finish(task, 240) for task in tasks]

    def slurm_port(self) -> str:
        if not hasattr(self, "_port"):
            self._port = str(ports.free_port())
        return self._port

    def check_mistakes(self, *mistakes: tuple[tuple[str, ...], str]) -> None:
        """The flags, and what the answer names."""
        for flags, named in mistakes:
            ended = self.run_it(*flags, timeout_s=60)
            self.assertEqual((ended.status, ended.stdout), (2, ""), ended.stderr)
            self.assertIn(named, ended.stderr)
            self.assertIn("--help", ended.stderr)

    def init_lines(self, ranks: int) -> list[str]:
        """What all ranks of one host say at their start, sorted."""
        return [f"[init] == local rank: {rank}, global rank: {rank} ==" for rank in range(ranks)]

    def check_no_gpu(self, *commands: list[str | Path]) -> None:
        """Where there is no GPU, or none that it sees, one sentence says so."""
        for command in commands:
            ended = example_process.run([*command, "--device", "cuda"], 240, {"CUDA_VISIBLE_DEVICES": ""}, str(self.folder))
            self.assertEqual((ended.status, ended.stdout), (3, ""), ended.stderr)
            self.assertIn(f"{self.program}: --device cuda needs a GPU and a LibTorch with CUDA", ended.stderr)

    def check_picture(self, name: str) -> list[list[str]]:
        """The curve's table without its heading; the picture is one."""
        picture = ElementTree.parse(self.folder / f"{name}.svg").getroot()
        self.assertTrue(picture.tag.endswith("svg"))
        lines = (self.folder / f"{name}.csv").read_text().splitlines()
        return [line.split(",") for line in lines[1:]]


class BasicsTest(RanksTest):
    program = "basics"

    def lines(self, *flags: str, ranks: int = 2) -> list[str]:
        return self.after_init(self.run_well(*flags), ranks)

    def after_init(self, out: str, ranks: int) -> list[str]:
        """What comes beside the lines that say who is there, sorted."""
        lines = sorted(out.splitlines())
        is_init = lambda line: line.startswith("[init]")  # noqa: E731
        self.assertEqual([line for line in lines if is_init(line)], self.init_lines(ranks))
        return [line for line in lines if not is_init(line)]

    def has_data(self, *values: str) -> list[str]:
        return [f"Rank  {rank}  has data  tensor({value})" for rank, value in enumerate(values)]

    def test_blocking(self) -> None:
        self.assertEqual(self.lines("blocking"), self.has_data("1.", "1."))

    def test_non_blocking(self) -> None:
        started = ["Rank 0 started sending", "Rank 1 started receiving"]
        self.assertEqual(self.lines("non-blocking"), sorted(self.has_data("1.", "1.") + started))

    def test_collectives(self) -> None:
        lines = self.lines("collectives", "--nproc", "3", ranks=3)
        data = {}
        for line in lines:
            operation, rank, numbers = re.fullmatch(
                r"(\S+(?: \w+)?): Rank  (\d)  has data  (.*)", line
            ).groups()
            data.setdefault(operation, {})[int(rank)] = [
                float(number) for number in re.findall(r"tensor\(([\d.]+)\)", numbers)
            ]
        everywhere = lambda *numbers: {rank: list(numbers) for rank in range(3)}  # noqa: E731
        self.assertEqual(
            data,
            {
                "broadcast": everywhere(1),
                "reduce": {0: [6]},
                "all_reduce sum": everywhere(6),
                "all_reduce product": everywhere(6),
                "all_reduce min": everywhere(1),
                "all_reduce max": everywhere(3),
                "all_reduce average": everywhere(2),
                "reduce_scatter": {0: [60], 1: [63], 2: [66]},
                "scatter": {0: [10], 1: [11], 2: [12]},
                "gather": {0: [1, 2, 3]},
                "all_gather": everywhere(1, 2, 3),
                "all_to_all": {0: [10, 20, 30], 1: [11, 21, 31], 2: [12, 22, 32]},
            },
        )

    def test_subgroup(self) -> None:
        self.assertEqual(self.lines("subgroup", "--nproc", "3", ranks=3), self.has_data("2.", "2.", "1."))

    def test_three_ways_to_meet(self) -> None:
        port = ports.free_port()
        lines = self.lines("init", "--port", str(port), "--file", str(self.folder / "meet"))
        methods = ("env://", f"file://{self.folder}/meet", f"tcp://127.0.0.1:{port}")
        self.assertEqual(
            lines, [f"{method}: {line}" for method in methods for line in self.has_data("2.", "2.")]
        )

    def test_ring(self) -> None:
        *ranks, times = self.lines("ring", "--nproc", "3", "--bytes", "40000", ranks=3)[::-1]
        self.assertEqual(ranks[::-1], self.has_data("6.", "6.", "6."))
        number = r"\d+\.\d{3} ms"
        self.assertRegex(
            times,
            rf"^40000 bytes: all_reduce {number}, ring of whole tensors {number}, ring of chunks {number}$",
        )

    def test_a_failure_of_a_spawned_process(self) -> None:
        lines = self.run_well("spawn-failure").splitlines()
        self.assertIn("Rank 1 exited with code 1", lines)
        self.assertIn("this rank does not want to", "\n".join(lines))

    def test_sinew_run_starts_the_ranks(self) -> None:
        ended = self.launch(2, "blocking")
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertEqual(self.after_init(ended.stdout, 2), self.has_data("1.", "1."))

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun: apt-get install openmpi-bin")
    def test_mpirun_starts_the_ranks(self) -> None:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl_tcp_if_include", "lo"]
        command += ["--mca", "oob_tcp_if_include", "lo", "-n", "2", self.path(), "blocking"]
        ended = example_process.run(command, 120, cwd=str(self.folder))
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertEqual(self.after_init(ended.stdout, 2), self.has_data("1.", "1."))

    def test_mistakes(self) -> None:
        self.check_mistakes(
            ((), "concept"),
            (("blocking", "--nproc", "-1"), "--nproc"),
            (("ring", "--bytes", "x"), "--bytes"),
            (("juggling",), "juggling"),
        )
        ended = self.launch(2, "blocking", "--nproc", "2")
        self.assertEqual(ended.status, 2)
        self.assertIn("--nproc", ended.stderr)
        half = example_process.run([self.path(), "blocking"], 60, {"RANK": "0"})
        self.assertEqual(half.status, 3)
        self.assertIn("WORLD_SIZE", half.stderr)


class MnistSgdTest(RanksTest):
    program = "mnist_sgd"
    LOSS = re.compile(r"^Rank  (\d+) , epoch  (\d+) :  ([\d.e-]+)$", re.MULTILINE)
    ACCURACY = re.compile(r"^Epoch (\d+): test accuracy ([\d.]+), \d+ samples/s$", re.MULTILINE)

    def setUp(self) -> None:
        super().setUp()
        image_files.write_mnist(self.folder / "mnist", 1200, 200)

    def train(self, *flags: str) -> str:
        return self.run_well("--batch", "40", "--lr", "0.05", "--output", ".", *flags)

    def test_ranks_learn_together(self) -> None:
        out = self.train("--nproc", "2", "--epochs", "6")
        self.assertEqual(sorted(line for line in out.splitlines() if line.startswith("[init]")), self.init_lines(2))
        losses = {(int(rank), int(epoch)): float(loss) for rank, epoch, loss in self.LOSS.findall(out)}
        self.assertEqual(set(losses), {(rank, epoch) for rank in range(2) for epoch in range(6)})
        self.assertLess(losses[0, 5], losses[0, 0] / 2)
        self.assertNotEqual(losses[0, 5], losses[1, 5], "they see other pictures")
        accuracy = [float(share) for _, share in self.ACCURACY.findall(out)]
        self.assertEqual(len(accuracy), 6)
        self.assertGreater(accuracy[-1], 0.9, out)
        table = self.check_picture("training_curve")
        self.assertEqual([row[0] for row in table], [str(epoch) for epoch in range(1, 7)])
        self.assertAlmostEqual(float(table[5][1]), (losses[0, 5] + losses[1, 5]) / 2, delta=1e-9)
        self.assertAlmostEqual(float(table[5][2]), accuracy[-1], delta=1e-4)

        alone = self.train("--epochs", "6")
        self.assertEqual([rank for rank, _, _ in self.LOSS.findall(alone)], ["0"] * 6)
        self.assertAlmostEqual(float(self.ACCURACY.findall(alone)[-1][1]), accuracy[-1], delta=0.08)

    def test_it_does_not_matter_who_starts_the_ranks(self) -> None:
        flags = ("--batch", "40", "--epochs", "1", "--max-steps", "5", "--output", "", "--threads", "1")
        spawned = sorted(self.LOSS.findall(self.run_well("--nproc", "2", *flags)))
        launched = self.launch(2, *flags)
        self.assertEqual(launched.status, 0, launched.stderr)
        self.assertEqual(sorted(self.LOSS.findall(launched.stdout)), spawned)
        tasks = self.run_in_slurm(2, *flags)
        self.assertEqual([task.status for task in tasks], [0, 0], tasks)
        self.assertEqual(sorted(self.LOSS.findall("".join(task.stdout for task in tasks))), spawned)

    def test_devices(self) -> None:
        flags = ("--epochs", "1", "--max-steps", "5", "--nproc", "2", "--threads", "1")
        self.assertEqual(
            sorted(self.LOSS.findall(self.train(*flags, "--device", "cpu"))), sorted(self.LOSS.findall(self.train(*flags)))
        )
        self.check_no_gpu([self.path()], [self.path(), "--nproc", "2"])
        self.check_mistakes((("--device", "tpu"), "--device"))

    def test_mistakes(self) -> None:
        self.check_mistakes(
            (("--epochs", "0"), "--epochs"),
            (("--momentum", "2"), "--momentum"),
            (("--nonsense",), "--nonsense"),
        )

    def test_data_that_is_none(self) -> None:
        for flags, status, named in (
            (("--data", "/nowhere"), 3, "/nowhere"),
            (("--nproc", "2", "--batch", "1"), 2, "--batch 1"),
        ):
            ended = self.run_it("--output", "", *flags, timeout_s=120)
            self.assertEqual(ended.status, status, ended.stderr)
            self.assertIn(named, ended.stderr)
        with open(self.folder / "mnist" / "t10k-labels-idx1-ubyte", "r+b") as labels:
            labels.truncate(20)
        ended = self.run_it("--output", "")
        self.assertEqual(ended.status, 3, ended.stderr)
        self.assertIn("t10k-labels-idx1-ubyte", ended.stderr)


class ImageClassifierTest(RanksTest):
    program = "image_classifier"
    EPOCH = re.compile(
        r"^Epoch (\d+): train loss ([\d.]+), test loss [\d.]+, top-1 ([\d.]+), top-5 ([\d.]+), \d+ samples/s$",
        re.MULTILINE,
    )
    SMALL = ("--width", "4", "--batch", "20", "--round", "3", "--threads", "1")

    def setUp(self) -> None:
        super().setUp()
        image_files.write_mnist(self.folder / "mnist", 480, 101)

    def table(self, folder: str) -> str:
        return (self.folder / folder / "training_curve.csv").read_text()

    def test_ranks_learn_together(self) -> None:
        out = self.run_well(
            *self.SMALL, "--nproc", "2", "--epochs", "5", "--lr", "0.5", "--output", "."
        )
        epochs = self.EPOCH.findall(out)
        self.assertEqual([epoch for epoch, *_ in epochs], ["1", "2", "3", "4", "5"])
        self.assertGreater(float(epochs[-1][2]), 0.8, out)
        self.assertGreaterEqual(float(epochs[-1][3]), float(epochs[-1][2]))
        self.assertIn("Epoch 1, step 3 of 12: loss ", out)
        for rank in range(2):
            self.assertIn(f"[init] == local rank: {rank}, global rank: {rank} ==\n", out)
        self.assertRegex(out, r"(?m)^Epoch 5, step 12 of 12: .* samples/s, 0 s left$")
        table = self.check_picture("training_curve")
        self.assertEqual(len([row for row in table if row[4]]), 5, "a point for each epoch")
        self.assertEqual(len([row for row in table if row[1]]), 5 * 4, "and for each round")

    def test_a_resumed_run_is_the_uninterrupted_one(self) -> None:
        flags = (*self.SMALL, "--nproc", "2", "--epochs", "3")
        self.run_well(*flags, "--output", "whole")
        flags += ("--output", "parts", "--checkpoint", "saved", "--checkpoint-rounds", "1", "--resume")
        process = example_process.start([self.path(), *flags], cwd=str(self.folder))
        self.addCleanup(example_process.kill_group, process)
        # In the middle of the second epoch.
        seen = ""
        while "Epoch 2, step 6 of 12" not in seen:
            line = process.stdout.readline()
            self.assertTrue(line, seen)
            seen += line
        example_process.kill_group(process)
        process.communicate()
        out = self.run_well(*flags)
        self.assertRegex(out, r"(?m)^Going on after epoch 1, round [12]$")
        self.assertEqual(self.table("whole"), self.table("parts"))
        again = self.run_well(*flags)
        self.assertIn("There is nothing left to train", again)

    def test_a_checkpoint_that_does_not_fit(self) -> None:
        flags = (*self.SMALL, "--epochs", "1", "--max-steps", "3", "--output", "", "--checkpoint", "saved")
        self.run_well(*flags)
        ended = self.run_it(*flags, "--resume", "--lr", "0.3")
        self.assertEqual(ended.status, 3)
        self.assertIn("'lr: 0.1', and now it is 'lr: 0.3'", ended.stderr)
        file = self.folder / "saved" / "latest.pt"
        whole = file.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", b"nonsense" * 100):
            file.write_bytes(damaged)
            ended = self.run_it(*flags, "--resume")
            self.assertEqual(ended.status, 3, ended.stderr)
            self.assertIn("saved/latest.pt", ended.stderr)
            self.assertLess(len(ended.stderr.splitlines()), 3, ended.stderr)

    def test_flags_in_a_file(self) -> None:
        (self.folder / "small.yaml").write_text("width: 4\nbatch: 20\nmax-steps: 2\nepochs: 3\noutput: from-file\n")
        out = self.run_well("--config", "small.yaml", "--epochs", "1")
        self.assertEqual(len(self.EPOCH.findall(out)), 1)
        self.assertTrue((self.folder / "from-file" / "training_curve.svg").exists())
        (self.folder / "wrong.yaml").write_text("width: 4\nepoch: 3\n")
        self.check_mistakes((("--config", "wrong.yaml"), "did you mean 'epochs'?"))

    def test_it_does_not_matter_who_starts_the_ranks(self) -> None:
        flags = (*self.SMALL, "--epochs", "1", "--max-steps", "4")
        self.run_well(*flags, "--nproc", "2", "--output", "spawned")
        ended = self.launch(2, *flags, "--mode", "ddp", "--output", "launched")
        self.assertEqual(ended.status, 0, ended.stderr)
        tasks = self.run_in_slurm(2, *flags, "--output", "slurm")
        self.assertEqual([task.status for task in tasks], [0, 0], tasks)
        self.assertEqual(self.table("launched"), self.table("spawned"))
        self.assertEqual(self.table("slurm"), self.table("spawned"))

    def test_modes(self) -> None:
        flags = (*self.SMALL, "--epochs", "1", "--max-steps", "2")
        self.run_well(*flags, "--mode", "single", "--output", "single")
        self.run_well(*flags, "--mode", "ddp", "--output", "ddp")
        self.assertEqual(self.table("single"), self.table("ddp"))
        for more, status, named in (
            (("--mode", "dp"), 3, "several GPUs"),
            (("--mode", "single", "--nproc", "2"), 2, "one process"),
        ):
            ended = self.run_it(*flags, *more)
            self.assertEqual(ended.status, status, ended.stderr)
            self.assertIn(named, ended.stderr)

    def test_a_folder_of_pictures(self) -> None:
        image_files.write_image_folder(self.folder / "pictures", classes=3, train=8, val=3)
        flags = ("--data", "imagefolder:pictures", "--image-size", "32", "--width", "4", "--batch", "4", "--threads", "1")
        flags += ("--epochs", "2", "--lr-schedule", "steps:1:0.5", "--topk", "1,2", "--accumulate", "2", "--nproc", "2")
        tables = []
        for workers in ("0", "3"):
            ended = self.run_it(*flags, "--workers", workers, "--output", f"workers{workers}")
            if ended.status == 3 and "built without" in ended.stderr:
                self.skipTest(ended.stderr)
            self.assertEqual((ended.status, ended.stderr), (0, ""), ended.stdout)
            self.assertRegex(ended.stdout, r"(?m)^Epoch 2: train loss .*, top-1 [\d.]+, top-2 [\d.]+, \d+ samples/s$")
            tables.append(self.table(f"workers{workers}"))
        self.assertEqual(tables[0], tables[1])
        broken = self.folder / "pictures" / "train" / "b" / "3.png"
        broken.write_bytes(broken.read_bytes()[:60])
        # A single rank, whose one step takes all pictures.
        flags = tuple("12" if flag == "4" and before == "--batch" else flag for before, flag in zip(("", *flags), flags))
        ended = self.run_it(*flags[:-2], "--workers", "2", "--output", "")
        self.assertEqual(ended.status, 3, ended.stderr)
        self.assertIn("train/b/3.png", ended.stderr)

    def test_evaluation(self) -> None:
        flags = (*self.SMALL, "--epochs", "1", "--output", "", "--checkpoint", "saved", "--resume")
        trained = self.EPOCH.findall(self.run_well(*flags))[0]
        out = self.run_well(*flags, "--evaluate")
        self.assertRegex(out, rf"(?m)^Evaluation: loss [\d.]+, top-1 {trained[2]}, top-5 {trained[3]}, 101 pictures$")
        ended = self.run_it(*self.SMALL, "--weights", "nowhere.pt", "--evaluate", "--output", "")
        self.assertEqual(ended.status, 3, ended.stderr)
        self.assertIn("nowhere.pt", ended.stderr)

    def test_noise(self) -> None:
        flags = ("--dummy-input", "40", "--image-size", "32", "--width", "4", "--batch", "4", "--threads", "1", "--zero")
        out = self.run_well(*flags, "--epochs", "1", "--nproc", "2", "--model", "botnet50", "--deterministic",
                            "--sync-batch-norm", "--checkpoint-activations", "--output", "")  # fmt: skip
        self.assertEqual(len(self.EPOCH.findall(out)), 1)
        self.assertRegex(out, r"(?m)^Optimizer state: rank 0 [\d.]+ MiB, rank 1 [\d.]+ MiB, of [\d.]+ MiB$")

    def test_mistakes(self) -> None:
        self.check_mistakes(
            (("--mode", "triple"), "--mode"),
            (("--resume",), "--checkpoint"),
            (("--warmup-epochs", "9"), "--warmup-epochs"),
            (("--config", "/nowhere.yaml"), "/nowhere.yaml"),
            (("--model", "resnet19"), "--model"),
            (("--lr-schedule", "steps:3,2"), "'steps:3,2'"),
            (("--topk", "5,1"), "--topk"),
            (("--reset-head",), "--weights"),
            (("--evaluate",), "--weights"),
            (("--mode", "dp", "--sync-batch-norm"), "--sync-batch-norm"),
        )
        ended = self.run_it("--batch", "1000", "--output", "")
        self.assertEqual(ended.status, 2, ended.stderr)
        self.assertIn("--batch 1000", ended.stderr)


class DdpRpcTest(RanksTest):
    program = "ddp_rpc"
    STEP = re.compile(r"^Step (\d+): loss ([\d.]+), accuracy ([\d.]+)$", re.MULTILINE)

    def test_trainers_do_what_one_process_does(self) -> None:
        flags = ("--steps", "120", "--round", "40", "--output")
        for trainers in (2, 3):
            ended = self.launch(2 + trainers, *flags, "together")
            self.assertEqual((ended.status, ended.stderr), (0, ""), ended.stdout)
            said = sorted(line for line in ended.stdout.splitlines() if line.startswith("[init]"))
            self.assertEqual(said, self.init_lines(2 + trainers))
            together = self.STEP.findall(ended.stdout)
            self.assertEqual([step for step, _, _ in together], ["40", "80", "120"])
            self.assertLess(float(together[-1][1]), float(together[0][1]) / 1.5)
            self.run_well("--local", "--trainers", str(trainers), *flags, "alone")
            curves = [self.check_picture(f"{name}/loss_curve") for name in ("together", "alone")]
            self.assertEqual(len(curves[0]), 3)
            for row, alone in zip(*curves, strict=True):
                self.assertEqual(row[0], alone[0])
                self.assertAlmostEqual(float(row[1]), float(alone[1]), delta=1e-5)
                # A bag whose scores are that close may go either way.
                self.assertAlmostEqual(float(row[2]), float(alone[2]), delta=1e-3)

    def test_a_killed_trainer_ends_the_job(self) -> None:
        process = example_process.start(
            [SINEW_RUN, "--nproc", "4", self.path(), "--steps", "1000000", "--round", "1", "--output", ""]
        )
        self.addCleanup(example_process.kill_group, process)
        while not process.stdout.readline().startswith("Step 3:"):
            self.assertIsNone(process.poll())
        os.kill(self.trainer_of(process), signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("SIGKILL", stderr)

    def test_devices(self) -> None:
        flags = ("--steps", "20", "--round", "10", "--output", "")
        for start in (self.run_well, lambda *words: self.launch(3, *words).stdout):
            here = ("--local",) if start == self.run_well else ()
            without = self.STEP.findall(start(*here, *flags))
            self.assertEqual(len(without), 2)
            self.assertEqual(self.STEP.findall(start(*here, *flags, "--device", "cpu")), without)
        self.check_no_gpu([self.path(), "--local"], [SINEW_RUN, "--nproc", "3", self.path()])

    def trainer_of(self, process) -> int:
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == process.pid:
                    variables = (entry / "environ").read_bytes().split(b"\0")
                    if (entry / "comm").read_text() == "ddp_rpc\n" and b"RANK=1" in variables:
                        return int(entry.name)
            except (FileNotFoundError, ProcessLookupError):
                pass
        self.fail("there is no trainer")

    def test_mistakes(self) -> None:
        self.check_mistakes(
            (("--local", "--trainers", "0"), "--trainers"), (("--trainers", "2"), "--local"), (("--lr", "x"), "--lr")
        )
        alone = self.run_it("--steps", "1")
        self.assertEqual(alone.status, 2)
        self.assertIn("sinew-run --nproc 4 ddp_rpc", alone.stderr)


def main() -> None:
    global EXAMPLES, SINEW_RUN
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    EXAMPLES = Path(sys.argv.pop(1)).absolute()
    SINEW_RUN = Path(sys.argv.pop(1)).absolute()
    unittest.main()


if __name__ == "__main__":
    main()
