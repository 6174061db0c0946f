"""What the Python peers share and what needs no torch: arguments, timing, lines of JSON."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import Callable, Sequence


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
