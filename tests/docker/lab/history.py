"""Histories of what workers have asked for while parts of their job died, and whether the state in the end agrees.

usage: history.py FILE...

A file has one JSON object a line. Each worker writes its own, line by line, so that a kill costs at most the last one.
What is asked of others is written twice: as "unknown" before it is sent, and once more, with the same id, when its
result is there. An operation of a worker that was killed in between stays unknown.

    id        of one attempt, in all files; a number or a text. To ask again is another attempt.
    worker    who writes the line
    kind      "increment", "step", "load", "applied" or "read"
    target    the object or the parameters that it is about. A counter dies with its worker: the next one is another
              target. Parameters that come back from a checkpoint are the same.
    result    "ok", "did_not_run" or "unknown" (increment, step, load)
    step      which step of the training an attempt is of (step; without it each attempt is one of its own)
    run       counts the loads of a target; steps have the number of the one before them (step, load; 0 without)
    versions  by owner: how many steps are in what it has (load, read, and step if it was acknowledged)
    applied   by owner: the ids of what is in its state, each as often as it is (read)

Of a target whose name begins with "ordered ", the ids of each worker are applied in the order in which it has asked.

"applied" is written by the owner of a counter, one line for each increment. "read" is what somebody finds at the end.

What is proved: an acknowledged increment or step is in the state once; one that did not run is not; one of which
nobody knows is there at most once; versions only grow, but by a load; what a load has lost was made again. Without a
read of a target the versions of its steps stand for it: each belongs to one step.

tests/optim/history.h checks acknowledged steps of one trainer within a C++ test, where there are no files.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence

KINDS = ("increment", "step", "load", "applied", "read")
RESULTS = ("ok", "did_not_run", "unknown")
Id = str | int


class HistoryError(Exception):
    """A line that is no part of a history; the text says where it is."""


@dataclass
class Entry:
    """What is known of an operation, or of a state."""

    where: str  # file and line
    kind: str
    worker: str
    target: str
    id: Id = ""
    result: str = "ok"
    run: int = 0
    step: Id = ""
    versions: dict[str, int] = field(default_factory=dict)
    applied: dict[str, list[Id]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.id} of {self.worker} at {self.target} ({self.where})"


def _checked(where: str, value: object, kind: type | tuple[type, ...], what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise HistoryError(f"{where}: {what}, not {value!r}")
    return value


def _one_of(where: str, name: str, value: object, known: Sequence[str]) -> str:
    if value not in known:
        raise HistoryError(f"{where}: {name!r} is one of {', '.join(known)}, not {value!r}")
    return str(value)


def parse(line: str, where: str) -> Entry:
    try:
        given = json.loads(line)
    except json.JSONDecodeError as error:
        raise HistoryError(f"{where}: no JSON: {error}") from None
    _checked(where, given, dict, "a line is an object")
    kind = _one_of(where, "kind", given.get("kind"), KINDS)
    entry = Entry(
        where,
        kind,
        _checked(where, given.get("worker"), str, "'worker' is a name"),
        _checked(where, given.get("target"), str, "'target' is a name"),
    )
    if kind != "read":
        entry.id = _checked(where, given.get("id"), (str, int), "'id' is a text or a number")
    if kind in ("increment", "step", "load"):
        entry.result = _one_of(where, "result", given.get("result"), RESULTS)
    entry.run = _checked(where, given.get("run", 0), int, "'run' is a number")
    entry.step = _checked(where, given.get("step", entry.id), (str, int), "'step' is a text or a number")
    for owner, version in _checked(where, given.get("versions", {}), dict, "'versions' is by owner").items():
        entry.versions[owner] = _checked(where, version, int, f"the version of {owner!r} is a number")
    for owner, ids in _checked(where, given.get("applied", {}), dict, "'applied' is by owner").items():
        entry.applied[owner] = _checked(where, ids, list, f"what {owner!r} has applied is a list of ids")
    return entry


def read_file(path: Path) -> list[Entry]:
    """Raises HistoryError; OSError. The last line may be cut off, where a worker was killed."""
    lines = path.read_text(encoding="utf-8").split("\n")
    cut_off = lines.pop()
    entries = [parse(line, f"{path.name}:{number}") for number, line in enumerate(lines, 1) if line]
    try:
        return entries + ([parse(cut_off, f"{path.name}:{len(lines) + 1}")] if cut_off else [])
    except HistoryError:
        return entries


@dataclass
class _Target:
    """All that has been said of one."""

    name: str
    attempts: list[Entry] = field(default_factory=list)  # increments and steps
    loads: list[Entry] = field(default_factory=list)
    reads: list[Entry] = field(default_factory=list)
    traces: Counter[Id] = field(default_factory=Counter)
    applied: list[Id] = field(default_factory=list)  # what the traces count, as it came

    def is_lost(self, step: Entry) -> bool:
        """A later run has begun with an earlier version."""
        later = (load for load in self.loads if load.run > step.run and load.result == "ok")
        return any(load.versions.get(owner, at) < at for load in later for owner, at in step.versions.items())


def check(entries: Iterable[Entry]) -> list[str]:
    """What is wrong, a text for each finding; empty: nothing. Each worker's entries are in its order."""
    wrong: list[str] = []
    last: dict[Id, Entry] = {}
    targets: dict[str, _Target] = {}
    for entry in entries:
        target = targets.setdefault(entry.target, _Target(entry.target))
        if entry.kind == "applied":
            target.traces[entry.id] += 1
            target.applied.append(entry.id)
        elif entry.kind == "read":
            target.reads.append(entry)
        else:
            before = last.get(entry.id)
            if before is not None and before.result != "unknown":
                wrong.append(f"{entry} had its result before: {before.result} ({before.where})")
            last[entry.id] = entry
    for entry in last.values():
        target = targets[entry.target]
        (target.loads if entry.kind == "load" else target.attempts).append(entry)
    for target in targets.values():
        wrong += _check_versions(target)
        for owner, state in _states(target).items():
            wrong += _check_state(target, owner, state)
        wrong += _check_redone(target)
        if target.name.startswith("ordered "):
            wrong += _check_order(target)
    return wrong


def _states(target: _Target) -> Mapping[str, Counter[Id]]:
    """What is in the target at each owner, by the last read of it; or by what the owner has noted."""
    states: dict[str, Counter[Id]] = {}
    for read in target.reads:
        states.update({owner: Counter(ids) for owner, ids in read.applied.items()})
    if target.traces or any(one.kind == "increment" for one in target.attempts):
        states.setdefault(target.name, target.traces)
    return states


def _check_state(target: _Target, owner: str, state: Counter[Id]) -> list[str]:
    wrong = []
    known = {attempt.id: attempt for attempt in target.attempts}
    of_step: Counter[Id] = Counter()
    for id_, times in state.items():
        attempt = known.get(id_)
        if attempt is None:
            wrong.append(f"{target.name} at {owner} has {id_}, which nobody has asked for")
            continue
        of_step[attempt.step] += times
        if attempt.result == "did_not_run":
            wrong.append(f"{attempt} was reported as did_not_run, and is in {owner}'s state")
        if times > 1:
            wrong.append(f"{attempt} ({attempt.result}) is in {owner}'s state {times} times")
    for step, times in of_step.items():
        attempts = [id_ for id_ in state if id_ in known and known[id_].step == step]
        if len(attempts) > 1:
            wrong.append(f"step {step} of {target.name} is in {owner}'s state {times} times, as {attempts}")
    for attempt in target.attempts:
        concerned = attempt.kind == "increment" or owner in attempt.versions
        if attempt.result == "ok" and concerned and not target.is_lost(attempt) and attempt.id not in state:
            wrong.append(f"{attempt} was acknowledged, and is not in {owner}'s state")
    for read in target.reads:
        version = read.versions.get(owner)
        if version is not None and owner in read.applied and version != len(read.applied[owner]):
            wrong.append(f"{owner} says version {version} of {target.name} and has {len(read.applied[owner])} steps")
    return wrong


def _check_order(target: _Target) -> list[str]:
    # Results come in any order, but each attempt stands where its worker has written it first.
    asked = {attempt.id: (place, attempt) for place, attempt in enumerate(target.attempts)}
    latest: dict[str, tuple[int, Entry]] = {}
    wrong = []
    for id_ in target.applied:
        if id_ not in asked:
            continue
        place, attempt = asked[id_]
        before = latest.get(attempt.worker)
        if before is not None and place < before[0]:
            wrong.append(f"{attempt} was applied after {before[1]}, and was asked for before")
        latest[attempt.worker] = (place, attempt)
    return wrong


def _check_versions(target: _Target) -> list[str]:
    wrong = []
    newest: dict[tuple[str, int, str], Entry] = {}
    holders: dict[tuple[str, int], Entry] = {}
    steps = [one for one in target.attempts if one.kind == "step" and one.result == "ok"]
    bases = _bases(target)
    for step in steps:
        for owner, version in step.versions.items():
            before = newest.get((step.worker, step.run, owner))
            least = bases.get((step.run, owner), 0) if before is None else before.versions[owner]
            if version <= least:
                wrong.append(f"{step}: {owner}'s version is {version}, and was {least} before")
            newest[step.worker, step.run, owner] = step
            if target.is_lost(step):
                continue
            other = holders.setdefault((owner, version), step)
            if other is not step:
                wrong.append(f"{step} and {other} both made version {version} at {owner}")
    wrong += _check_gaps(target, holders)
    for read in target.reads:
        for owner, version in read.versions.items():
            most = max((at for whose, at in holders if whose == owner), default=0)
            if version < most:
                wrong.append(f"{owner} has version {version} of {target.name} in the end, and said {most} before")
    return wrong


def _bases(target: _Target) -> Mapping[tuple[int, str], int]:
    """By run and owner, the version that it has begun with."""
    return {(load.run, owner): at for load in target.loads for owner, at in load.versions.items()}


def _check_gaps(target: _Target, holders: Mapping[tuple[str, int], Entry]) -> list[str]:
    """Versions between the oldest that was loaded and the newest, which no acknowledged step has made, must be of
    unknown ones."""
    unknown = sum(one.kind == "step" and one.result == "unknown" for one in target.attempts)
    oldest = {owner: min(load.versions.get(owner, 0) for load in target.loads) for _, owner in _bases(target)}
    made: defaultdict[str, set[int]] = defaultdict(set)
    for owner, version in holders:
        if version > oldest.get(owner, 0):
            made[owner].add(version)
    return [
        f"{owner} has made {missing} versions of {target.name} that nobody knows of, and only {unknown} steps are unknown"
        for owner, versions in made.items()
        if (missing := max(versions) - oldest.get(owner, 0) - len(versions)) > unknown
    ]


def _check_redone(target: _Target) -> list[str]:
    steps = [one for one in target.attempts if one.kind == "step"]
    kept = {one.step for one in steps if one.result == "ok" and not target.is_lost(one)}
    return [
        f"{one} was acknowledged and lost by a load, and never made again"
        for one in steps
        if one.result == "ok" and target.is_lost(one) and one.step not in kept
    ]


def counts(entries: Iterable[Entry]) -> str:
    """How many operations of each kind had which result: `increment: 10 ok, 1 unknown; step: 7 ok`."""
    last = {entry.id: entry for entry in entries if entry.kind in ("increment", "step", "load")}
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in last.values():
        tally[entry.kind][entry.result] += 1
    return "; ".join(
        f"{kind}: " + ", ".join(f"{tally[kind][result]} {result}" for result in RESULTS if tally[kind][result])
        for kind in KINDS
        if kind in tally
    )


def main(paths: Sequence[str]) -> int:
    """0 if all is right, 1 if it is not, 2 for what is no history."""
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        entries = [entry for path in paths for entry in read_file(Path(path))]
    except (OSError, UnicodeDecodeError, HistoryError) as error:
        print(f"history: {error}", file=sys.stderr)
        return 2
    wrong = check(entries)
    print("\n".join([counts(entries) or "no operations", *wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
