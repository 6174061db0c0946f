"""A worker to call, as a process."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import unittest
from typing import Any, Callable, Sequence

import numpy as np

import ports
import sinew_client

# Only a test that fails uses it up.
PATIENCE_S = 60.0


class Server:
    """The program interop_server."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        program = os.environ["SINEW_INTEROP_SERVER"]
        self.process = subprocess.Popen(
            [program, str(ports.free_port()), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        killer = threading.Timer(PATIENCE_S, self.process.kill)
        killer.start()
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        killer.cancel()
        if not self.address:
            raise RuntimeError(f"the server ended with status {self.process.wait()}")

    def stop(self) -> int:
        """Ends it in an orderly way. Returns its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._wait()

    def kill(self) -> None:
        self.process.kill()
        self._wait()

    def _wait(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        return status


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Waits for what becomes true by itself but tells nobody."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.01)


class WorkerTest(unittest.TestCase):
    """Tests with one worker and one client of it. Whatever a test has sent, the worker lives and answers."""

    server: Server
    client: sinew_client.Client

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server()
        cls.addClassCleanup(cls._stop)
        cls.client = sinew_client.connect(cls.server.address, connect_timeout=PATIENCE_S)
        cls.addClassCleanup(cls.client.close)

    @classmethod
    def _stop(cls) -> None:
        status = cls.server.stop()
        assert status == 0, f"the server ended with status {status}"

    def tearDown(self) -> None:
        self.assertEqual(self.client.call("interop::add", 2, 3), 5)

    def assert_same_array(self, actual: Any, expected: np.ndarray) -> None:
        self.assertIsInstance(actual, np.ndarray)
        self.assertEqual((actual.dtype, actual.shape), (expected.dtype.newbyteorder("<"), expected.shape))
        # By their bytes: a NaN is itself, and -0.0 is not 0.0.
        self.assertEqual(actual.tobytes(), expected.astype(expected.dtype.newbyteorder("<")).tobytes())

    def error_of(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> sinew_client.RpcError:
        with self.assertRaises(sinew_client.RpcError) as caught:
            call(*arguments, **options)
        return caught.exception

    def wait_for_count(self, method: str, wanted: int) -> None:
        eventually(lambda: self.client.call(method) >= wanted, f"{method} reaches {wanted}")
