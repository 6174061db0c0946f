"""What tests of sinew-run have in common. Their arguments: SINEW_RUN WORKER, then those of unittest.

WORKER --drive call: calls all workers of the job that its environment tells of; --drive die: the
same, but rank 1 ends with 5 before it has joined; see drive() in spawn_functions.cc for others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Callable

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

RUN = Path(sys.argv[1])
WORKER = Path(sys.argv[2])
# Only a failing test waits as long.
PATIENCE_S = 120


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


def eventually(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come")
        time.sleep(0.005)


def state(pid: int) -> str:
    """The letter of /proc/PID/stat; Z if it is no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def children(parent: int) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        # Those that have just ended are not there.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(file.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(file.parent.name))
    return found


def restore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def pids_in(folder: Path) -> list[int]:
    return [int(file.read_text()) for file in sorted(folder.glob("pid*"))]


# Writes its process id to a file of its own in $DIR; whole when it is seen.
ANNOUNCE = 'echo $$ >"$DIR/.$$"; mv "$DIR/.$$" "$DIR/pid.$RANK.$$"; '
WAIT = ANNOUNCE + "while :; do sleep 1000 & wait; done"


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, *words: str | Path, **options: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(RUN), *map(str, words)],
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                "env": {**environment(), "DIR": str(self.folder)},
                # Whoever starts this test may have it ignore some.
                "preexec_fn": restore_signals,
                **options,
            },
        )
        self.addCleanup(self.end, process)
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.kill()
        process.communicate()

    def run_it(self, *words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def wait_for_pids(self, count: int) -> list[int]:
        eventually(lambda: len(pids_in(self.folder)) == count, f"the start of {count} processes")
        return pids_in(self.folder)

    def assert_gone(self, pids: list[int]) -> None:
        for pid in pids:
            eventually(lambda: state(pid) == "Z", f"the end of process {pid}")


def main() -> None:
    del sys.argv[1:3]
    unittest.main()
