"""The figures of `tools/bench groups`; ../group_figures.h has them for the C++ programs."""

from __future__ import annotations

from peer_options import Options

BYTES = (4096, 65536, 1048576, 16777216, 67108864)
RANKS = (2, 4)
RING_RANKS = 4
DDP_RANKS = 2
SPAWNED = 8
ALTOGETHER_BYTES = 512 << 20

DDP_FIGURE = "ddp_step_ms"
SPAWN_FIGURE = "spawn_ms"


def all_reduce_figure(size: int, ranks: int) -> str:
    return f"all_reduce_{size}_{ranks}_us"


def ring_figure(size: int) -> str:
    return f"ring_all_reduce_{size}_us"


def timed_operations(options: Options, size: int) -> int:
    """How often a tensor is reduced for one figure: 512 MiB altogether, within limits."""
    return 2 if options.quick else min(max(ALTOGETHER_BYTES // size, 8), 1000)


def timed_steps(options: Options) -> int:
    return 2 if options.quick else 10


def timed_spawns(options: Options) -> int:
    return 1 if options.quick else 3
