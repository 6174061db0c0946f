"""What the tests of tools/bench have in common."""

from __future__ import annotations

import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))


class ScriptTest(unittest.TestCase):
    """A test with a folder of its own for scripts that stand in for the programs."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="sinew-bench-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def script(self, name: str, body: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(body), encoding="utf-8")
        path.chmod(0o755)
        return path

    def program_of(self, name: str, values: dict[str, float]) -> Path:
        """A program that prints `values`, and notes its arguments in the file `log`."""
        return self.script(
            name,
            f"""
            import json, sys
            with open({str(self.folder / 'log')!r}, "a") as log:
                log.write({name!r} + " " + " ".join(sys.argv[1:]) + "\\n")
            for figure, value in {values!r}.items():
                print(json.dumps({{"figure": figure, "value": value}}))
            """,
        )

    def log(self) -> list[str]:
        return (self.folder / "log").read_text(encoding="utf-8").splitlines()
