"""Runs the programs that measure, and what builds and installs them, each with a time limit."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

from benchlib.errors import BenchError

TAIL_LINES = 15


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    status: int
    stdout: str
    stderr: str


def run_process(
    what: str,
    command: Sequence[str],
    timeout_s: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Runs `command` to its end. Nothing that it started outlives this call.

    Raises BenchError, naming `what`, when it cannot be started or does not end in time.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=cwd,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,
        )
    except OSError as error:
        raise BenchError(f"{what} cannot be started: {error.strerror} ({command[0]})") from error
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        stdout, stderr = process.communicate()
        tail = quote_tail(stderr or stdout)
        limit = f"it did not end within {timeout_s:g} s"
        raise BenchError(f"{what} was killed: {limit}{tail}") from None
    finally:
        _kill_group(process)
        process.wait()
    return Finished(process.returncode, stdout, stderr)


def _kill_group(process: subprocess.Popen[str]) -> None:
    # The process leads a group of its own, and its servers are in it. Killing the leader alone
    # would leave them running, and the next figures would be taken beside them.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def describe_status(status: int) -> str:
    """`exit status 3`, or the signal's name when a signal ended the process."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


def quote_tail(text: str) -> str:
    """The last lines of what a process wrote, as the end of a sentence about it."""
    lines = text.rstrip().splitlines()[-TAIL_LINES:]
    if not lines:
        return "; it wrote nothing to stderr"
    return "; the end of what it wrote:\n" + "\n".join(f"  | {line}" for line in lines)


def measure(
    name: str, command: Sequence[str], figures: Sequence[str], quick: bool, timeout_s: float
) -> dict[str, float]:
    """Runs one program once and returns the figures that it was asked for.

    Raises BenchError when it fails, takes longer than `timeout_s`, or does not print each figure.
    """
    arguments = [*command, "--figures", ",".join(figures)]
    if quick:
        arguments.append("--quick")
    finished = run_process(name, arguments, timeout_s)
    if finished.status != 0:
        raise BenchError(
            f"{name} ended with {describe_status(finished.status)} while it measured "
            f"{', '.join(figures)}{quote_tail(finished.stderr)}"
        )
    values = parse_figures(name, finished.stdout)
    for figure in figures:
        if figure not in values:
            raise BenchError(
                f"{name} ended without the figure {figure}{quote_tail(finished.stderr)}"
            )
    return {figure: values[figure] for figure in figures}


def parse_figures(name: str, stdout: str) -> dict[str, float]:
    """Reads lines of `{"figure": "...", "value": number}`. Raises BenchError on any other line."""
    values: dict[str, float] = {}
    for line in stdout.splitlines():
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            figure, value = entry["figure"], float(entry["value"])
        except (ValueError, TypeError, KeyError):
            quoted = repr(line[:200])
            raise BenchError(f"{name} printed a line that is not a figure: {quoted}") from None
        if not math.isfinite(value) or value <= 0:
            raise BenchError(f"{name} printed {figure} = {value}, which no measurement can give")
        values[figure] = value
    return values
