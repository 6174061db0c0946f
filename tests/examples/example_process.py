"""What the tests that start the example programs share."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it wrote."""

    status: int
    stdout: str
    stderr: str


def environment(**changes: str) -> dict[str, str]:
    """That of this process, without what would steer the examples, and with `changes`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "SINEW_BUILD_DIR")
    }
    return {**kept, **changes}


def start(
    command: Sequence[str | Path],
    variables: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Starts a program as the leader of a process group."""
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment(**(variables or {})),
        cwd=cwd,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], timeout_s: float) -> Ended:
    """Waits for the end. What the program has started does not outlive this call."""
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        kill_group(process)
        stdout, stderr = process.communicate()
        raise AssertionError(
            f"{process.args!r} did not end within {timeout_s:g} s\nstdout:\n{stdout}\nstderr:\n{stderr}"
        ) from None
    finally:
        kill_group(process)
    return Ended(process.returncode, stdout, stderr)


def run_alice_and_bob(program: Path, port: int) -> dict[str, Ended]:
    """Starts the program twice, as each of two workers, and waits for both."""
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
    }
    bob = start([program, "bob"], {**common, "RANK": "1"})
    alice = start([program, "alice"], {**common, "RANK": "0"})
    return {"alice": finish(alice, 60), "bob": finish(bob, 60)}


def kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(
    command: Sequence[str | Path],
    timeout_s: float = 120,
    variables: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Ended:
    return finish(start(command, variables, cwd), timeout_s)
