"""Ports for tests, chosen as free_port() of processes.h chooses them."""

from __future__ import annotations

import random
import socket

# Below those that the system gives to whoever asks for any (Linux: 32768 and up).
FIRST = 20000
COUNT = 12000

# The abstract names stay taken while this process runs.
_reserved: list[socket.socket] = []


def free_port() -> int:
    """A loopback port on which nobody listens, and which no other test gets while this process runs."""
    for _ in range(COUNT):
        port = random.randrange(FIRST, FIRST + COUNT)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0sinew-test-port-{port}")
        except OSError:
            name.close()
            continue
        _reserved.append(name)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no free port between {FIRST} and {FIRST + COUNT}")
