#!/usr/bin/python3
"""Containers as hosts of a lab, and an engine for them. Skipped where there is none and none can be started.

usage: test_engine.py [unittest arguments]
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from lab.engine import LABEL, EngineLab, docker  # noqa: E402
from lab.hosts import Address, Host, Reach, Unsupported  # noqa: E402
from lab.local_engine import LocalEngine  # noqa: E402
from lab.program import LabError  # noqa: E402

LONG_S = 60
IMAGE = "sinew-test-engine"
# What programs of the tests are made of.
TOOLS = ("sh", "bash", "sleep", "timeout", "id", "cat", "getent")
ENGINE = contextlib.ExitStack()


def make_image() -> None:
    """Of programs of this machine: without a network."""
    with tempfile.TemporaryDirectory() as folder:
        files = set()
        for tool in TOOLS:
            path = Path(shutil.which(tool) or tool).resolve()
            listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
            files |= {path, *map(Path, re.findall(r"(/\S+) \(0x", listed))}
            link = Path(folder, "bin", tool)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(path)
        # What getent looks names up with.
        files |= set(Path("/lib/x86_64-linux-gnu").glob("libnss_*.so.2"))
        for file in files:
            copy = Path(folder, file.relative_to("/"))
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists():
                shutil.copy(file, copy)
        Path(folder, "tmp").mkdir()
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(["docker", "import", "-", IMAGE], stdin=tar.stdout, capture_output=True, check=True)


def setUpModule() -> None:
    obstacle = EngineLab.obstacle()
    if obstacle is not None:
        obstacle = LocalEngine.obstacle()
        if obstacle is None:
            try:
                ENGINE.enter_context(LocalEngine())
                obstacle = EngineLab.obstacle()
            except LabError as error:
                obstacle = str(error)
    if obstacle is not None:
        print(f"skipped: {obstacle}", flush=True)
        raise unittest.SkipTest(obstacle)
    make_image()
    ENGINE.callback(docker, "image", "rm", IMAGE)


def tearDownModule() -> None:
    ENGINE.close()


def reaches(source: Host, address: str) -> bool:
    """Whether a closed port answers: refused at once where packets get through, and nothing where they do not."""
    trial = source.start(["timeout", "1", "bash", "-c", f"echo > /dev/tcp/{address}/9"])
    trial.wait(LONG_S)
    # A name that nobody knows fails otherwise.
    return any("Connection refused" in line for line in trial.lines)


class EngineTest(unittest.TestCase):
    def setUp(self) -> None:
        self.lab = self.enterContext(EngineLab(IMAGE))

    def test_programs(self) -> None:
        host = self.lab.add_host("a")
        said = host.start(["sh", "-c", "echo $WORD; cat file; exit 7"], {"WORD": "hello"})
        self.assertEqual(said.wait(LONG_S), 7)
        self.assertEqual(said.lines[0], "hello")
        (host.folder / "file").write_text("of the host's folder\n")
        self.assertEqual(self.waited(host, "cat", "file"), ["of the host's folder"])
        self.assertEqual(self.waited(host, "cat", str(self.lab.folder / "a" / "file")), ["of the host's folder"])
        with self.assertRaisesRegex(LabError, "there is no program nonsense there"):
            host.start(["nonsense"])

    def waited(self, host: Host, *command: str) -> list[str]:
        program = host.start(command)
        program.wait(LONG_S)
        return program.lines

    def test_signals(self) -> None:
        host = self.lab.add_host("a")
        both = host.start(["sh", "-c", "sleep 1000 & echo ready; wait"])
        other = host.start(["sleep", "1000"])
        both.expect("ready", LONG_S)
        both.pause()
        both.kill()
        self.assertEqual(both.status, 137)
        self.assertTrue(other.is_running)
        top = docker("top", f"{self.lab.name}-a")
        self.assertEqual(top.count("sleep 1000"), 1, "what it has started ends with it")
        host.kill()
        self.assertFalse(other.is_running)
        with self.assertRaisesRegex(LabError, "a is down; restart"):
            host.start(["sleep", "1"])

    def test_a_host_stands_still_and_goes_on(self) -> None:
        host = self.lab.add_host("a")
        ticking = host.start(["sh", "-c", "i=0; while :; do i=$((i + 1)); echo $i; sleep 0.05; done"])
        ticking.expect("^3$", LONG_S)
        host.pause()
        host.pause()
        ticking.stay(0.2)
        ticking.catch_up()
        with self.assertRaises(LabError):
            ticking.expect(".", 0.5)
        host.resume()
        host.resume()
        ticking.expect(".", LONG_S)
        host.pause()
        host.kill()

    def test_names_and_addresses(self) -> None:
        a = self.lab.add_host("a")
        # Not yet.
        self.assertEqual(a.start(["getent", "ahostsv4", "b"]).wait(LONG_S), 2)
        b = self.lab.add_host("b")
        self.assertIn(b.address, self.waited(a, "getent", "ahostsv4", "b")[0])
        before = b.address
        b.restart()
        self.assertEqual(b.address, before)
        b.restart(Address.NEW)
        self.assertNotEqual(b.address, before)
        self.assertIn(b.address, self.waited(a, "getent", "ahostsv4", "b")[0])
        for name, text in (("b", "there is a host 'b' already"), ("-", "no name of a host"), ("x y", "no name of a host")):
            with self.assertRaisesRegex(LabError, text):
                self.lab.add_host(name)

    def test_faults_of_the_network(self) -> None:
        a, b, c = (self.lab.add_host(name) for name in "abc")
        self.assertTrue(reaches(a, b.address))
        b.cut()
        self.assertFalse(reaches(a, b.address))
        self.assertTrue(reaches(a, c.address))
        b.reconnect()
        a.drop(to=b)
        self.assertFalse(reaches(a, b.address))
        self.assertTrue(reaches(a, c.address))
        # Faults stay, and follow the address.
        b.restart(Address.NEW)
        self.assertFalse(reaches(a, b.address))
        a.restart()
        self.assertFalse(reaches(a, b.address))
        a.heal()
        self.assertTrue(reaches(a, b.address))
        a.rate(64)
        with contextlib.suppress(Unsupported):
            a.delay(5)

    def test_behind_nat(self) -> None:
        outside, inside = self.lab.add_host("outside"), self.lab.add_host("inside", Reach.BEHIND_NAT)
        later = self.lab.add_host("later")
        self.assertTrue(reaches(inside, "outside"))
        self.assertTrue(reaches(inside, "later"))
        self.assertFalse(reaches(outside, inside.address))
        inside.restart(Address.NEW)
        self.assertTrue(reaches(inside, later.address))

    def test_two_labs_do_not_see_each_other(self) -> None:
        mine = self.lab.add_host("a")
        with EngineLab(IMAGE) as lab:
            other = lab.add_host("a")
            self.assertFalse(reaches(mine, other.address))
        self.assertTrue(mine.start(["id"]).wait(LONG_S) == 0, "the end of one is not that of the other")


class LeftoversTest(unittest.TestCase):
    def leftovers(self) -> tuple[str, str]:
        label = f"label={LABEL}"
        return docker("ps", "--all", "--quiet", "--filter", label), docker("network", "ls", "--quiet", "--filter", label)

    def test_nothing_is_left_also_after_a_failure(self) -> None:
        with self.assertRaises(ZeroDivisionError), EngineLab(IMAGE) as lab:
            folder = lab.folder
            host = lab.add_host("a")
            lab.add_host("b", Reach.BEHIND_NAT)
            host.start(["sleep", "1000"])
            host.pause()
            raise ZeroDivisionError
        self.assertEqual(self.leftovers(), ("", ""))
        self.assertFalse(folder.exists())

    def test_what_a_killed_process_has_left_goes_with_the_next_lab(self) -> None:
        script = f"""
import os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, {str(Path(__file__).resolve().parent)!r})
from lab.engine import EngineLab
lab = EngineLab({IMAGE!r}).__enter__()
lab.add_host("a").start(["sleep", "1000"])
print(lab.folder, flush=True)
os.kill(os.getpid(), 9)
"""
        killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG_S)
        self.assertEqual(killed.returncode, -9, killed.stderr)
        self.assertNotEqual(self.leftovers(), ("", ""))
        with EngineLab(IMAGE):
            self.assertEqual(self.leftovers()[0], "")
        self.assertEqual(self.leftovers(), ("", ""))
        self.assertFalse(Path(killed.stdout.strip()).exists())


class LocalEngineTest(unittest.TestCase):
    def test_it_ends_and_leaves_nothing(self) -> None:
        obstacle = LocalEngine.obstacle()
        if obstacle is not None:
            self.skipTest(obstacle)
        before = os.environ.get("DOCKER_HOST")
        with LocalEngine():
            folder = Path(os.environ["DOCKER_HOST"].removeprefix("unix://")).parent
            self.assertEqual(docker("image", "ls", "--quiet"), "", "it is an engine of its own")
        self.assertEqual(os.environ.get("DOCKER_HOST"), before)
        self.assertFalse(folder.exists())
        self.assertNotIn(str(folder), Path("/proc/self/mounts").read_text())


if __name__ == "__main__":
    unittest.main()
