"""Paired rounds: our program and a peer's run right after each other and are compared."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Callable, Sequence

from benchlib.errors import BenchError
from benchlib.figures import BEFORE, Better, Figure, PeerProgram, Suite

# Measures the named figures once.
Measure = Callable[[Sequence[str]], dict[str, float]]


@dataclass(frozen=True)
class Pair:
    """Figures of ours, and the peer's program that they are compared with, or none."""

    figures: tuple[Figure, ...]
    program: PeerProgram | None = None

    @property
    def ours(self) -> tuple[str, ...]:
        return tuple(figure.name for figure in self.figures)

    @property
    def theirs(self) -> tuple[str, ...]:
        """The peer's figures, each once: two of ours may be compared with the same one."""
        if self.program is None:
            return ()
        peer = self.program.peer
        return tuple(dict.fromkeys(figure.counterpart(peer) for figure in self.figures))


@dataclass
class Rounds:
    """What one pair measured: for each figure, one value a round."""

    pair: Pair
    ours: dict[str, list[float]] = field(default_factory=dict)
    theirs: dict[str, list[float]] = field(default_factory=dict)
    failure: BenchError | None = None


@dataclass(frozen=True)
class Row:
    """One line of the result."""

    figure: Figure
    ours: float
    peer: str = ""
    theirs: float | None = None
    ratio: float | None = None

    @property
    def target(self) -> float | None:
        return self.figure.targets.get(self.peer) if self.figure.goal is None else self.figure.goal

    @property
    def target_met(self) -> bool | None:
        """None when this line has no target."""
        measured = self.ratio if self.figure.goal is None else self.ours
        if self.target is None or measured is None:
            return None
        if self.figure.better is Better.LOWER:
            return measured <= self.target
        return measured >= self.target


def make_pairs(
    suite: Suite, figures: Sequence[Figure], peers: Sequence[str], before: bool = False
) -> list[Pair]:
    """Sorts `figures` by the peer programs that have them. What no peer has stands alone.

    `before`: all of them are compared with another build of our own program too.
    """
    pairs = []
    paired: set[str] = set()
    if before:
        names = tuple(figure.name for figure in figures)
        pairs.append(Pair(tuple(figures), PeerProgram(BEFORE, figures=names, packages=())))
        paired.update(names)
    for program in suite.programs:
        shared = tuple(
            figure for figure in figures if figure.counterpart(program.peer) in program.figures
        )
        if program.peer in peers and shared:
            pairs.append(Pair(shared, program))
            paired.update(figure.name for figure in shared)
    alone = tuple(figure for figure in figures if figure.name not in paired)
    if alone:
        pairs.append(Pair(alone))
    return pairs


def run_round(rounds: Rounds, ours: Measure, theirs: Measure | None, ours_first: bool) -> None:
    """Adds one value to each figure of the pair. A pair whose program fails keeps the failure."""
    pair = rounds.pair
    try:
        if theirs is None:
            measured = [(rounds.ours, ours(pair.ours))]
        elif ours_first:
            measured = [(rounds.ours, ours(pair.ours)), (rounds.theirs, theirs(pair.theirs))]
        else:
            measured = [(rounds.theirs, theirs(pair.theirs)), (rounds.ours, ours(pair.ours))]
    except BenchError as error:
        rounds.failure = error
        return
    for values_of_side, values in measured:
        for figure, value in values.items():
            values_of_side.setdefault(figure, []).append(value)


def summarize(rounds: Rounds) -> list[Row]:
    """One row for each figure of the pair, from the rounds that both sides finished."""
    rows = []
    program = rounds.pair.program
    for figure in rounds.pair.figures:
        ours = rounds.ours.get(figure.name, [])
        if not ours:
            continue
        if program is None:
            rows.append(Row(figure, statistics.median(ours)))
            continue
        theirs = rounds.theirs[figure.counterpart(program.peer)]
        rows.append(
            Row(
                figure,
                ours=statistics.median(ours),
                peer=program.peer,
                theirs=statistics.median(theirs),
                ratio=median_of_ratios(ours, theirs),
            )
        )
    return rows


def median_of_ratios(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the rounds of ours/theirs.

    Not the ratio of the medians: what slows this host down for a while slows both sides of the
    rounds it falls into, and goes out of their ratios.
    """
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
