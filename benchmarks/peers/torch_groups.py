#!/usr/bin/python3
"""torch.distributed over gloo: collectives, data parallelism, and torch.multiprocessing.spawn."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Callable

# Each process computes on one thread. BLAS reads these when torch is imported, which is below.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The name of this host need not resolve, in a container for example; loopback is always there.
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import group_figures  # noqa: E402
import peer_options  # noqa: E402
from group_figures import BYTES, DDP_RANKS, RANKS, RING_RANKS  # noqa: E402

FIGURES = (
    *(group_figures.all_reduce_figure(size, ranks) for ranks in RANKS for size in BYTES),
    group_figures.DDP_FIGURE,
    *(group_figures.ring_figure(size) for size in BYTES),
    group_figures.SPAWN_FIGURE,
)
BATCH = 8
CLASSES = 10

Body = Callable[[peer_options.Options], None]


def run_group(ranks: int, body: Body, options: peer_options.Options) -> None:
    """Runs `body` in the processes of a group. They meet through a file: no port is guessed."""
    with tempfile.TemporaryDirectory(prefix="torch-peer-") as folder:
        rendezvous = (Path(folder) / "rendezvous").as_uri()
        mp.spawn(_run_rank, args=(ranks, rendezvous, body, options), nprocs=ranks, join=True)


def _run_rank(
    rank: int, ranks: int, rendezvous: str, body: Body, options: peer_options.Options
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=ranks)
    body(options)
    dist.destroy_process_group()


def report_p50_us(
    options: peer_options.Options, figure: str, size: int, reduce: Callable[[], object]
) -> None:
    """Measures at all ranks, which must do the same, and reports what the first one saw."""
    dist.barrier()
    latency = peer_options.measure_latency(group_figures.timed_operations(options, size), reduce)
    if dist.get_rank() == 0:
        options.report(figure, latency.p50_us)


def measure_all_reduce(options: peer_options.Options) -> None:
    for size in BYTES:
        figure = group_figures.all_reduce_figure(size, dist.get_world_size())
        if options.wants(figure):
            tensor = torch.zeros(size // 4)
            report_p50_us(options, figure, size, lambda: dist.all_reduce(tensor))


def ring_all_reduce(tensor: torch.Tensor) -> None:
    """Sums in place: each rank collects the sum of one chunk, then all chunks go round."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    chunks = list(tensor.chunk(ranks))
    arriving = torch.empty_like(chunks[0])
    for step in range(ranks - 1):
        sent = dist.isend(chunks[(rank - step) % ranks], right)
        dist.recv(arriving, left)
        chunks[(rank - step - 1) % ranks] += arriving
        sent.wait()
    for step in range(ranks - 1):
        sent = dist.isend(chunks[(rank - step + 1) % ranks], right)
        dist.recv(chunks[(rank - step) % ranks], left)
        sent.wait()


def measure_ring(options: peer_options.Options) -> None:
    for size in BYTES:
        figure = group_figures.ring_figure(size)
        if options.wants(figure):
            tensor = torch.zeros(size // 4)
            report_p50_us(options, figure, size, lambda: ring_all_reduce(tensor))


class Block(nn.Module):
    """Two convolutions of 3 x 3, and what came in added to what comes out."""

    def __init__(self, planes_in: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(planes_in, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or planes_in != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(planes_in, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.bn1(self.conv1(images)))
        return torch.relu(self.bn2(self.conv2(out)) + self.shortcut(images))


def resnet18() -> nn.Module:
    """ResNet-18 for images of 32 x 32, 11.2 million parameters."""
    layers = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    planes_in = 64
    for planes, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(planes_in, planes, stride), Block(planes, planes, 1)]
        planes_in = planes
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(planes_in, CLASSES)
    )


def measure_ddp(options: peer_options.Options) -> None:
    model = DistributedDataParallel(resnet18())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(BATCH, 3, 32, 32)
    labels = torch.randint(CLASSES, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()  # the reducer orders its buckets anew after the first pass
    latency = peer_options.measure_latency(group_figures.timed_steps(options), step)
    if dist.get_rank() == 0:
        options.report(group_figures.DDP_FIGURE, latency.p50_us / 1000)


def do_nothing(rank: int) -> None:
    pass


def measure_spawn(options: peer_options.Options) -> None:
    latency = peer_options.measure_latency(
        group_figures.timed_spawns(options),
        lambda: mp.spawn(do_nothing, nprocs=group_figures.SPAWNED, join=True),
    )
    options.report(group_figures.SPAWN_FIGURE, latency.p50_us / 1000)


def main() -> None:
    options = peer_options.parse_options(FIGURES, __doc__ or "")
    for ranks in RANKS:
        if options.wants(*(group_figures.all_reduce_figure(size, ranks) for size in BYTES)):
            run_group(ranks, measure_all_reduce, options)
    if options.wants(group_figures.DDP_FIGURE):
        run_group(DDP_RANKS, measure_ddp, options)
    if options.wants(*(group_figures.ring_figure(size) for size in BYTES)):
        run_group(RING_RANKS, measure_ring, options)
    if options.wants(group_figures.SPAWN_FIGURE):
        measure_spawn(options)


if __name__ == "__main__":
    main()
