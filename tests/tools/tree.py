"""Small trees of files, for tests of the tools that check sources."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Mapping


def check(tool: str, files: Mapping[str, str]) -> tuple[int, str]:
    """Runs `tool` on a folder with these files, by their paths. Returns its exit status and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            file = Path(folder) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        done = subprocess.run([sys.executable, tool, folder], capture_output=True, text=True)
        return done.returncode, done.stdout
