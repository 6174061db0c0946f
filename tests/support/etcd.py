"""An etcd of this host, for tests and tools."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import ports

START_LIMIT_S = 60.0


class Etcd:
    """One server on loopback, with its data in a folder. Ended by its process id."""

    def __init__(self, folder: Path) -> None:
        """Waits until it listens. OSError: it is not installed; RuntimeError: it does not start."""
        program = shutil.which("etcd")
        if program is None:
            raise FileNotFoundError("there is no etcd here: on Debian, apt-get install etcd-server")
        self.endpoint = f"127.0.0.1:{ports.free_port()}"
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{ports.free_port()}"
        command = [program, "--name", "s0", "--data-dir", str(folder / "etcd-data")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"s0={peer}", "--logger", "zap"]
        command += ["--log-outputs", str(folder / "etcd-log")]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._wait_until_it_listens()
        except RuntimeError:
            self.end()
            raise

    def _wait_until_it_listens(self) -> None:
        host, port = self.endpoint.split(":")
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"etcd does not listen at {self.endpoint}: its status is {self._process.poll()}")

    def url(self, prefix: str) -> str:
        return f"etcd://{self.endpoint}/{prefix}"

    def end(self) -> None:
        """Idempotent."""
        self._process.kill()
        self._process.wait()
