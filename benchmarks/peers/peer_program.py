"""What the Python peers share: arguments, timing, lines of JSON, processes."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

# Each process computes on one thread. BLAS reads these when torch is imported, which is below.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The name of this host need not resolve, in a container for example; loopback is always there.
os.environ.setdefault("TP_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed.rpc as rpc  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    figures: tuple[str, ...]
    quick: bool

    @property
    def latency_calls(self) -> int:
        """Calls per latency figure, beside the tenth that is made first to warm up."""
        return 400 if self.quick else 4000

    @property
    def rate_warm_up_s(self) -> float:
        return 0.05 if self.quick else 0.3

    @property
    def rate_window_s(self) -> float:
        return 0.2 if self.quick else 1.5

    def wants(self, *figures: str) -> bool:
        """Whether any of `figures` was asked for."""
        return any(figure in self.figures for figure in figures)

    def report(self, figure: str, value: float) -> None:
        """Writes one figure as a line of JSON to stdout, if it was asked for."""
        if self.wants(figure):
            print(json.dumps({"figure": figure, "value": value}), flush=True)


def parse_options(known: Sequence[str], description: str) -> Options:
    """Reads `--figures a,b,c` and `--quick`; the default is every one of `known`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--figures", default=",".join(known), help="measure these only: a,b,c")
    parser.add_argument("--quick", action="store_true", help="few calls: shows that it works")
    arguments = parser.parse_args()
    figures = tuple(name for name in arguments.figures.split(",") if name)
    for figure in figures:
        if figure not in known:
            parser.error(f"does not measure '{figure}'; it measures {', '.join(known)}")
    return Options(figures, arguments.quick)


@dataclass(frozen=True)
class Latency:
    p50_us: float
    p99_us: float


def measure_latency(calls: int, call: Callable[[], object]) -> Latency:
    """Times `calls` calls one by one, after a tenth as many that are not timed."""
    for _ in range(calls // 10):
        call()
    times_us = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times_us.append((time.perf_counter() - start) * 1e6)
    times_us.sort()
    return Latency(times_us[len(times_us) // 2], times_us[len(times_us) * 99 // 100])


def run_workers(names: Sequence[str], body: Callable[[Options], None], options: Options) -> None:
    """Starts one RPC worker process per name; `body` runs in the first, the others serve it.

    The processes meet through a file, so no port has to be guessed. Ends with an exception, and the
    program with a status other than 0, when any of the processes failed.
    """
    with tempfile.TemporaryDirectory(prefix="torch-peer-") as folder:
        rendezvous = (Path(folder) / "rendezvous").as_uri()
        arguments = (tuple(names), rendezvous, body, options)
        mp.spawn(_run_worker, args=arguments, nprocs=len(names), join=True)


def _run_worker(
    rank: int,
    names: Sequence[str],
    rendezvous: str,
    body: Callable[[Options], None],
    options: Options,
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rpc.init_rpc(
        names[rank],
        rank=rank,
        world_size=len(names),
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=rendezvous, rpc_timeout=60
        ),
    )
    if rank == 0:
        body(options)
    rpc.shutdown()
