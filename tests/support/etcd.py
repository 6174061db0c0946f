"""An etcd of this host, for tests and tools."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import ports

START_LIMIT_S = 60.0
# etcd allocates two segments of its log at once, of 64 MB each; the rest is small here.
DATA_BYTES = 256 << 20


def fast_folder() -> Path:
    """Where its data may lie: in memory where there is room, so that no disk decides how long etcd takes to write."""
    in_memory = Path("/dev/shm")
    try:
        has_room = shutil.disk_usage(in_memory).free >= DATA_BYTES and os.access(in_memory, os.W_OK)
    except OSError:
        has_room = False
    return in_memory if has_room else Path(tempfile.gettempdir())


class Etcd:
    """One server on loopback, whose data goes with it. Ended by its process id."""

    def __init__(self, folder: Path) -> None:
        """Its log is in `folder`. Waits until it listens. OSError: it is not installed; RuntimeError: it does not start."""
        program = shutil.which("etcd")
        if program is None:
            raise FileNotFoundError("there is no etcd here: on Debian, apt-get install etcd-server")
        self.endpoint = f"127.0.0.1:{ports.free_port()}"
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{ports.free_port()}"
        self._data = tempfile.mkdtemp(prefix="sinew-etcd-", dir=fast_folder())
        command = [program, "--name", "s0", "--data-dir", self._data]
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
        shutil.rmtree(self._data, ignore_errors=True)
