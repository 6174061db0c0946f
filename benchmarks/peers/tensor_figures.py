"""The figures of `tools/bench tensors`; ../tensor_transfers.h has them for the C++ programs."""

from __future__ import annotations

from typing import Callable

from peer_options import Options, measure_latency

BYTES = (4096, 65536, 1048576, 16777216, 134217728, 1073741824)
ALTOGETHER_BYTES = 2 << 30


def figure_name(plane: str, direction: str, size: int) -> str:
    """`plane` is same_host or network, `direction` push or pull."""
    return f"{plane}_{direction}_{size}_GBps"


def timed_transfers(options: Options, size: int) -> int:
    """How often a tensor crosses for one figure: 2 GiB altogether, within limits."""
    return 1 if options.quick else min(max(ALTOGETHER_BYTES // size, 3), 10000)


def measure_gbps(options: Options, size: int, transfer: Callable[[], object]) -> float:
    """GB/s at the median time of a transfer, after a tenth as many, and one, not timed."""
    transfer()
    return size / measure_latency(timed_transfers(options, size), transfer).p50_us / 1e3
