#!/usr/bin/python3
"""What torch.distributed.rpc costs: two processes on this host, TensorPipe as it comes."""

from __future__ import annotations

import collections
import time
from typing import Deque

import torch
import torch.distributed.rpc as rpc

import peer_options
import peer_program

FIGURES = (
    "noop_sync_p50_us",
    "noop_sync_p99_us",
    "noop_async64_per_s",
    "remote_first_method_p50_us",
    "rref_method_p50_us",
)
CALLS_IN_FLIGHT = 64
SERVER = "server"


def noop() -> None:
    """Runs at the server."""


class Holder:
    """The remote object of the two reference figures."""

    def __init__(self) -> None:
        self._value = 1

    def get(self) -> int:
        return self._value


def measure_noop_async(options: peer_options.Options) -> float:
    """Waits for the oldest call and starts a new one in its place, so the window is always full."""
    in_flight: Deque[torch.futures.Future] = collections.deque(
        rpc.rpc_async(SERVER, noop) for _ in range(CALLS_IN_FLIGHT)
    )

    def replace_oldest() -> None:
        in_flight.popleft().wait()
        in_flight.append(rpc.rpc_async(SERVER, noop))

    warm = time.perf_counter() + options.rate_warm_up_s
    while time.perf_counter() < warm:
        replace_oldest()
    completions = 0
    start = now = time.perf_counter()
    while now < start + options.rate_window_s:
        replace_oldest()
        completions += 1
        now = time.perf_counter()
    torch.futures.wait_all(list(in_flight))
    return completions / (now - start)


def measure(options: peer_options.Options) -> None:
    """Runs at the client."""
    if options.wants("noop_sync_p50_us", "noop_sync_p99_us"):
        latency = peer_options.measure_latency(
            options.latency_calls, lambda: rpc.rpc_sync(SERVER, noop)
        )
        options.report("noop_sync_p50_us", latency.p50_us)
        options.report("noop_sync_p99_us", latency.p99_us)
    if options.wants("noop_async64_per_s"):
        options.report("noop_async64_per_s", measure_noop_async(options))
    if options.wants("remote_first_method_p50_us"):
        latency = peer_options.measure_latency(
            options.latency_calls, lambda: rpc.remote(SERVER, Holder).rpc_sync().get()
        )
        options.report("remote_first_method_p50_us", latency.p50_us)
    if options.wants("rref_method_p50_us"):
        holder = rpc.remote(SERVER, Holder)
        latency = peer_options.measure_latency(
            options.latency_calls, lambda: holder.rpc_sync().get()
        )
        options.report("rref_method_p50_us", latency.p50_us)


if __name__ == "__main__":
    peer_program.run_workers(
        ("client", SERVER), measure, peer_options.parse_options(FIGURES, __doc__ or "")
    )
