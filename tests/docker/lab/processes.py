"""A lab whose hosts are all this machine: programs that are killed and paused, by anybody, and no faults of networks.

Programs end with the thread that has started them, as in namespaces.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Mapping, Sequence

from lab.hosts import Address, Host, Lab, Reach, Unsupported
from lab.program import LabError, Program


class ProcessHost(Host):
    """Made by ProcessLab.add_host(). Its address is one of the loopback interface, which other hosts have too."""

    def __init__(self, name: str, folder: Path, address: str) -> None:
        self.name = name
        self.folder = folder
        self._address = address
        self._programs: list[Program] = []
        self._is_up = True

    @property
    def address(self) -> str:
        return self._address

    def start(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Program:
        if not self._is_up:
            raise LabError(f"{self.name} is down and starts no program; restart() it first")
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            cwd=self.folder, env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.folder), **(env or {})},
        )  # fmt: skip

        def send(number: signal.Signals) -> None:
            os.killpg(process.pid, number)

        self._programs.append(Program(f"{Path(command[0]).name} at {self.name}", process, send))
        return self._programs[-1]

    def _signal(self, number: signal.Signals) -> None:
        for program in self._programs:
            program.signal(number)

    def kill(self) -> None:
        """The kernel, which goes on, closes connections."""
        self._is_up = False
        for program in self._programs:
            program.kill()
        self._programs.clear()

    def restart(self, address: Address = Address.SAME) -> None:
        if address is Address.NEW:
            raise Unsupported("hosts that are processes have one address")
        self.kill()
        self._is_up = True

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def cut(self) -> None:
        raise Unsupported("hosts that are processes have no network of their own")

    def reconnect(self) -> None: ...

    def drop(self, fraction: float = 1.0, to: Host | None = None) -> None:
        self.cut()

    def refuse(self, source: Host) -> None:
        self.cut()

    def rate(self, kbit_per_s: int | None) -> None:
        self.cut()

    def delay(self, ms: float) -> None:
        self.cut()

    def heal(self) -> None: ...


class ProcessLab(Lab):
    def __init__(self) -> None:
        self._hosts: dict[str, ProcessHost] = {}

    @staticmethod
    def obstacle() -> str | None:
        return None if shutil.which("setpriv") else "there is no setpriv here: install util-linux"

    def __enter__(self) -> ProcessLab:
        self.folder = Path(tempfile.mkdtemp(prefix="sinew-processes-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self._hosts.values():
            host.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def add_host(self, name: str, reach: Reach = Reach.ALL) -> Host:
        if reach is not Reach.ALL:
            raise Unsupported("there is no router between processes")
        if name in self._hosts:
            raise LabError(f"{name!r} is taken; give each host a name of its own")
        folder = self.folder / name
        folder.mkdir()
        # Of this process, so that labs which run at once have each port.
        lab = os.getpid() % (254 * 254)
        self._hosts[name] = ProcessHost(name, folder, f"127.{lab // 254 + 1}.{lab % 254 + 1}.1")
        return self._hosts[name]

    @property
    def hosts(self) -> Mapping[str, Host]:
        return self._hosts
