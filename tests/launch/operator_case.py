"""A job of two workers, and sinew-ctl to look at it. Arguments of the programs: SINEW_CTL TEST_WORKER, then those of unittest."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import unittest

CTL = sys.argv.pop(1)
WORKER = sys.argv.pop(1)
PATIENCE_S = 60
TOKEN = "0123456789abcdef0123456789abcdef"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Worker:
    """A process of tests/process/test_worker."""

    def __init__(self, test: unittest.TestCase, name: str, settings: str, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        test.addCleanup(self.end)
        self.tell(f"start name={name} {settings}")

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.answer()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class OperatorCase(unittest.TestCase):
    def start(self, environment: dict[str, str] | None = None) -> None:
        """Workers a and b, the first at self.address."""
        self.environment = environment or {}
        # Between its choice and its use another program may take a port.
        for _ in range(5):
            port = free_port()
            self.address = f"127.0.0.1:{port}"
            settings = f"init=tcp://{self.address} world=2 lease_ms=60000"
            self.a = Worker(self, "a", f"{settings} rank=0", self.environment)
            self.b = Worker(self, "b", f"{settings} rank=1", self.environment)
            answers = [self.a.answer(), self.b.answer()]
            if all(answer.startswith("ok") for answer in answers):
                return
            self.a.end()
            self.b.end()
        self.fail(f"they did not start: {answers}")

    def ctl(self, *words: str, status: int = 0, environment: dict[str, str] | None = None) -> str:
        ended = subprocess.run(
            [CTL, *words, "--at", self.address], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            env={**os.environ, **(self.environment if environment is None else environment)},
        )
        self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    def ctl_until(self, text: str, *words: str) -> str:
        give_up = time.monotonic() + PATIENCE_S
        while text not in (shown := self.ctl(*words)):
            self.assertLess(time.monotonic(), give_up, shown)
        return shown
