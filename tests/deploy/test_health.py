#!/usr/bin/python3
"""The health check of a container, beside a worker whose port the system has given.

usage: test_health.py LEARNER SINEW_HEALTH [unittest arguments]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))
sys.path.append(str(ROOT / "tests" / "docker"))
import ports  # noqa: E402
from lab.program import Program  # noqa: E402

LEARNER = Path()
HEALTH = Path()
LONG_S = 120.0


class HealthTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.env = {
            **os.environ, "PATH": f"{HEALTH.parent}:{os.environ['PATH']}",
            "SINEW_EXAMPLES_ADDRESS_FILE": str(self.folder / "address"), "OMP_NUM_THREADS": "1",
        }  # fmt: skip

    def start(self) -> Program:
        command = [LEARNER, "--init-method", f"tcp://127.0.0.1:{ports.free_port()}", "--output", ""]
        process = subprocess.Popen(
            command, env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        program = Program("learner", process, process.send_signal)
        self.addCleanup(program.kill)
        deadline = time.monotonic() + LONG_S
        while not (self.folder / "address").exists():
            self.assertTrue(program.is_running and time.monotonic() < deadline, program.lines)
            time.sleep(0.05)
        return program

    def check(self, **variables: str) -> tuple[int, str]:
        done = subprocess.run(
            [ROOT / "deploy" / "health-check"], env={**self.env, **variables},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONG_S, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def test_follows_the_worker(self) -> None:
        status, said = self.check()
        self.assertEqual((status, "not in its job yet" in said), (1, True), said)
        learner = self.start()
        self.assertEqual(self.check(), (0, ""))
        self.assertRegex((self.folder / "address").read_text(), r"^127\.0\.0\.1:\d+ learner\n$")
        learner.kill()
        status, said = self.check()
        self.assertEqual(status, 3, said)

    def test_over_mutual_tls_as_the_worker_that_it_finds(self) -> None:
        certificates = self.folder / "certificates"
        subprocess.run([CONTROL, "certs", "init", certificates], check=True)
        subprocess.run([CONTROL, "certs", "issue", certificates, "learner,127.0.0.1", "other"], check=True)
        self.env["SINEW_EXAMPLES_CERTIFICATES"] = str(certificates)
        self.start()
        self.assertEqual(self.check(), (0, ""))
        # Somebody else than it says.
        status, said = self.check(WORKER_NAME="other")
        self.assertEqual(status, 3, said)

    def test_nothing_to_ask(self) -> None:
        self.assertEqual(self.check(SINEW_EXAMPLES_ADDRESS_FILE=""), (0, ""))


if __name__ == "__main__":
    LEARNER, HEALTH, CONTROL = (Path(path).resolve() for path in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
