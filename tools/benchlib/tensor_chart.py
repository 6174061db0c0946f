"""The chart of `tools/bench tensors`: GB/s by size, for each plane and direction."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Sequence

from benchlib import chart
from benchlib.errors import BenchError
from benchlib.pairing import Row
from benchlib.suites import TENSOR_BYTES, TENSOR_DIRECTIONS, TENSOR_PLANES, tensor_figure

_TITLES = {
    ("same_host", "push"): "Same host: argument of a call",
    ("same_host", "pull"): "Same host: result of a call",
    ("network", "push"): "TCP over loopback: argument of a call",
    ("network", "pull"): "TCP over loopback: result of a call",
}
_OURS = "Sinew"
_NAMES = {"limit": "kernel limit", "grpc": "gRPC", "capnp": "Cap'n Proto", "ucx": "UCX"}
_CAPTION = "Tensors between two processes of one host: bytes of a tensor against GB/s"


def panels_of(rows: Sequence[Row]) -> list[chart.Panel]:
    """One panel for each plane and direction that `rows` have figures of."""
    peers = list(dict.fromkeys(row.peer for row in rows if row.peer))
    panels = []
    for plane in TENSOR_PLANES:
        for direction in TENSOR_DIRECTIONS:
            curves: dict[str, list[tuple[float, float]]] = {}
            for size in TENSOR_BYTES:
                name = tensor_figure(plane, direction, size)
                of_figure = [row for row in rows if row.figure.name == name]
                if of_figure:
                    # Ours was measured beside each peer.
                    ours = statistics.median(row.ours for row in of_figure)
                    curves.setdefault(_OURS, []).append((size, ours))
                for peer in peers:
                    for row in of_figure:
                        if row.peer == peer and row.theirs is not None:
                            curves.setdefault(_NAMES.get(peer, peer), []).append((size, row.theirs))
            if curves:
                panels.append(chart.Panel(_TITLES[plane, direction], curves))
    return panels


def write(rows: Sequence[Row], path: Path) -> None:
    """Draws `rows` into the file `path`."""
    text = chart.draw(panels_of(rows), _CAPTION)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BenchError(f"the chart cannot be written: {error.strerror} ({path})") from error
