"""What a suite of tools/bench is made of: figures, and the programs of peers that have them too."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Mapping


# The "peer" of --before: another build of our own program. It measures all that ours does.
BEFORE = "before"


class Better(enum.Enum):
    """Which way a figure improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Figure:
    """One number. Its unit ends its name; `_p50_us` is a median of times, `_per_s` a rate."""

    name: str
    better: Better
    # Peer to the ratio ours/theirs that is wanted: at most that if LOWER, at least if HIGHER.
    targets: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    # What ours itself must be, beside peers or alone: at most that if LOWER, at least if HIGHER. A
    # figure has this or `targets`.
    goal: float | None = None
    # Peer to the figure of that peer which ours is compared with. Empty: every peer's figure of the
    # same name.
    counterparts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def counterpart(self, peer: str) -> str:
        """The name under which `peer` measures what this is compared with."""
        if not self.counterparts or peer == BEFORE:
            return self.name
        return self.counterparts.get(peer, "")


@dataclass(frozen=True)
class PeerProgram:
    """Measures figures of one peer: a CMake target of benchmarks/peers, or a script there."""

    peer: str
    figures: tuple[str, ...]
    packages: tuple[str, ...]  # of Debian, needed to build and run it
    cmake_target: str = ""
    script: str = ""
    # It is our own program: figures of ours are compared with others of ours.
    ours: bool = False

    @property
    def name(self) -> str:
        return self.cmake_target or self.script or f"our own program as {self.peer}"


@dataclass(frozen=True)
class Suite:
    """What one sub-command measures."""

    name: str
    summary: str
    binary: str  # our program, and the CMake target that builds it
    figures: tuple[Figure, ...]
    programs: tuple[PeerProgram, ...]
    packages: tuple[str, ...] = ()  # of Debian, needed to build and run ours beside Sinew's own
    cmake_options: tuple[str, ...] = ()  # with which ours is built
    # Where the drawn curves of its figures are kept, from the root of the repository; "": none.
    chart: str = ""

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(program.peer for program in self.programs))
