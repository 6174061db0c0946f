"""The package itself: its descriptors, its version, and that it installs."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from google.protobuf import descriptor_pb2

import sinew_client
from sinew_client._descriptors import FILES

PACKAGE = Path(__file__).resolve().parents[1]
TREE = PACKAGE.parents[1]


class PackageTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("protoc"), "there is no protoc: install protobuf-compiler")
    def test_the_descriptors_are_those_of_the_protos(self) -> None:
        loader = importlib.machinery.SourceFileLoader("generate_descriptors", str(PACKAGE / "generate_descriptors"))
        generator = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(generator)
        known = [descriptor_pb2.FileDescriptorProto.FromString(file) for file in FILES]
        self.assertEqual(known, generator.described(), "run clients/python/generate_descriptors")

    def test_the_version_is_that_of_the_library(self) -> None:
        project = re.search(r"project\(Sinew VERSION ([0-9.]+)", (TREE / "CMakeLists.txt").read_text())
        self.assertIsNotNone(project)
        self.assertEqual(sinew_client.__version__, project.group(1))

    @unittest.skipUnless(importlib.util.find_spec("venv") and shutil.which("pip3"), "there is no venv or pip here")
    def test_it_installs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            # A copy, since setuptools leaves files beside what it builds.
            source = shutil.copytree(PACKAGE, Path(folder) / "source", ignore=shutil.ignore_patterns("__pycache__"))
            python = Path(folder) / "venv" / "bin" / "python"
            subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", python.parents[1]], check=True)
            subprocess.run(
                [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", source], check=True
            )
            program = "import sinew_client, os; print(sinew_client.__version__, os.path.dirname(sinew_client.__file__))"
            shown = subprocess.run(
                [python, "-I", "-c", program], check=True, capture_output=True, text=True
            ).stdout.split()
            self.assertEqual(shown[0], sinew_client.__version__)
            self.assertIn(str(python.parents[1]), shown[1])
            self.assertTrue((Path(shown[1]) / "py.typed").exists())
