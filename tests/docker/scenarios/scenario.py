"""What a scenario is, and what it needs."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Callable, Mapping, Sequence

from lab.hosts import Host, Lab
from lab.program import LabError, Program

PORT = 29500
# Of what takes seconds: however busy the machine is, it is faster than that.
LONG_S = 180.0
# Of the workers of examples: after so long a silence one is lost.
LEASE_S = 15.0


class Wrong(AssertionError):
    """A result is not what it must be."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Wrong(what)


# Where the programs are that only scenarios need, so that no image has them. The command line says so.
own_programs = Path()


def own_program(lab: Lab, name: str) -> Path:
    """A copy that all hosts see."""
    built = own_programs / name
    if not built.exists():
        raise LabError(f"there is no {built}; build the target {built.name}")
    return Path(shutil.copy(built, lab.folder))


class Stopwatch:
    """From a fault until the job was well again: `with Stopwatch() as recovery: ...`"""

    seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._begin = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.monotonic() - self._begin


@dataclass
class Result:
    """What goes into the table."""

    # None: nothing was to be recovered from.
    recovery_s: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Scenario:
    name: str
    run: Callable[[Lab], Result]
    # It is a part of --quick.
    quick: bool


@dataclass
class FixedJob:
    """A job of a fixed world, whose rank 0 is at `hosts[0]`, and so on: a program for each rank."""

    hosts: Sequence[Host]
    commands: Sequence[Sequence[str]]
    # Beside its place.
    env: Mapping[str, str] = field(default_factory=lambda: {"SINEW_EXAMPLES_TRUSTED_NETWORK": "1"})
    port: int = PORT
    programs: dict[int, Program] = field(default_factory=dict)

    def start(self, rank: int) -> Program:
        """Also again, with the same command."""
        place = {
            "MASTER_ADDR": self.hosts[0].name,
            "MASTER_PORT": str(self.port),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self.hosts)),
            # More threads than cores are of no use to small networks.
            "OMP_NUM_THREADS": "1",
        }
        self.programs[rank] = self.hosts[rank].start(self.commands[rank], {**place, **self.env})
        return self.programs[rank]

    def start_all(self) -> FixedJob:
        for rank in range(len(self.hosts)):
            self.start(rank)
        return self

    def __getitem__(self, rank: int) -> Program:
        return self.programs[rank]
