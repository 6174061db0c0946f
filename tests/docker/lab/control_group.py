"""Control groups of this machine, of version 1 or 2, for the programs of a host that is no container."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from lab.hosts import Unsupported
from lab.program import LabError

_TOP = Path("/sys/fs/cgroup")
# By controller: what version 1 calls its limit, and version 2.
_FILES = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max")}
_TIMEOUT_S = 60


def make_group(name: str, limits: dict[str, int]) -> list[Path]:
    """A group with limits by controller, or the one that is there with others. What a process writes its number to that
    enters it. Raises Unsupported where this machine lets nobody."""
    entries = []
    for controller, most in limits.items():
        is_first = (_TOP / controller / "cgroup.procs").exists()
        folder = (_TOP / controller if is_first else _TOP) / name
        try:
            folder.mkdir(exist_ok=True)
            (folder / _FILES[controller][0 if is_first else 1]).write_text(str(most))
        except OSError as error:
            raise Unsupported(f"no control group with limits of {controller} can be made here: {error}") from None
        if folder / "cgroup.procs" not in entries:
            entries.append(folder / "cgroup.procs")
    return entries


def remove_groups(prefix: str) -> None:
    """Those whose names begin so. Their programs must have been killed."""
    deadline = time.monotonic() + _TIMEOUT_S
    while found := [*_TOP.glob(f"{prefix}*"), *_TOP.glob(f"*/{prefix}*")]:
        if time.monotonic() > deadline:
            raise LabError(f"control groups are still in use after {_TIMEOUT_S} s: {', '.join(map(str, found))}")
        for folder in found:
            # Who was killed is in it for a moment yet.
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        time.sleep(0.005)
