"""A run: a job meets, is shaken, comes to rest, and is judged."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Callable, Mapping, Protocol, Sequence

from churnlib import verdict
from churnlib.job import Job, Record
from churnlib.plan import Action, make_plan, start_order

# 64 processes load LibTorch before they meet.
MEET_LIMIT_S = 180.0
# A worker that is asked to be calm may wait for a call to one that is lost.
CALM_LIMIT_S = 60.0
# A name, rank or address is taken until the loss of who had it is known; who is asked may go.
REFUSALS_BY_LOSS = ("ALREADY_EXISTS", "DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED")


class AskedJob(Protocol):
    """A job whose workers answer, however they are reached."""

    tool: str
    names: Sequence[str]
    record: Record
    unexpected: list[str]

    def tend(self) -> None: ...

    def ask(self, command: str, timeout_s: float = 20.0) -> dict[str, str]: ...


@dataclass
class Result:
    failures: list[str] = field(default_factory=list)
    done: Counter[Action] = field(default_factory=Counter)
    tally: Mapping[str, int] = field(default_factory=dict)
    resident_MiB: float = 0.0
    # Until all were members of one job, from the last event on.
    settled_s: float | None = None


def say(job: AskedJob, text: str) -> None:
    after_s = time.monotonic() - job.record.begin
    print(f"== {job.tool}: ({after_s:.0f} s) {text}", file=sys.stderr, flush=True)


def wait_for(job: AskedJob, limit_s: float, failures_of: Callable[[], list[str]]) -> list[str]:
    """Asks until nothing fails or the time is over; what failed then."""
    deadline = time.monotonic() + limit_s
    while True:
        job.tend()
        failures = failures_of()
        if not failures or time.monotonic() > deadline:
            return failures
        time.sleep(0.5)


def is_one_job(job: AskedJob) -> list[str]:
    return verdict.views_failures(job.ask("self"), job.ask("view"))


def start(job: Job, options: argparse.Namespace) -> list[str]:
    begin = time.monotonic()
    for after_s, worker in start_order(options.workers, options.seed):
        time.sleep(max(0.0, begin + after_s - time.monotonic()))
        job.do(worker, Action.START, options.lease)
    return wait_for(job, MEET_LIMIT_S, lambda: is_one_job(job))


def shake(job: Job, options: argparse.Namespace, done: Counter[Action]) -> None:
    begin = time.monotonic()
    for event in make_plan(options.workers, options.seconds, options.seed, options.lease):
        while (left_s := begin + event.after_s - time.monotonic()) > 0:
            time.sleep(min(0.1, left_s))
            job.tend()
        job.do(event.worker, event.action, options.lease)
        done[event.action] += 1


def settle(job: AskedJob, limit_s: float, result: Result) -> None:
    """Waits for what must be when nothing is done to the job any more: it is one."""
    begin = time.monotonic()
    result.failures += wait_for(job, limit_s, lambda: is_one_job(job))
    if not result.failures:
        result.settled_s = time.monotonic() - begin
    for failure in result.failures:
        say(job, failure)


def rest(job: AskedJob, limit_s: float, result: Result) -> None:
    """Checks all that must be when nobody works any more, which is told to all."""
    say(job, "workers stop working")
    result.failures += [
        f"{name} does not stop working: {answer}"
        for name, answer in job.ask("calm", CALM_LIMIT_S).items()
        if not answer.startswith("ok")
    ]

    def no_counters() -> None:
        # What is no one job has no reason to become clean.
        patience_s = limit_s if not result.failures else 1.0
        result.failures += wait_for(
            job, patience_s, lambda: verdict.counter_failures(job.ask("counters"))
        )

    no_counters()
    say(job, "each calls each")
    result.failures += verdict.call_failures(job.ask("each", CALM_LIMIT_S))
    # With all links that there can be.
    no_counters()
    result.failures += [f"in the end: {failure}" for failure in is_one_job(job)]
    result.tally = verdict.sum_tallies(job.ask("tally"))


def run(job: Job, options: argparse.Namespace) -> Result:
    result = Result()
    say(job, f"seed {options.seed}: {options.workers} workers start, {options.init}, {options.world}")
    result.failures += [f"at the start: {failure}" for failure in start(job, options)]
    if not result.failures:
        result.resident_MiB = job.resident_MiB()
        say(job, f"all have met, with {result.resident_MiB:.0f} MiB; the shaking begins")
        shake(job, options, result.done)
        say(job, "nothing is done any more; the job comes to rest")
        settle(job, options.settle, result)
        rest(job, options.settle, result)
    result.failures += told_failures(job)
    return result


def told_failures(job: AskedJob) -> list[str]:
    """What must not have happened on the way."""
    record = job.record
    failures = list(job.unexpected)
    for kind in ("wrong", "unexplained"):
        failures += [f"{kind}: {text}" for text in record.texts(kind)]
    failures += [
        f"could not join: {text}"
        for text in record.texts("refused")
        if text.split()[1] not in REFUSALS_BY_LOSS
    ]
    failures += [
        f"evicted, but its calls do not fail with ABORTED: {text}"
        for text in record.texts("evicted")
        if text.split()[1] != "ABORTED"
    ]
    failures += verdict.crash_lines(record.texts("log"))
    return failures


def summary(job: Job, options: argparse.Namespace, result: Result) -> str:
    record = job.record

    def counted(counts: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {times}" for name, times in sorted(counts.items())) or "none"

    never_stopped = verdict.evicted_unstopped(record.lines)
    lines = [
        f"seed {options.seed}: {options.workers} workers, {options.init}, {options.world} world, "
        f"{options.seconds:g} s, lease {options.lease:g} s",
        "done: " + counted({action.value: times for action, times in result.done.items()}),
        "settled: " + ("not" if result.settled_s is None else f"after {result.settled_s:.1f} s"),
        f"joined: {len(record.texts('joined'))} times; refused: "
        + counted(verdict.codes(record.texts("refused"))),
        f"evicted: {counted(verdict.codes(record.texts('evicted')))}; "
        f"of them without having been stopped: {len(never_stopped)} {' '.join(never_stopped)}",
        "left late: " + counted(verdict.codes(record.texts("left_late"))),
        "work of those that are there at the end: " + counted(result.tally),
        f"wrong answers: {len(record.texts('wrong'))}; failures: {len(result.failures)}",
    ]
    lines += [f"  {failure}" for failure in result.failures[:40]]
    if len(result.failures) > 40:
        lines.append(f"  and {len(result.failures) - 40} more")
    return "\n".join(line.rstrip() for line in lines)
