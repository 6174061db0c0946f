"""sinew-ctl, as whoever makes certificates uses it. Arguments: SINEW_CTL, then those of unittest."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CTL = sys.argv.pop(1)


class Certificates(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "certs"

    def ctl(self, *words: str | Path, status: int = 0, **environment: str) -> str:
        ended = subprocess.run(
            [CTL, "certs", *map(str, words)], capture_output=True, text=True, timeout=120, env=environment, check=False
        )
        self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    def mode(self, name: str) -> int:
        return (self.folder / name).stat().st_mode & 0o777

    def test_makes_shows_and_renews(self) -> None:
        self.ctl("init", self.folder, "--job", "night run")
        self.ctl("issue", self.folder, "trainer0,alpha,10.0.0.7", "server0")
        self.assertEqual({each.name for each in self.folder.iterdir()}, {
            "ca.pem", "ca.key", "trainer0.pem", "trainer0.key", "server0.pem", "server0.key"
        })
        self.assertEqual([self.mode(name) for name in ("ca.key", "server0.key", "server0.pem")], [0o600, 0o600, 0o644])
        shown = self.ctl("show", self.folder / "trainer0.pem")
        for part in ("CN = trainer0", "URI:sinew:job/night%20run", "DNS:alpha", "IP Address:10.0.0.7", "valid until"):
            self.assertIn(part, shown)
        before = (self.folder / "server0.pem").read_bytes()
        self.ctl("issue", self.folder, "server0", "--days", "2")
        self.assertNotEqual((self.folder / "server0.pem").read_bytes(), before)
        if shutil.which("openssl"):
            verified = subprocess.run(
                ["openssl", "verify", "-CAfile", self.folder / "ca.pem", self.folder / "server0.pem"],
                capture_output=True, text=True, check=False,
            )
            self.assertEqual(verified.returncode, 0, verified.stderr)

    def test_an_authority_is_not_overwritten(self) -> None:
        self.ctl("init", self.folder)
        self.assertIn("has an authority", self.ctl("init", self.folder, status=1))

    def test_all_who_know_a_token_make_the_same_one(self) -> None:
        keys = []
        for name in ("here", "there"):
            self.ctl("init", self.folder / name, "--from-token", SINEW_JOB_TOKEN="0123456789abcdef")
            keys.append((self.folder / name / "ca.key").read_text())
        self.assertEqual(*keys)
        self.assertIn("neither", self.ctl("init", self.folder / "none", "--from-token", status=1))

    def test_mistakes_are_named(self) -> None:
        self.assertIn("sinew-ctl certs init", self.ctl("issue", self.folder, "worker", status=1))
        self.ctl("init", self.folder)
        self.assertIn("'a/b'", self.ctl("issue", self.folder, "worker,a/b", status=1))
        self.assertIn("character", self.ctl("issue", self.folder, "a/b", status=1))
        self.assertFalse((self.folder / "a").exists())
        self.assertIn("1 to 36500 days", self.ctl("issue", self.folder, "worker", "--days", "0", status=1))
        (self.folder / "no.pem").write_text("no certificate")
        self.assertIn("no certificate in PEM", self.ctl("show", self.folder / "no.pem", status=1))
        self.assertIn("cannot read", self.ctl("show", self.folder / "gone.pem", status=1))
        self.ctl("explain", status=2)


if __name__ == "__main__":
    unittest.main()
