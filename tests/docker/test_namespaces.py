#!/usr/bin/python3
"""Hosts that are network namespaces: what befalls them, and what is left of them. Skipped where there can be none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from lab.hosts import Address, Host, Reach  # noqa: E402
from lab.namespaces import NamespaceLab  # noqa: E402
from lab.program import LabError, Program, Timeout  # noqa: E402

# What only a failing test uses up.
LIMIT_S = 60.0

# Says what it is told by TCP, and how many datagrams have come by then.
SERVER = """
import select, socket
listener = socket.create_server(("", 7000))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
datagrams.bind(("", 7000))
print("ready", flush=True)
came = 0
while True:
    if datagrams in select.select([listener, datagrams], [], [])[0]:
        datagrams.recv(100)
        came += 1
        continue
    with listener.accept()[0] as caller, caller.makefile("rwb") as said:
        print("said", len(said.read()), "and", came, flush=True)
        said.write(b"heard")
"""
# Tries until it is heard, or once if it may try for some time only; says why it is not.
CLIENT = """
import socket, sys, time
host, size, limit_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
while True:
    try:
        connection = socket.create_connection((host, 7000), limit_s or 1)
        connection.settimeout(None)
        begin = time.monotonic()
        connection.sendall(b"x" * size)
        connection.shutdown(socket.SHUT_WR)
        if connection.recv(10) != b"heard": continue
        print("heard after", time.monotonic() - begin, flush=True)
        sys.exit()
    except OSError as error:
        print(type(error).__name__, error, flush=True)
    if limit_s: sys.exit("not heard")
    time.sleep(0.05)
"""
DATAGRAMS = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(400):
    try:
        sender.sendto(b"x", (sys.argv[1], 7000))
    except PermissionError:
        pass  # how the sender learns that its own filter has dropped it
print("sent", flush=True)
"""


def python(host: Host, text: str, *arguments: str) -> Program:
    return host.start(["/usr/bin/python3", "-c", text, *arguments])


class NamespacesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        obstacle = NamespaceLab.obstacle()
        if obstacle is not None:
            print(f"skipped: {obstacle}", flush=True)
            raise unittest.SkipTest(obstacle)

    def setUp(self) -> None:
        self.lab = self.enterContext(NamespaceLab())
        self.a = self.lab.add_host("a")
        self.b = self.lab.add_host("b")
        self.server = self.serve(self.a)

    def serve(self, host: Host) -> Program:
        server = python(host, SERVER)
        server.expect("ready", LIMIT_S)
        return server

    def assert_heard(self, source: Host, name: str = "a", size_bytes: int = 1) -> None:
        client = python(source, CLIENT, name, str(size_bytes), "0")
        client.expect("heard after", LIMIT_S)

    def assert_not_heard(self, source: Host, why: str, name: str = "a") -> None:
        client = python(source, CLIENT, name, "1", "1")
        self.assertEqual(client.wait(LIMIT_S), 1)
        self.assertRegex("\n".join(client.lines), why)

    def datagrams_that_come(self, source: Host, name: str = "a") -> int:
        python(source, DATAGRAMS, name).expect("sent", LIMIT_S)
        # Who asks is heard later than what was sent before.
        self.assert_heard(self.lab.hosts[name], "localhost", size_bytes=2)
        return int(self.server.expect(r"said 2 and (\d+)", LIMIT_S)[1])

    def test_programs_have_a_host_of_their_own(self) -> None:
        program = self.b.start(["sh", "-c", "hostname; pwd; echo $GREETING $HOME; exit 3"], {"GREETING": "hello"})
        self.assertEqual(program.wait(LIMIT_S), 3)
        self.assertEqual(program.lines, ["b", str(self.b.folder), f"hello {self.b.folder}"])
        self.assertEqual(self.b.start(["no-such-program"]).wait(LIMIT_S), 127)
        self.assertNotIn("a", os.listdir("/run/netns") if os.path.isdir("/run/netns") else [])

    def test_names_that_are_wrong_are_refused(self) -> None:
        for name, why in (("a", "taken"), ("localhost", "taken"), ("a b", "no name"), ("-a", "no name")):
            with self.assertRaisesRegex(LabError, why):
                self.lab.add_host(name)

    def test_a_name_comes_late(self) -> None:
        client = python(self.b, CLIENT, "c", "1", "0")
        client.expect("gaierror", LIMIT_S)
        self.serve(self.lab.add_host("c"))
        client.expect("heard after", LIMIT_S)

    def test_cut_and_reconnect(self) -> None:
        self.assert_heard(self.b)
        self.a.cut()
        self.assert_not_heard(self.b, "TimeoutError")
        self.assert_heard(self.a)  # still reaches itself
        self.a.reconnect()
        self.assert_heard(self.b)

    def test_drops_one_way_and_a_fraction(self) -> None:
        self.a.drop(1.0, to=self.b)
        self.assertEqual(self.datagrams_that_come(self.b), 400)
        self.a.heal()
        self.assert_heard(self.b)
        self.b.drop(0.5)
        came = self.datagrams_that_come(self.b) - 400
        self.assertTrue(100 < came < 300, f"{came} of 400")
        self.b.drop(0)
        self.assert_heard(self.b)

    def test_a_drop_follows_an_address(self) -> None:
        self.b.drop(1.0, to=self.a)
        self.a.restart(Address.NEW)
        self.serve(self.a)
        self.assert_not_heard(self.b, "TimeoutError|timed out")
        self.b.heal()
        self.assert_heard(self.b)

    def test_refuses(self) -> None:
        self.a.refuse(self.b)
        self.assert_not_heard(self.b, "ConnectionRefusedError")
        self.assert_heard(self.lab.add_host("c"))
        self.a.heal()
        self.assert_heard(self.b)

    def test_rate(self) -> None:
        self.b.rate(800)
        client = python(self.b, CLIENT, "a", "200000", "0")
        # 1.6 Mbit, of which the first 16 KB may go at once.
        self.assertGreater(float(client.expect(r"heard after (\S+)", LIMIT_S)[1]), 1.5)

    def test_a_delay_is_there_or_said_to_be_impossible(self) -> None:
        try:
            self.b.delay(300)
        except LabError as error:
            self.assertIn("netem", str(error))
            self.b.rate(800)  # what cannot be is forgotten
            return
        client = python(self.b, CLIENT, "a", "1", "0")
        self.assertGreater(float(client.expect(r"heard after (\S+)", LIMIT_S)[1]), 0.3)

    def test_pause(self) -> None:
        counter = self.b.start(["sh", "-c", "(while :; do echo on; sleep 0.01; done) & wait"])
        counter.expect("on", LIMIT_S)
        self.b.pause()
        with self.assertRaisesRegex(LabError, "is paused"):
            self.b.start(["true"])
        # What was said before is read by then.
        for _ in range(2):
            count = len(counter.lines)
            time.sleep(0.3)
        self.assertEqual(len(counter.lines), count)
        self.b.resume()
        counter.expect("on", LIMIT_S)
        counter.expect("on", LIMIT_S)
        counter.kill()
        self.assertEqual(counter.status, 128 + signal.SIGKILL)

    def test_a_signal_reaches_a_program_and_its_groups(self) -> None:
        outer = self.b.start(["sh", "-c", "set -m; sleep 1000 & echo child $!; wait"])
        child = int(outer.expect(r"child (\d+)", LIMIT_S)[1])
        outer.kill()
        self.assertFalse(os.path.exists(f"/proc/{child}/exe"))

    def test_power_fails_and_a_host_comes_back(self) -> None:
        client = python(self.b, CLIENT, "a", "1", "0")
        client.expect("heard", LIMIT_S)
        listener = python(self.b, "import socket; s = socket.create_connection(('a', 7000)); print('on', flush=True); s.recv(1)")
        listener.expect("on", LIMIT_S)
        self.a.kill()
        self.a.kill()
        self.assertEqual(self.server.wait(LIMIT_S), 128 + signal.SIGKILL)
        with self.assertRaisesRegex(LabError, "restart"):
            self.a.start(["true"])
        self.assert_not_heard(self.b, "OSError|TimeoutError")
        self.assertTrue(listener.is_running, "a connection was closed")
        before = self.a.address
        self.a.restart()
        self.assertEqual(self.a.address, before)
        self.serve(self.a)
        self.assert_heard(self.b)
        self.a.restart(Address.NEW)
        self.assertNotEqual(self.a.address, before)
        self.serve(self.a)
        self.assert_heard(self.b)

    def test_behind_nat(self) -> None:
        hidden = self.lab.add_host("hidden", Reach.BEHIND_NAT)
        self.assert_heard(hidden)
        self.serve(hidden)
        self.assert_not_heard(self.b, "TimeoutError", "hidden")

    def test_two_labs_do_not_see_each_other(self) -> None:
        with NamespaceLab() as other:
            twin = other.add_host("a")
            self.assertEqual(twin.address, self.a.address)
            alien = other.add_host("alien")
            self.assert_not_heard(alien, "ConnectionRefusedError")
            self.serve(twin)
            self.assert_heard(alien)
        self.assert_heard(self.b)

    def test_expect_says_what_it_has_seen(self) -> None:
        program = self.b.start(["sh", "-c", "echo one; read nothing < /dev/null; exec sleep 1000"])
        with self.assertRaisesRegex(Timeout, "(?s)two.*one"):
            program.expect("two", 0.2)


# A tool that is killed while a program has left it, session and all.
KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
from lab.namespaces import NamespaceLab
with NamespaceLab() as lab:
    host = lab.add_host("a")
    program = host.start(["sh", "-c", "setsid sh -c 'echo escaped $$; exec sleep 1000' & wait"])
    print(lab.file(""), program.expect(r"escaped (\\d+)", 60)[1], flush=True)
    sys.stdin.read()
"""


class LeftoversTest(unittest.TestCase):
    def setUp(self) -> None:
        NamespacesTest.setUpClass()

    def start(self) -> tuple[subprocess.Popen[str], Path, int]:
        tool = subprocess.Popen(
            [sys.executable, "-B", "-c", KILLED, str(Path(__file__).resolve().parent)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(tool.wait)
        self.addCleanup(tool.kill)
        assert tool.stdout is not None and tool.stdin is not None
        self.addCleanup(tool.stdout.close)
        self.addCleanup(tool.stdin.close)
        folder, pid = tool.stdout.readline().split()
        return tool, Path(folder), int(pid)

    def assert_gone(self, folder: Path, pid: int) -> None:
        self.assertFalse(folder.exists())
        self.assertFalse(os.path.exists(f"/proc/{pid}/exe"))

    def test_nothing_is_left(self) -> None:
        tool, folder, pid = self.start()
        self.assertTrue(os.path.exists(f"/proc/{pid}/exe"))
        tool.communicate(timeout=LIMIT_S)
        self.assertEqual(tool.returncode, 0)
        self.assert_gone(folder, pid)

    def test_what_a_killed_tool_has_left_goes_with_the_next_lab(self) -> None:
        alive, others_folder, _ = self.start()
        tool, folder, pid = self.start()
        tool.kill()
        tool.wait()
        self.assertTrue(folder.exists())
        with NamespaceLab():
            self.assert_gone(folder, pid)
            self.assertTrue(others_folder.exists(), "that one is in use")
        alive.communicate(timeout=LIMIT_S)
        self.assertEqual(alive.returncode, 0)


if __name__ == "__main__":
    unittest.main()
