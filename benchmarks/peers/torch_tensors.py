#!/usr/bin/python3
"""Tensors over torch.distributed.rpc: two processes, with all that TensorPipe has, or TCP only."""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc

import peer_options
import peer_program
from tensor_figures import BYTES, figure_name, measure_gbps

# What TensorPipe is to use; by itself it takes the best that both ends have.
BACKENDS = {
    "same_host": {},
    "network": {"_transports": ["uv"], "_channels": ["basic"]},
}
FIGURES = tuple(
    figure_name(plane, direction, size)
    for plane in BACKENDS
    for direction in ("push", "pull")
    for size in BYTES
)
SERVER = "server"

_kept = torch.empty(0)  # what fetch() returns, at the server


def make_tensor(size: int) -> torch.Tensor:
    return torch.ones(size // 4)


def sink(tensor: torch.Tensor) -> int:
    return tensor.numel()


def keep(size: int) -> None:
    global _kept
    _kept = make_tensor(size)


def fetch() -> torch.Tensor:
    return _kept


def measure(options: peer_options.Options) -> None:
    """Runs at the client; `options` has figures of one plane."""
    plane = next(plane for plane in BACKENDS if options.figures[0].startswith(plane))
    for size in BYTES:
        push, pull = figure_name(plane, "push", size), figure_name(plane, "pull", size)
        if not options.wants(push, pull):
            continue
        tensor = make_tensor(size)
        rpc.rpc_sync(SERVER, keep, args=(size,))
        if options.wants(push):

            def push_once() -> None:
                rpc.rpc_sync(SERVER, sink, args=(tensor,))

            options.report(push, measure_gbps(options, size, push_once))
        if options.wants(pull):
            options.report(
                pull, measure_gbps(options, size, lambda: rpc.rpc_sync(SERVER, fetch))
            )


def main() -> None:
    options = peer_options.parse_options(FIGURES, __doc__ or "")
    for plane, backend in BACKENDS.items():
        figures = tuple(figure for figure in options.figures if figure.startswith(plane))
        if figures:
            of_plane = peer_options.Options(figures, options.quick)
            peer_program.run_workers(("client", SERVER), measure, of_plane, backend)


if __name__ == "__main__":
    main()
