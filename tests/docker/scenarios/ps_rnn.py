"""Parameter servers and trainers of a language model: who is killed, and what the training comes to."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any, Sequence

from lab.hosts import Host, Lab
from lab.program import Program
from scenarios.scenario import LONG_S, FixedJob, Result, Scenario, Stopwatch, check

SMALL = ("--ninp", "64", "--nhid", "128", "--batch", "10", "--bptt", "12", "--round", "2", "--json")
CHECKPOINTS = ("--checkpoint", "checkpoint", "--checkpoint-rounds", "2")
ROUND = "train perplexity"


def write_text(folder: Path) -> Path:
    """Each word says which few may follow, so a memory of one word is worth much."""
    draw = random.Random(5)
    word = 0
    lines = []
    for _ in range(1500):
        line = []
        for _ in range(8):
            word = (word * 7 + draw.choice((1, 2, 3))) % 40
            line.append(f"w{word}")
        lines.append(" ".join(line))
    text = folder / "text"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return text


def add_hosts(lab: Lab, trainers: int, servers: int) -> list[Host]:
    names = [f"trainer{rank}" for rank in range(trainers)] + [f"server{rank}" for rank in range(servers)]
    return [lab.add_host(name) for name in names]


def ps_job(lab: Lab, hosts: Sequence[Host], servers: int, output: str, *flags: str) -> FixedJob:
    """A folder of the lab's is what all processes keep checkpoints in, each its own part."""
    text = write_text(lab.folder)
    command = ["ps_rnn", "--data", str(text), "--output", output, "--servers", str(servers), *SMALL, *flags]
    return FixedJob(hosts, [command] * len(hosts))


def figures(program: Program) -> dict[str, Any]:
    """What the first trainer says at the end."""
    status = program.wait(LONG_S)
    check(status == 0, f"the first trainer ended with {status}: {program.lines[-5:]}")
    (line,) = [line for line in program.lines if line.startswith("{")]
    return dict(json.loads(line))


def unigram(program: Program) -> float:
    (found,) = [match for line in program.lines if (match := re.search(r"Unigram model: valid perplexity ([\d.]+)", line))]
    return float(found[1])


def wait_for_the_others(job: FixedJob) -> None:
    for rank, program in job.programs.items():
        if rank != 0:
            check(program.wait(LONG_S) == 0, f"rank {rank} ended with {program.status}: {program.lines[-3:]}")


def server_killed(lab: Lab) -> Result:
    """Three times, at any moment; it is started again and goes on from its checkpoint. No step is lost and none is there
    twice: losses and perplexity are those of a training without faults, to the last digit."""
    flags = ("--epochs", "4", "--max-steps", "60")
    hosts = add_hosts(lab, trainers=1, servers=1)
    whole = ps_job(lab, hosts, 1, "whole", *flags).start_all()
    expected = figures(whole[0])
    wait_for_the_others(whole)

    draw = random.Random(7)
    job = ps_job(lab, hosts, 1, "parts", *flags, *CHECKPOINTS).start_all()
    slowest_s = 0.0
    for _ in range(3):
        for _ in range(draw.randint(1, 4)):
            job[0].expect(ROUND, LONG_S)
        with Stopwatch() as recovery:
            job[1].kill()
            job.start(1)
            job[0].expect("going on at step", LONG_S)
        slowest_s = max(slowest_s, recovery.seconds)
    got = figures(job[0])
    wait_for_the_others(job)
    curves = [(hosts[0].folder / output / "loss_curve.csv").read_text() for output in ("whole", "parts")]
    check(curves[0] == curves[1], "another loss curve than without faults")
    check(got["valid_perplexity"] == expected["valid_perplexity"], f"{got} instead of {expected}")
    check(got["words"] == expected["words"], f"{got['words']} words instead of {expected['words']}")
    return Result(slowest_s, "three kills, same losses to the last digit")


def two_servers(lab: Lab) -> Result:
    job = ps_job(lab, add_hosts(lab, 2, 2), 2, "out", "--epochs", "3", "--lr", "0.01", "--dropout", "0").start_all()
    got = figures(job[0])
    wait_for_the_others(job)
    chance = unigram(job[0])
    check(got["valid_perplexity"] < chance / 2, f"perplexity {got['valid_perplexity']}, by chance {chance}")
    return Result(note=f"perplexity {got['valid_perplexity']:.1f}, by chance {chance:.1f}")


def trainer_killed(lab: Lab) -> Result:
    """At any moment of its steps, most of which are backward passes. The others read what it has not read."""
    job = ps_job(lab, add_hosts(lab, 3, 1), 1, "out", "--epochs", "4", "--max-steps", "30", *CHECKPOINTS).start_all()
    for _ in range(3):
        job[0].expect(ROUND, LONG_S)
    with Stopwatch() as recovery:
        job[2].kill()
        job[0].expect("with 2 trainers", LONG_S)
        job[0].expect(ROUND, LONG_S)
    got = figures(job[0])
    chance = unigram(job[0])
    # The server leaves gracefully: what the killed one had under way is no more.
    for rank in (1, 3):
        check(job[rank].wait(LONG_S) == 0, f"rank {rank} ended with {job[rank].status}: {job[rank].lines[-3:]}")
    check(got["valid_perplexity"] < chance, f"perplexity {got['valid_perplexity']}, by chance {chance}")
    return Result(recovery.seconds)


SCENARIOS = [
    Scenario("ps_server_killed", server_killed, quick=True),
    Scenario("ps_two_servers", two_servers, quick=False),
    Scenario("ps_trainer_killed", trainer_killed, quick=True),
]
