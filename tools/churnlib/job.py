"""The processes of a job, and what is done to them."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Sequence, TextIO

from churnlib.plan import Action


@dataclass
class Record:
    """What workers have told by themselves, what they wrote to stderr ("log ..."), and what happened
    to their processes; in order. Each line is written to `file` too, at once. Thread-safe."""

    file: TextIO
    begin: float = field(default_factory=time.monotonic)
    lines: list[tuple[float, str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, worker: str, text: str) -> None:
        with self.lock:
            after_s = time.monotonic() - self.begin
            self.lines.append((after_s, worker, text))
            self.file.write(f"{after_s:.3f} {worker} {text}\n")
            self.file.flush()

    def texts(self, kind: str) -> list[str]:
        """`worker rest` of all events of that kind."""
        with self.lock:
            return [
                f"{worker} {text[len(kind):].strip()}"
                for _, worker, text in self.lines
                if text.split(" ", 1)[0] == kind
            ]


class WorkerProcess:
    """One process. Its lines that begin with "event" go to the record, the others are answers."""

    def __init__(self, name: str, command: Sequence[str], record: Record) -> None:
        self.name = name
        self.record = record
        self.may_end = False
        self._asked = 0
        self._answers: queue.Queue[str] = queue.Queue()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.pid = self._process.pid
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            if line.startswith("event "):
                self.record.note(self.name, line[len("event ") :])
            else:
                self._answers.put(line)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            self.record.note(self.name, "log " + raw.decode("utf-8", "replace").rstrip("\n"))

    def send(self, command: str) -> bool:
        """False if it has ended."""
        self._asked += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{self._asked} {command}\n".encode())
            self._process.stdin.flush()
            return True
        except BrokenPipeError:
            return False

    def receive(self, timeout_s: float) -> str:
        """The answer to the last command: "ok ...", or "error ..."."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return f"error: no answer within {timeout_s:g} s"
            number, _, answer = line.partition(" ")
            # An answer to an older one may have come too late.
            if number == str(self._asked):
                return answer

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.may_end = True
        self._process.kill()
        self._process.wait()

    @property
    def status(self) -> int | None:
        """None while it runs; less than zero: the number of a signal."""
        return self._process.poll()

    def close(self) -> None:
        """Call when it has ended."""
        for reader in self._readers:
            reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass


class Job:
    """All workers. Not thread-safe."""

    tool = "churn"
    # A worker that is made to leave has so long beside what it was given.
    LEAVE_LIMIT_S = 60.0

    def __init__(
        self, names: Sequence[str], command_of: Callable[[int], Sequence[str]], file: TextIO
    ) -> None:
        self.record = Record(file)
        self.names = names
        self.unexpected: list[str] = []
        self._command_of = command_of
        self._processes: list[WorkerProcess | None] = [None] * len(names)
        self._due: dict[int, float] = {}  # who is to start again when it has left; its deadline

    def do(self, worker: int, action: Action, lease_s: float) -> None:
        self.record.note(self.names[worker], f"is {action.value}")
        process = self._processes[worker]
        if action is Action.START:
            if process is not None and process.status is None and not process.may_end:
                return None  # it died by itself and was started again, or could not be reached
            self._due[worker] = time.monotonic() + self.LEAVE_LIMIT_S
            return self.tend()
        if process is None or process.status is not None:
            return None  # it has died by itself; tend() finds that
        if action is Action.KILL:
            process.kill()
        elif action in (Action.LEAVE, Action.LEAVE_HARD):
            process.may_end = True
            how = "graceful" if action is Action.LEAVE else "hard"
            process.send(f"leave {how} {int(lease_s * 1000)}")
        else:
            process.signal(signal.SIGCONT if action is Action.GO_ON else signal.SIGSTOP)
        return None

    def tend(self) -> None:
        """Notes who has died by itself, and starts those that are to be there and are not."""
        for worker, process in enumerate(self._processes):
            if process is not None and process.status is not None:
                self._note_end(process)
                self._processes[worker] = process = None
            if worker in self._due and process is not None:
                if time.monotonic() > self._due[worker]:
                    self.unexpected.append(f"{process.name} did not leave (process {process.pid})")
                    process.kill()
            if worker in self._due and process is None:
                del self._due[worker]
                self._start(worker)

    def _note_end(self, process: WorkerProcess) -> None:
        process.close()
        status = process.status
        self.record.note(process.name, f"process {process.pid} ended with {status}")
        if process.may_end and status in (0, -signal.SIGKILL):
            return
        self.unexpected.append(f"{process.name} ended by itself (process {process.pid}): {status}")
        # The job goes on.
        self._due.setdefault(self.names.index(process.name), time.monotonic() + self.LEAVE_LIMIT_S)

    def _start(self, worker: int) -> None:
        name = self.names[worker]
        process = WorkerProcess(name, self._command_of(worker), self.record)
        self._processes[worker] = process
        self.record.note(name, f"process {process.pid} begins")

    def ask(self, command: str, timeout_s: float = 20.0) -> dict[str, str]:
        """Of all: the answers, by name. All work on it at the same time."""
        asked = [process for process in self._processes if process is not None]
        reached = [process for process in asked if process.send(command)]
        deadline = time.monotonic() + timeout_s
        answers = {name: "error it is not there" for name in self.names}
        for process in reached:
            left = max(0.1, deadline - time.monotonic())
            answers[process.name] = process.receive(left)
        return answers

    def resident_MiB(self) -> float:
        """Of all processes together."""
        pages = 0
        for process in self._processes:
            if process is None:
                continue
            try:
                pages += int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            except OSError:
                pass
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def end(self) -> None:
        """Kills all. Idempotent."""
        for worker, process in enumerate(self._processes):
            if process is not None:
                process.kill()
                process.close()
                self._processes[worker] = None
