"""Ports for tests, chosen as sinew-run chooses them (launch/internal/port_reservation.h)."""

from __future__ import annotations

import random
import socket

# Below those that the system gives to whoever asks for any (Linux: 32768 and up).
FIRST = 20000
COUNT = 12000

# The abstract names stay taken while this process runs.
_reserved: list[socket.socket] = []


def reserve(port: int) -> bool:
    """Takes the port among all that choose theirs as sinew-run does, until this process ends; false if one has it."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0sinew-port-{port}")
    except OSError:
        name.close()
        return False
    _reserved.append(name)
    return True


def free_port() -> int:
    """A loopback port on which nobody listens, and which no other test and no launcher gets while this process runs."""
    for _ in range(COUNT):
        port = random.randrange(FIRST, FIRST + COUNT)
        if not reserve(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no free port between {FIRST} and {FIRST + COUNT}")
