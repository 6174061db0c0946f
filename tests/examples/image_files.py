"""Pictures for the tests of the examples that learn from them."""

from __future__ import annotations

import random
import struct
import zlib
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


def write_image_folder(folder: Path, classes: int, train: int, val: int) -> None:
    """PNG files in folders train and val, with a folder for each class ("a", "b", ...): noise in which one colour is strong."""
    draw = random.Random(4)
    for part, count in (("train", train), ("val", val)):
        for label in range(classes):
            of_class = folder / part / chr(ord("a") + label)
            of_class.mkdir(parents=True)
            for number in range(count):
                (of_class / f"{number}.png").write_bytes(_png(draw, draw.randrange(30, 50), draw.randrange(30, 50), label % 3))


def _png(draw: random.Random, width: int, height: int, strong: int) -> bytes:
    rows = b""
    for _ in range(height):
        pixels = bytearray(value // 3 for value in draw.randbytes(3 * width))
        pixels[strong::3] = bytes(value + 150 for value in pixels[strong::3])
        rows += b"\0" + pixels
    chunks = ((b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
