"""The command line of tests/chaos/run, and the order in which things happen."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Callable, Sequence

from chaoslib.job import NAMES, TRAINER, ChaosJob
from chaoslib.plan import OF_PROCESSES, Fault, make_plan
from churnlib import verdict
from churnlib.plan import start_order
from churnlib.run import MEET_LIMIT_S, Result, is_one_job, rest, say, settle, told_failures, wait_for
from lab import history
from lab.engine import EngineLab
from lab.hosts import Lab
from lab.namespaces import NamespaceLab
from lab.processes import ProcessLab
from lab.program import LabError

DESCRIPTION = """\
Shakes a job whose workers are on hosts of their own, and checks what it comes to. Two parameter servers, a trainer and
three others call each other all the time, increment counters of others by calls and references, and have backward
passes; the trainer steps the servers' parameters, saves them, and goes back to what was saved when somebody is lost.
Meanwhile programs are killed, the power of hosts fails, hosts are paused and cut off for less and for more than the
lease, packets are lost one way or at random, and networks are slow; at most a third of the hosts suffers at a time, as
the seed says. At the end all is healed. Within --settle seconds there must be one job that goes on training; then
no call and no reference may be left, and the history of all must be right (tests/docker/lab/history.py)."""
EPILOG = """\
exit status: 0 all is as it should be (or "skipped: " and why there can be no lab here), 1 it is not (the seed, and where
the record is, is told), 2 a mistake in the arguments."""
# What is shown of the record around a finding.
_CONTEXT_LINES = 30


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/chaos/run",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--worker", type=Path, required=True, metavar="PATH", help="a built chaos_worker")
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="how long it is shaken (10)")
    parser.add_argument("--seed", type=int, metavar="S", help="says what happens when (default: any)")
    parser.add_argument(
        "--backend", choices=("namespaces", "docker", "processes"), default="namespaces",
        help="what hosts are: network namespaces; containers of the engine that DOCKER_HOST says; or processes of this "
        "machine, which are killed and paused, and need neither root nor an engine (namespaces)",
    )  # fmt: skip
    parser.add_argument("--image", metavar="NAME", help="of the containers: one with what the worker is linked to (deploy/Dockerfile)")
    parser.add_argument("--lease", type=float, default=5, metavar="S", help="of all workers (5)")
    parser.add_argument("--settle", type=float, default=120, metavar="S", help="limit for what is to be at the end (120)")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="for the record (default: kept where something failed)")
    options = parser.parse_args(arguments)
    for name in ("minutes", "lease", "settle"):
        if getattr(options, name) <= 0:
            parser.error(f"argument --{name}: {getattr(options, name):g} is not more than 0")
    if not os.access(options.worker, os.X_OK) or options.worker.is_dir():
        parser.error(f"argument --worker: {options.worker} is no program; build the target chaos_worker")
    if (options.backend == "docker") != (options.image is not None):
        parser.error("argument --image: --backend docker needs one, and the others have none")
    options.worker = options.worker.resolve()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def start(job: ChaosJob, seed: int) -> list[str]:
    begin = time.monotonic()
    for after_s, number in start_order(len(NAMES), seed):
        time.sleep(max(0.0, begin + after_s - time.monotonic()))
        job.start(NAMES[number])
    return wait_for(job, MEET_LIMIT_S, lambda: is_one_job(job))


def shake(job: ChaosJob, options: argparse.Namespace, done: Counter[Fault]) -> None:
    faults = OF_PROCESSES if options.backend == "processes" else tuple(Fault)
    turns = make_plan(len(NAMES), options.minutes * 60, options.seed, options.lease, faults)
    events = [(turn.after_s, job.begin, turn) for turn in turns] + [(turn.until_s, job.end, turn) for turn in turns]
    begin = time.monotonic()
    for after_s, do, turn in sorted(events, key=lambda event: event[0]):
        while (left_s := begin + after_s - time.monotonic()) > 0:
            time.sleep(min(0.1, left_s))
            job.tend()
        do(turn.worker, turn.what)
        if do == job.begin:
            done[turn.what.fault] += 1


def goes_on(job: ChaosJob, limit_s: float) -> list[str]:
    """The trainer makes further steps."""
    before = len(job.record.texts("trained"))
    failures = ["the trainer makes no more steps"]
    return wait_for(job, limit_s, lambda: [] if len(job.record.texts("trained")) > before + 1 else failures)


def judge(job: ChaosJob, options: argparse.Namespace, result: Result) -> None:
    settle(job, options.settle, result)
    say(job, "it is one job; does it go on?")
    result.failures += goes_on(job, options.settle)
    # It reads what the others have: so they must be there still.
    answer = job.ask("calm", options.settle, TRAINER)[TRAINER]
    if not answer.startswith("ok"):
        result.failures.append(f"{TRAINER} does not come to an end: {answer}")
    rest(job, options.settle, result)


def check_history(job: ChaosJob, result: Result) -> str:
    try:
        entries = [entry for path in job.history_files() for entry in history.read_file(path)]
    except history.HistoryError as error:
        result.failures.append(f"history: {error}")
        return "unreadable"
    result.failures += [f"history: {finding}" for finding in history.check(entries)]
    if not any(entry.kind == "read" for entry in entries):
        result.failures.append("history: nobody has read the models in the end")
    return history.counts(entries)


def summary(job: ChaosJob, options: argparse.Namespace, result: Result, done: Counter[Fault], counts: str) -> str:
    record = job.record
    lines = [
        f"seed {options.seed}: {len(NAMES)} hosts, {options.backend}, {options.minutes:g} min, lease {options.lease:g} s",
        "done: " + (", ".join(f"{fault.value} {times}" for fault, times in sorted(done.items(), key=lambda one: one[0].name)) or "none"),
        "settled: " + ("not" if result.settled_s is None else f"after {result.settled_s:.1f} s"),
        f"joined: {len(record.texts('joined'))} times; evicted: {len(record.texts('evicted'))}; "
        f"refused: {sum(verdict.codes(record.texts('refused')).values())}",
        "work of those that are there at the end: " + ", ".join(f"{name} {times}" for name, times in sorted(result.tally.items())),
        f"history: {counts}",
        f"failures: {len(result.failures)}",
        *(f"  {failure}" for failure in result.failures[:40]),
    ]
    return "\n".join(lines)


def context(job: ChaosJob, failures: Sequence[str]) -> str:
    """The end of the record of those whom the findings name; otherwise of all."""
    named = {name for name in NAMES if any(name in failure for failure in failures)} or set(NAMES)
    lines = [f"  {after_s:.3f} {who} {text}" for after_s, who, text in job.record.lines if who in named]
    return "\n".join([f"the record's last lines of {', '.join(sorted(named))}:", *lines[-_CONTEXT_LINES:]])


def run(lab: Lab, options: argparse.Namespace, logs: Path) -> list[str]:
    result = Result()
    done: Counter[Fault] = Counter()
    with (logs / "record").open("w", encoding="utf-8") as file:
        job = ChaosJob(lab, options.worker, options.lease, file)
        say(job, f"seed {options.seed}: {len(NAMES)} workers start")
        result.failures += [f"at the start: {failure}" for failure in start(job, options.seed)]
        if not result.failures:
            say(job, "all have met; the shaking begins")
            shake(job, options, done)
            say(job, "nothing is done any more; the job comes to rest")
            judge(job, options, result)
        job.finish()
        result.failures += told_failures(job)
        counts = check_history(job, result)
        print(summary(job, options, result, done, counts))
        if result.failures:
            print(context(job, result.failures))
            shutil.copytree(lab.folder / "history", logs / "history", dirs_exist_ok=True)
    return result.failures


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    make_lab: dict[str, Callable[[], Lab]] = {
        "namespaces": NamespaceLab,
        "docker": lambda: EngineLab(options.image),
        "processes": ProcessLab,
    }
    obstacle = {"namespaces": NamespaceLab, "docker": EngineLab, "processes": ProcessLab}[options.backend].obstacle()
    if obstacle is not None:
        print(f"skipped: {obstacle}")
        return 0
    # So that the lab is taken down.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    logs = options.logs or Path(tempfile.mkdtemp(prefix="sinew-chaos-"))
    logs.mkdir(parents=True, exist_ok=True)
    failures = ["it was interrupted"]
    try:
        with make_lab[options.backend]() as lab:
            failures = run(lab, options, logs)
    except LabError as error:
        failures = [str(error)]
        print(f"chaos: {error}", file=sys.stderr)
    finally:
        if not failures and options.logs is None:
            shutil.rmtree(logs)
    if not failures:
        return 0
    again = f"tests/chaos/run --worker {options.worker} --seed {options.seed} --minutes {options.minutes:g} --lease {options.lease:g}"
    if options.backend == "processes":
        again += " --backend processes"
    if options.image is not None:
        again += f" --backend docker --image {options.image}"
    print(f"FAILED with seed {options.seed}; the record is {logs}/record; again: {again}")
    return 1
