"""The workers of a job, each on a host of its own, and what befalls these."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Sequence, TextIO

from chaoslib.plan import Blow, Fault
from churnlib.job import Record
from lab.hosts import Host, Lab
from lab.program import LabError, Program

SERVERS = ("ps0", "ps1")
TRAINER = "trainer"
# The first one founds the job, and owns neither parameters nor checkpoints.
NAMES = ("founder", *SERVERS, TRAINER, "worker0", "worker1")
_PORT = 29500


class ChaosJob:
    """A job of NAMES. Its folder is the lab's. For one thread."""

    tool = "chaos"

    def __init__(self, lab: Lab, worker: Path, lease_s: float, file: TextIO) -> None:
        self.names: Sequence[str] = NAMES
        self.record = Record(file)
        self.unexpected: list[str] = []
        self._lab = lab
        self._lease_s = lease_s
        self._hosts: list[Host] = [lab.add_host(name) for name in NAMES]
        self._programs: dict[str, Program] = {}
        # Of each, how many lines are in the record; and what it has answered, by number.
        self._read: dict[str, int] = {}
        self._answers: dict[str, dict[int, str]] = {name: {} for name in NAMES}
        self._may_end: set[str] = set()
        self._asked = 0
        # Programs in containers are another user's, and have no other files of this machine.
        self._worker = Path(shutil.copy(worker, lab.folder))
        for folder in ("history", "checkpoints"):
            (lab.folder / folder).mkdir()
            (lab.folder / folder).chmod(0o777)

    def start(self, name: str) -> None:
        words = [f"name={name}", f"init=tcp://{self._hosts[0].address}:{_PORT}", f"lease_ms={int(self._lease_s * 1000)}"]
        words += [f"folder={self._lab.folder}", f"servers={','.join(SERVERS)}"]
        if name == NAMES[0]:
            words.append("rank=0")
        if name in SERVERS:
            words.append("serves=model")
        if name == TRAINER:
            words.append("trains=yes")
        self._may_end.discard(name)
        self._read[name] = 0
        self._programs[name] = self._lab.hosts[name].start([self._worker, *words])
        self.record.note(name, "process begins")

    def begin(self, number: int, blow: Blow) -> None:
        name, host = NAMES[number], self._hosts[number]
        self.record.note(name, f"is {blow}")
        if blow.fault in (Fault.KILL, Fault.POWER):
            self._may_end.add(name)
            if blow.fault is Fault.POWER:
                host.kill()
            self._programs[name].kill()
        elif blow.fault in (Fault.PAUSE_SHORT, Fault.PAUSE_ABOUT, Fault.PAUSE_LONG):
            # As churnlib.verdict knows it.
            self.record.note(name, "is stopped")
            host.pause()
        elif blow.fault in (Fault.CUT_SHORT, Fault.CUT_LONG):
            host.cut()
        elif blow.fault is Fault.DEAF_TO_ONE:
            host.drop(1.0, to=self._hosts[int(blow.amount)])
        elif blow.fault is Fault.LOSSY:
            host.drop(blow.amount)
        else:
            host.rate(int(blow.amount))

    def end(self, number: int, blow: Blow) -> None:
        name, host = NAMES[number], self._hosts[number]
        self.record.note(name, f"is no longer {blow}")
        if blow.fault is Fault.POWER:
            host.restart()
        host.resume()
        host.heal()
        if blow.fault in (Fault.KILL, Fault.POWER):
            self.tend()
            self.start(name)

    def tend(self) -> None:
        """Notes what they have said, and who has ended by itself."""
        for name, program in list(self._programs.items()):
            ended = not program.is_running
            lines = program.lines
            for line in lines[self._read[name] :]:
                self._note(name, line)
            self._read[name] = len(lines)
            if ended and name not in self._may_end:
                self._may_end.add(name)
                self.record.note(name, f"process ended with {program.status}")
                self.unexpected.append(f"{name} ended by itself: {program.status}")

    def _note(self, name: str, line: str) -> None:
        answer = re.fullmatch(r"(\d+) ((?:ok|error).*)", line)
        if answer is not None:
            self._answers[name][int(answer[1])] = answer[2]
        elif line.startswith("event "):
            self.record.note(name, line[len("event ") :])
        else:
            self.record.note(name, "log " + line)

    def ask(self, command: str, timeout_s: float = 20.0, whom: str = "all") -> dict[str, str]:
        """Of all, or one: the answers, by name."""
        self._asked += 1
        file = self._lab.folder / "command"
        file.with_suffix(".new").write_text(f"{self._asked} {whom} {command}\n")
        file.with_suffix(".new").rename(file)
        asked = NAMES if whom == "all" else (whom,)
        deadline = time.monotonic() + timeout_s
        while True:
            self.tend()
            missing = [name for name in asked if self._asked not in self._answers[name]]
            if not missing or time.monotonic() > deadline:
                none = f"error: no answer within {timeout_s:g} s"
                return {name: self._answers[name].pop(self._asked, none) for name in asked}
            time.sleep(0.05)

    def history_files(self) -> list[Path]:
        # In the order of their times: a worker's later ones come after its earlier ones.
        return sorted((self._lab.folder / "history").iterdir(), key=lambda path: path.name.rpartition(".")[2])

    def finish(self) -> None:
        """Ends all."""
        self.tend()
        for name, program in self._programs.items():
            self._may_end.add(name)
            try:
                program.kill()
            except LabError as error:
                self.unexpected.append(f"{name}: {error}")
        self.tend()
