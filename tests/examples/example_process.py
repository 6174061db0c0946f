"""What the tests that start the example programs share."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence


# What would tell a program its place.
LAUNCHER_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_RANK", "OMPI_", "PMI", "MPI_LOCAL", "SLURM_",
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it wrote."""

    status: int
    stdout: str
    stderr: str


def environment(**changes: str) -> dict[str, str]:
    """That of this process, without what would tell the examples a place, and with `changes`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(LAUNCHER_VARIABLES)
    }
    return {**kept, **changes}


def start(
    command: Sequence[str | Path],
    variables: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Starts a program as the leader of a session."""
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


def place(port: int, rank: int, world_size: int) -> dict[str, str]:
    """What tells a process its place in a job of this host, and that the job has no token."""
    return {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world_size), "RANK": str(rank),
        "SINEW_JOB_TOKEN": "",
    }  # fmt: skip


def start_by_hand(
    commands: Sequence[Sequence[str | Path]], port: int, cwd: str | None = None, stderr: int = subprocess.PIPE
) -> list[subprocess.Popen[str]]:
    """Starts the processes of a job, each by its own command, in the order of their ranks."""
    return [
        start(command, place(port, rank, len(commands)), cwd, stderr) for rank, command in enumerate(commands)
    ]


def run_alice_and_bob(program: Path, port: int) -> dict[str, Ended]:
    """Starts the program twice, as each of two workers, and waits for both."""
    alice, bob = start_by_hand([[program, "alice"], [program, "bob"]], port)
    return {"alice": finish(alice, 60), "bob": finish(bob, 60)}


def run_alice_and_bob_together(sinew_run: Path, program: Path) -> Ended:
    """The same by one command."""
    roles = (["--role", f"{name}=1", program, name] for name in ("alice", "bob"))
    return run([sinew_run, *(word for role in roles for word in role)], 60)


def members(process: subprocess.Popen[str], program: str) -> list[int]:
    """Process ids of what `process` has started and whose program's name begins so."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == process.pid:
                if (entry / "comm").read_text().startswith(program):
                    found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


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
