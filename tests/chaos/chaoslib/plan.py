"""What befalls which host when: all of it follows from a seed."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from typing import Sequence

from churnlib.plan import Turn, make_turns


class Fault(enum.Enum):
    KILL = "killed"
    POWER = "its power fails"
    PAUSE_SHORT = "paused for less than the lease"
    PAUSE_ABOUT = "paused for about the lease"
    PAUSE_LONG = "paused for longer than the lease"
    CUT_SHORT = "cut off for less than the lease"
    CUT_LONG = "cut off for longer than the lease"
    DEAF_TO_ONE = "what it sends to another host is lost"
    LOSSY = "some of what it sends is lost"
    SLOW = "what it sends is slow"


# What needs no network of a host's own.
OF_PROCESSES = (Fault.KILL, Fault.POWER, Fault.PAUSE_SHORT, Fault.PAUSE_ABOUT, Fault.PAUSE_LONG)


@dataclass(frozen=True)
class Blow:
    """A fault, and what it needs: the other host's number, the fraction that is lost, kbit/s."""

    fault: Fault
    amount: float = 0.0

    def __str__(self) -> str:
        return self.fault.value + (f" ({self.amount:g})" if self.amount else "")


# How long, in leases.
_LASTS = {
    # Half of them are back before anybody's lease is over.
    Fault.KILL: (0.0, 2.0),
    Fault.POWER: (0.1, 2.0),
    Fault.PAUSE_SHORT: (0.05, 0.7),
    # Some take it for lost and others do not.
    Fault.PAUSE_ABOUT: (0.8, 1.3),
    Fault.PAUSE_LONG: (1.3, 2.5),
    Fault.CUT_SHORT: (0.05, 0.7),
    Fault.CUT_LONG: (1.3, 2.5),
    Fault.DEAF_TO_ONE: (0.3, 2.5),
    Fault.LOSSY: (0.5, 3.0),
    Fault.SLOW: (0.5, 3.0),
}


def make_plan(
    hosts: int, seconds: float, seed: int, lease_s: float, faults: Sequence[Fault] = tuple(Fault)
) -> list[Turn[Blow]]:
    """In order. What ends the last ones may come up to three leases after `seconds`."""

    def choose(chance: random.Random, host: int) -> tuple[Blow, float]:
        fault = chance.choice(faults)
        amount = 0.0
        if fault is Fault.DEAF_TO_ONE:
            amount = float(chance.choice([other for other in range(hosts) if other != host]))
        elif fault is Fault.LOSSY:
            amount = round(chance.uniform(0.02, 0.2), 2)
        elif fault is Fault.SLOW:
            amount = float(chance.randrange(1000, 8000))
        return Blow(fault, amount), chance.uniform(*_LASTS[fault]) * lease_s

    return make_turns(hosts, seconds, random.Random(f"{seed} chaos"), choose)
