"""What is done to which worker when: all of it follows from a seed."""

from __future__ import annotations

import enum
import heapq
import random
from dataclasses import dataclass
from typing import Callable, Generic, TypeVar


class Action(enum.Enum):
    """What is done to a process. Each but the last two is followed by one of these."""

    KILL = "killed"
    LEAVE = "made to leave, gracefully"
    LEAVE_HARD = "made to leave at once"
    STOP_SHORT = "stopped for less than the lease"
    STOP_ABOUT = "stopped for about the lease"
    STOP_LONG = "stopped for longer than the lease"
    GO_ON = "let go on"
    START = "started again"


DISTURBANCES = (
    Action.KILL,
    Action.STOP_SHORT,
    Action.STOP_ABOUT,
    Action.STOP_LONG,
    Action.LEAVE,
    Action.LEAVE_HARD,
)
STOPS = (Action.STOP_SHORT, Action.STOP_ABOUT, Action.STOP_LONG)
# So that a job of many workers is not all start-up: each start costs half a second of a core.
_LEAST_PAUSE_S = 0.4
_PAUSE_OF_ONE_WORKER_S = 12.0


@dataclass(frozen=True, order=True)
class Event:
    """`after_s` counts from the moment when all workers have met."""

    after_s: float
    worker: int
    action: Action


Disturbance = TypeVar("Disturbance")


@dataclass(frozen=True)
class Turn(Generic[Disturbance]):
    """A worker is disturbed for some time."""

    after_s: float
    until_s: float
    worker: int
    what: Disturbance


def make_turns(
    workers: int,
    seconds: float,
    chance: random.Random,
    choose: Callable[[random.Random, int], tuple[Disturbance, float]],
) -> list[Turn[Disturbance]]:
    """Whose turn it is when, in order. `choose` says what is done to a worker, and for how long.

    At most a third of the workers, at least one, is away at a time.
    """
    most_away = max(1, workers // 3)
    pause_s = max(_LEAST_PAUSE_S, _PAUSE_OF_ONE_WORKER_S / workers)
    away: list[tuple[float, int]] = []  # a heap: until when, who
    there = set(range(workers))
    turns: list[Turn[Disturbance]] = []
    now = 0.0
    while True:
        now += chance.uniform(0.2, 1.8) * pause_s
        if len(away) >= most_away:
            now = max(now, away[0][0])
        if now >= seconds:
            return turns
        while away and away[0][0] <= now:
            there.add(heapq.heappop(away)[1])
        worker = chance.choice(sorted(there))
        what, away_s = choose(chance, worker)
        there.remove(worker)
        heapq.heappush(away, (now + away_s, worker))
        turns.append(Turn(now, now + away_s, worker, what))


def start_order(workers: int, seed: int) -> list[tuple[float, int]]:
    """When each worker starts, within a second; in order."""
    chance = random.Random(f"{seed} start")
    return sorted((chance.uniform(0, 1), worker) for worker in range(workers))


def make_plan(workers: int, seconds: float, seed: int, lease_s: float) -> list[Event]:
    """The events, in order. What ends a disturbance may come up to three leases after `seconds`."""

    def choose(chance: random.Random, _: int) -> tuple[Action, float]:
        action = chance.choice(DISTURBANCES)
        return action, _away_s(chance, action, lease_s)

    events: list[Event] = []
    for turn in make_turns(workers, seconds, random.Random(f"{seed} plan"), choose):
        ends = Action.GO_ON if turn.what in STOPS else Action.START
        events.append(Event(turn.after_s, turn.worker, turn.what))
        events.append(Event(turn.until_s, turn.worker, ends))
    return sorted(events, key=lambda event: event.after_s)


def _away_s(chance: random.Random, action: Action, lease_s: float) -> float:
    if action is Action.STOP_SHORT:
        return chance.uniform(0.05, 0.7) * lease_s
    if action is Action.STOP_ABOUT:
        # Some take it for lost and others do not.
        return chance.uniform(0.8, 1.3) * lease_s
    if action is Action.STOP_LONG:
        return chance.uniform(1.3, 2.5) * lease_s
    # Half of them are back before anybody's lease is over.
    return chance.uniform(0.0, 2.0) * lease_s
