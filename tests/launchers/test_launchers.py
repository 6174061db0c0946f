#!/usr/bin/python3
"""Programs find their place under real launchers: sinew-run, torchrun, Open MPI, MPICH's Hydra and Slurm.

usage: test_launchers.py PLACE_WORKER SINEW_RUN [unittest arguments]

Prints "skipped: " and a reason where a launcher is not here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Sequence

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
import example_process  # noqa: E402
import ports  # noqa: E402
from example_process import Ended  # noqa: E402
from slurm_cluster import NODES, SlurmCluster, Unavailable  # noqa: E402

WORKER = ""
SINEW_RUN = ""

LINE = re.compile(
    r"^rank (?P<rank>\d+) of (?P<size>\d+), local (?P<local>[\d?]+) of (?P<local_size>[\d?]+), "
    r"node (?P<node>[\d?]+), at (?P<address>\S+):(?P<port>[\d?]+), called(?P<called>( \d+)*)$",
    re.MULTILINE,
)
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader"]
HYDRA = ["mpiexec.hydra"]
SRUN = ["srun", "--overcommit", "--quit-on-interrupt"]


def skip_all(reason: str) -> None:
    """Of a class, before any of its tests has run: ctest looks for it in the beginning of the output."""
    print(f"skipped: {reason}", flush=True)
    raise unittest.SkipTest(reason)


def need(program: str, package: str) -> None:
    if shutil.which(program) is None:
        skip_all(f"there is no {program}; install {package}")


class LauncherTest(unittest.TestCase):
    """Of one launcher."""

    variables: dict[str, str] = {}

    def run_command(self, command: Sequence[str], **variables: str) -> Ended:
        return example_process.run(command, 120, {**self.variables, **variables})

    def check_job(self, ended: Ended, size: int, jobs: int = 1) -> list[dict[str, str]]:
        """The places of `jobs` jobs of `size` processes each, by rank: each has called all others of its job."""
        self.assertEqual(ended.status, 0, ended)
        places = sorted((match.groupdict() for match in LINE.finditer(ended.stdout)), key=lambda at: int(at["rank"]))
        self.assertEqual([int(at["rank"]) for at in places], [r for r in range(size) for _ in range(jobs)], ended)
        for at in places:
            self.assertEqual(int(at["size"]), size)
            others = [rank for rank in range(size) if rank != int(at["rank"])]
            self.assertEqual([int(rank) for rank in at["called"].split()], others)
        meetings = {(at["address"], at["port"]) for at in places}
        self.assertEqual(len(meetings), jobs, "all processes of a job meet at one place, and jobs at different ones")
        return places

    def check_one_node(self, ended: Ended, size: int) -> None:
        places = self.check_job(ended, size)
        self.assertEqual([at["local"] for at in places], [str(rank) for rank in range(size)])
        self.assertEqual({at["local_size"] for at in places}, {str(size)})
        self.assertEqual({at["node"] for at in places}, {"0"})
        self.assertEqual({at["address"] for at in places}, {"127.0.0.1"})

    def check_refused(self, ended: Ended, *texts: str) -> None:
        self.assertNotEqual(ended.status, 0, ended)
        self.assertEqual(LINE.findall(ended.stdout), [])
        for text in texts:
            self.assertIn(text, ended.stderr + ended.stdout)


class SinewRunTest(LauncherTest):
    def test_one_node(self) -> None:
        self.check_one_node(self.run_command([SINEW_RUN, "--nproc", "3", WORKER]), 3)

    def test_started_by_hand_it_says_what_to_do(self) -> None:
        self.check_refused(self.run_command([WORKER]), "WORLD_SIZE is not set", "sinew-run")


class TorchrunTest(LauncherTest):
    @classmethod
    def setUpClass(cls) -> None:
        if importlib.util.find_spec("torch") is None:
            skip_all("there is no torch for this Python; install python3-torch")

    def torchrun(self, *flags: str) -> Ended:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--no_python", "--nproc_per_node", "3"]
        with tempfile.TemporaryDirectory() as logs:
            # The torchrun of Debian 12 takes nothing but 1 and 2 for these, not even its defaults.
            output = ["--log_dir", logs, "--redirects", "1", "--tee", "1"]
            ended = self.run_command([*torchrun, *flags, *output, WORKER])
        lines = re.sub(r"^\[default\d\]:", "", ended.stdout, flags=re.MULTILINE)
        return Ended(ended.status, lines, ended.stderr)

    def test_one_that_listens_at_the_master_port(self) -> None:
        self.check_one_node(self.torchrun("--master_port", str(ports.free_port())), 3)

    def test_one_that_does_not(self) -> None:
        self.check_job(self.torchrun("--standalone"), 3)


class OpenMpiTest(LauncherTest):
    @classmethod
    def setUpClass(cls) -> None:
        need(MPIRUN[0], "openmpi-bin")

    def test_one_node(self) -> None:
        self.check_one_node(self.run_command([*MPIRUN, "-n", "3", WORKER]), 3)

    def test_two_jobs_at_once_do_not_meet(self) -> None:
        job = " ".join([*MPIRUN, "-n", "3", WORKER])
        # Each with a folder of its own: of two that make the host's folder at once mpirun lets one fail.
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            both = f"TMPDIR={one} {job} & first=$!; TMPDIR={other} {job} && wait $first"
            self.check_job(self.run_command(["sh", "-c", both]), 3, jobs=2)

    def test_variables_of_the_user_win(self) -> None:
        port = str(ports.free_port())
        ended = self.run_command([*MPIRUN, "-x", "MASTER_ADDR=localhost", "-x", f"MASTER_PORT={port}", "-n", "2", WORKER])
        places = self.check_job(ended, 2)
        self.assertEqual((places[0]["address"], places[0]["port"]), ("localhost", port))

    def test_a_contradiction_is_refused(self) -> None:
        ended = self.run_command([*MPIRUN, "-x", "WORLD_SIZE=4", "-n", "2", WORKER])
        self.check_refused(ended, "the world size (WORLD_SIZE, or an argument) is 4", "OMPI_COMM_WORLD_SIZE is 2")

    def test_sinew_run_within_it(self) -> None:
        self.check_one_node(self.run_command([*MPIRUN, "-n", "1", SINEW_RUN, "--nproc", "3", WORKER]), 3)


class HydraTest(LauncherTest):
    @classmethod
    def setUpClass(cls) -> None:
        need(HYDRA[0], "mpich")

    def test_one_node(self) -> None:
        # The port of this launcher's jobs is always the same one, which others may have taken here.
        port = ["-genv", "MASTER_PORT", str(ports.free_port())]
        self.check_one_node(self.run_command([*HYDRA, *port, "-n", "3", WORKER]), 3)


class SlurmLauncherTest(LauncherTest):
    cluster: SlurmCluster

    @classmethod
    def setUpClass(cls) -> None:
        try:
            cls.cluster = SlurmCluster()
        except Unavailable as reason:
            skip_all(str(reason))
        cls.variables = cls.cluster.environment
        cls.addClassCleanup(cls.cluster.stop)

    def batch(self, script: str, *flags: str, **variables: str) -> Ended:
        """Runs the script of a job, and gives what that wrote."""
        path = self.cluster.folder / "job.sh"
        output = self.cluster.folder / "job.out"
        path.write_text(f"#!/bin/sh\n{script}\n")
        ended = self.run_command(["sbatch", "--wait", "--overcommit", f"--output={output}", *flags, str(path)], **variables)
        return Ended(ended.status, output.read_text() if output.exists() else "", ended.stderr)


class SlurmTest(SlurmLauncherTest):
    def test_one_node(self) -> None:
        self.check_one_node(self.run_command([*SRUN, "-w", NODES[1], "-N1", "-n3", WORKER]), 3)

    def test_three_nodes_meet_at_the_first(self) -> None:
        places = self.check_job(self.run_command([*SRUN, "-N3", "-n3", WORKER]), 3)
        self.assertEqual(places[0]["address"], NODES[0])
        self.assertEqual([at["local"] for at in places], ["0"] * 3)
        self.assertEqual([at["node"] for at in places], ["0", "1", "2"])

    def test_nodes_of_several_tasks(self) -> None:
        two_nodes = ",".join(NODES[1:])
        places = self.check_job(self.run_command([*SRUN, "-w", two_nodes, "-N2", "-n3", WORKER]), 3)
        self.assertEqual(places[0]["address"], NODES[1])
        self.assertEqual([at["local"] for at in places], ["0", "1", "0"])
        self.assertEqual([at["local_size"] for at in places], ["2", "2", "1"])
        self.assertEqual([at["node"] for at in places], ["0", "0", "1"])

    def test_variables_of_the_user_win(self) -> None:
        port = str(ports.free_port())
        meet = {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
        places = self.check_job(self.run_command([*SRUN, "-N3", "-n3", WORKER], **meet), 3)
        self.assertEqual((places[0]["address"], places[0]["port"]), ("localhost", port))

    def test_two_steps_of_a_job_at_once_do_not_meet(self) -> None:
        step = f"srun --overcommit --overlap -N1 -n3 {WORKER}"
        self.check_job(self.batch(f"{step} & {step} && wait $!", "-N1", "-n3"), 3, jobs=2)

    def test_a_script_without_srun_is_told_of_it(self) -> None:
        self.check_refused(self.batch(WORKER + " 2>&1", "-N1", "-n3"), "start the program with srun")

    def test_sinew_run_within_it(self) -> None:
        self.check_one_node(self.run_command([*SRUN, "-N1", "-n1", SINEW_RUN, "--nproc", "3", WORKER]), 3)


class SlurmMpiTest(SlurmLauncherTest):
    def plugins(self) -> str:
        ended = self.run_command(["srun", "--mpi=list"])
        return ended.stdout + ended.stderr

    def check_plugin(self, name: str) -> None:
        if name not in self.plugins().split():
            self.skipTest(f"this Slurm has no {name}")
        self.check_one_node(self.run_command([*SRUN, f"--mpi={name}", "-N1", "-n3", WORKER]), 3)

    def test_pmi2(self) -> None:
        self.check_plugin("pmi2")

    def test_pmix(self) -> None:
        self.check_plugin("pmix")

    def need_mpirun(self) -> None:
        if shutil.which(MPIRUN[0]) is None:
            self.skipTest(f"there is no {MPIRUN[0]}")

    def test_mpirun_in_a_script(self) -> None:
        self.need_mpirun()
        self.check_one_node(self.batch(" ".join([*MPIRUN, "-n", "3", WORKER]), "-N1", "-n3"), 3)

    def test_mpirun_in_a_step(self) -> None:
        self.need_mpirun()
        # Without its ssh or srun to other nodes.
        alone = ["--mca", "plm", "isolated", "--mca", "ras", "^slurm"]
        self.check_one_node(self.run_command([*SRUN, "-N1", "-n1", *MPIRUN, *alone, "-n", "3", WORKER]), 3)


def main() -> None:
    global WORKER, SINEW_RUN
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    WORKER, SINEW_RUN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()


if __name__ == "__main__":
    main()
