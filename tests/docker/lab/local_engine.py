"""A container engine for as long as a test needs one, where none runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Sequence

from lab.engine import docker
from lab.program import LabError

_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 60
# It makes no rules for this machine's packets: containers of a lab reach each other by their bridge.
_FLAGS = ("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none")


class LocalEngine:
    """A dockerd of our own, with a socket, images and containers of its own; DOCKER_HOST says where while it is there.
    A context manager; it ends with this process, however that ends.

    `data`: a folder for its images, which stay there for the next one; without it they are gone at the end."""

    def __init__(self, data: Path | None = None) -> None:
        self._data = data
        self._folder = Path()
        self._daemon: subprocess.Popen[bytes] | None = None
        self._before = os.environ.get("DOCKER_HOST")

    @staticmethod
    def obstacle() -> str | None:
        """Why none can be started, or None."""
        if os.geteuid() != 0:
            return "no container engine runs, and only root can start one"
        for program, package in (("dockerd", "docker.io"), ("docker", "docker.io"), ("setpriv", "util-linux")):
            if shutil.which(program) is None:
                return f"there is no {program}; apt-get install {package}"
        return None

    def __enter__(self) -> LocalEngine:
        self._folder = Path(tempfile.mkdtemp(prefix="sinew-engine-"))
        try:
            try:
                self._start([])
            except LabError:
                # File systems that cannot be stacked: slower, and it works everywhere.
                self._stop()
                self._start(["--storage-driver", "vfs"])
        except BaseException:
            self._remove()
            raise
        return self

    def _start(self, flags: Sequence[str]) -> None:
        folder = self._folder
        host = f"unix://{folder}/sock"
        log = folder / "log"
        with log.open("ab") as output:
            self._daemon = subprocess.Popen(
                [
                    "setpriv", "--pdeathsig", "TERM", "dockerd", *_FLAGS, *flags, "--host", host,
                    "--data-root", str(self._data or folder / "data"), "--exec-root", str(folder / "exec"),
                    "--pidfile", str(folder / "pid"),
                ],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        os.environ["DOCKER_HOST"] = host
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                docker("version", timeout_s=10)
                return
            except LabError:
                if self._daemon.poll() is not None or time.monotonic() > deadline:
                    last = log.read_text(errors="replace").splitlines()[-3:]
                    raise LabError("dockerd does not start: " + " | ".join(last)) from None
                time.sleep(0.1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _stop(self) -> None:
        if self._daemon is None:
            return
        self._daemon.terminate()
        try:
            self._daemon.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()
        self._daemon = None

    def _remove(self) -> None:
        self._stop()
        if self._before is None:
            os.environ.pop("DOCKER_HOST", None)
        else:
            os.environ["DOCKER_HOST"] = self._before
        # What a daemon that had to be killed has left mounted.
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            place = line.split()[1]
            if place.startswith(f"{self._folder}/"):
                subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)
