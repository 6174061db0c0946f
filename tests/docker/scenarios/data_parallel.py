"""A process group over three hosts, one of which loses its power."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lab.hosts import Lab
from scenarios.scenario import LONG_S, FixedJob, Result, Scenario, Stopwatch, check

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
from image_files import write_mnist  # noqa: E402

EPOCH = re.compile(r"^Epoch (\d+): train loss [\d.]+, test loss [\d.]+, top-1 ([\d.]+)")
STEP = "^Epoch .* step "
# Ranks of a group notice at once that a connection has ended; of one that is silent they learn from its time limit.
SECONDS = 60.0


def rank_killed(lab: Lab) -> Result:
    """The group fails, since it cannot go on without a rank. All are started again, and go on from the checkpoint: the
    curve is that of a training without faults."""
    data = lab.folder / "pictures"
    write_mnist(data, train=600, test=60)
    hosts = [lab.add_host(f"rank{rank}") for rank in range(3)]
    flags = (
        "--mode", "ddp", "--data", str(data), "--width", "4", "--stem", "imagenet", "--batch", "20", "--epochs", "3",
        "--round", "1", "--threads", "1",
    )  # fmt: skip

    def start(*more: str) -> FixedJob:
        return FixedJob(hosts, [["image_classifier", *flags, *more]] * 3).start_all()

    whole = start("--output", "whole")
    check(whole[0].wait(LONG_S) == 0, f"rank 0 ended with {whole[0].status}: {whole[0].lines[-5:]}")

    parts = ("--output", "parts", "--checkpoint", "saved", "--checkpoint-rounds", "1", "--resume")
    job = start(*parts)
    job[0].expect("^Epoch 1: ", LONG_S)
    job[0].expect(STEP, LONG_S)
    with Stopwatch() as failure:
        job[2].kill()
        statuses = [job[rank].wait(LONG_S) for rank in (0, 1)]
    check(all(status not in (0, 137) for status in statuses), f"ranks that cannot go on ended with {statuses}")
    check(failure.seconds < SECONDS, f"the group has failed after {failure.seconds:.0f} s")
    with Stopwatch() as recovery:
        job = start(*parts)
        job[0].expect(STEP, LONG_S)
    check(job[0].wait(LONG_S) == 0, f"rank 0 ended with {job[0].status}: {job[0].lines[-5:]}")
    first = next(line for line in job[0].lines if re.search(STEP, line))
    check(not first.startswith("Epoch 1, "), f"it has begun anew: {first}")
    curves = [(hosts[0].folder / output / "training_curve.csv").read_text() for output in ("whole", "parts")]
    check(curves[0] == curves[1], f"another curve than without faults:\n{curves[0]}\n{curves[1]}")
    return Result(recovery.seconds, f"the group failed within {failure.seconds:.1f} s")


SCENARIOS = [Scenario("ddp_rank_killed", rank_killed, quick=False)]
