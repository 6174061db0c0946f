"""Pictures for the tests of the examples that learn from them."""

from __future__ import annotations

import random
import struct
from pathlib import Path

SIDE = 28


def write_mnist(folder: Path, train: int, test: int) -> None:
    """MNIST's four files: noise, and a bright bar whose height is that of the class, so that it can be learnt."""
    folder.mkdir(exist_ok=True)
    draw = random.Random(3)
    for part, count in (("train", train), ("t10k", test)):
        labels = bytes(draw.randrange(10) for _ in range(count))
        pixels = b"".join(_picture(draw, label) for label in labels)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, count, SIDE, SIDE) + pixels)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, count) + labels)


def _picture(draw: random.Random, label: int) -> bytes:
    noise = bytes(value // 3 for value in draw.randbytes(SIDE * SIDE))
    top = 2 * (label + 2) * SIDE
    return noise[:top] + bytes([230]) * (2 * SIDE) + noise[top + 2 * SIDE :]
