"""A program on a host of a lab: what it says, how it ends, and signals to it."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from typing import Callable, Pattern


class LabError(Exception):
    """Something that a test asked of a lab did not happen."""


class Timeout(LabError):
    """Not within the limit. The text ends with what the program said last."""


class Program:
    """Made by Host.start(). Its two outputs are one sequence of lines. Thread-safe."""

    # What a failure shows of the output.
    SHOWN_LINES = 20

    def __init__(self, name: str, process: subprocess.Popen[bytes], send: Callable[[int], None]) -> None:
        """`process`: what stands for the program on this machine: ends when it does, has its output, and ends with
        its status. `send` sends a signal to the program and all that it has started."""
        self.name = name
        self._process = process
        self._send = send
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._seen = 0
        self._ended = False
        self._reader = threading.Thread(target=self._read, name=f"reads {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            with self._changed:
                self._lines.append(raw.decode("utf-8", "replace").rstrip("\r\n"))
                self._changed.notify_all()
        self._process.stdout.close()
        self._process.wait()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def lines(self) -> list[str]:
        """All that it has said so far."""
        with self._changed:
            return list(self._lines)

    @property
    def is_running(self) -> bool:
        """Also while it is paused."""
        with self._changed:
            return not self._ended

    def expect(self, pattern: str | Pattern[str], timeout_s: float) -> re.Match[str]:
        """Waits for a line in which the pattern is found, and gives that. It looks behind the line that the last
        expect() has found, so each line is found once, in order. Timeout if there is none in time; LabError if the
        program has ended without it."""
        deadline = time.monotonic() + timeout_s
        wanted = re.compile(pattern)
        looked = self._seen
        with self._changed:
            while True:
                while looked < len(self._lines):
                    found = wanted.search(self._lines[looked])
                    looked += 1
                    if found is not None:
                        self._seen = looked
                        return found
                if self._ended:
                    raise LabError(f"{self.name} has ended with {self.status} before {wanted.pattern!r}{self._last()}")
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise Timeout(f"{self.name} has not said {wanted.pattern!r} within {timeout_s:g} s{self._last()}")
                self._changed.wait(left_s)

    def catch_up(self) -> None:
        """The next expect() looks at what is said from now on only."""
        with self._changed:
            self._seen = len(self._lines)

    def _last(self) -> str:
        return "; it said last:\n" + "\n".join(f"  {line}" for line in self._lines[-self.SHOWN_LINES :])

    def stay(self, duration_s: float) -> None:
        """Lets time pass while it runs, as for a fault of a certain length. Raises LabError if the program ends meanwhile."""
        deadline = time.monotonic() + duration_s
        with self._changed:
            while not self._ended and (left_s := deadline - time.monotonic()) > 0:
                self._changed.wait(left_s)
            if self._ended:
                raise LabError(f"{self.name} has ended with {self.status} within {duration_s:g} s{self._last()}")

    @property
    def status(self) -> int | None:
        """As of a shell: its exit code, or 128 and the number of the signal that ended it. None while it runs."""
        status = self._process.poll()
        return 128 - status if status is not None and status < 0 else status

    def wait(self, timeout_s: float) -> int:
        """Its status, when it has ended and all that it said has come. Raises Timeout."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._ended:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise Timeout(f"{self.name} has not ended within {timeout_s:g} s{self._last()}")
                self._changed.wait(left_s)
        status = self.status
        assert status is not None
        return status

    def signal(self, number: signal.Signals) -> None:
        """To the program and all that it has started. Nothing happens when it has ended."""
        if self._process.poll() is None:
            self._send(number)

    def terminate(self) -> None:
        """Asks it to end (SIGTERM)."""
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once (SIGKILL), also while it is paused, and waits for that."""
        self.signal(signal.SIGKILL)
        self.wait(timeout_s=60)

    def pause(self) -> None:
        """It alone stands still, until resume(); other programs of its host go on."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
