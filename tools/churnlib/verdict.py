"""What a job that has come to rest must look like, and what must not have happened on the way."""

from __future__ import annotations

import re
from collections import Counter
from typing import Mapping, Sequence

# What processes write when they end as they should not, and what sanitizers report.
CRASH = re.compile(
    r"terminate called|Segmentation|SIG(SEGV|ABRT|BUS|FPE|ILL)|Aborted|core dumped|Assertion .*failed"
    r"|Check failed|pure virtual|double free|corrupted|free\(\): invalid|stack smashing"
    r"|(Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:| F\d{4} "
)


def views_failures(selves: Mapping[str, str], views: Mapping[str, str]) -> list[str]:
    """Why this is not one job of all workers that are there, of which each is a member. `selves` and
    `views` are what each answers to "self" and "view"."""
    failures = []
    live = set()
    for name, answer in sorted(selves.items()):
        match = re.fullmatch(r"ok (\S+) (.*)", answer)
        if match is None:
            failures.append(f"{name} does not say who it is: {answer}")
            continue
        live.add(match[1])
        if match[2] != "member":
            failures.append(f"{name} is no member: {match[2]}")
    for name, answer in sorted(views.items()):
        if not answer.startswith("ok"):
            failures.append(f"{name} shows no view: {answer}")
            continue
        view = set(answer.split()[1:])
        for what, members in (("lacks", live - view), ("sees the dead", view - live)):
            if members:
                failures.append(f"{name} {what}: {' '.join(sorted(members))}")
    ranks = Counter(worker.split(":")[0] for worker in live)
    failures += [f"rank {rank} is there {times} times" for rank, times in ranks.items() if times > 1]
    return failures


def counter_failures(counters: Mapping[str, str]) -> list[str]:
    """`counters` is what each answers to "counters"."""
    return [
        f"{name} has {answer[3:].strip() if answer.startswith('ok') else answer}"
        for name, answer in sorted(counters.items())
        if answer.strip() != "ok"
    ]


def call_failures(calls: Mapping[str, str]) -> list[str]:
    """`calls` is what each answers to "each"."""
    return [
        f"{name} calls in vain: {answer[3:].strip() if answer.startswith('ok') else answer}"
        for name, answer in sorted(calls.items())
        if answer.strip() != "ok"
    ]


def crash_lines(logged: Sequence[str]) -> list[str]:
    """What looks like a crash of the lines `NAME LINE` that workers have written to stderr."""
    return [line for line in logged if CRASH.search(line)]


def codes(texts: list[str]) -> Counter[str]:
    """How often each code stands behind the worker's name."""
    return Counter(text.split()[1] for text in texts if len(text.split()) > 1)


def sum_tallies(tallies: Mapping[str, str]) -> Counter[str]:
    """What each answers to "tally", added up."""
    total: Counter[str] = Counter()
    for answer in tallies.values():
        for name, value in re.findall(r"(\S+)=(\d+)", answer):
            total[name] += int(value)
    return total


def evicted_unstopped(lines: Sequence[tuple[float, str, str]]) -> list[str]:
    """NAME@SECONDS of each worker that was evicted though nobody had stopped it since it joined. A
    record's lines: seconds, worker, text."""
    stopped: set[str] = set()
    found = []
    for after_s, worker, text in lines:
        kind = text.split(" ", 1)[0]
        if text.startswith("is stopped"):
            stopped.add(worker)
        elif kind == "evicted" and worker not in stopped:
            found.append(f"{worker}@{after_s:.1f}")
        elif kind == "joined":
            stopped.discard(worker)
    return found
