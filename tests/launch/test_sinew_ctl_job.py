"""sinew-ctl, as whoever looks into a running job uses it. Arguments: SINEW_CTL TEST_WORKER, then those of unittest."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from operator_case import CTL, PATIENCE_S, TOKEN, OperatorCase


class Operator(OperatorCase):
    def test_status_and_the_other_tables(self) -> None:
        self.start()
        self.assertEqual(self.a.ask("hold b counter"), "ok")
        status = self.ctl("status").splitlines()
        self.assertIn("2 workers", status[0])
        self.assertEqual([line.split()[:2] for line in status[2:4]], [["0", "a"], ["1", "b"]])
        self.assertIn(str(self.b.process.pid), status[3])
        self.assertIn("MEMBER", status[3])
        references = self.ctl("refs")
        self.assertIn("owner", references)
        self.assertIn("testapp::Counter", references)
        self.assertIn("testapp::", self.ctl("top"))
        self.assertIn("up", self.ctl("links"))
        self.assertIn("threads that run handlers", self.ctl("limits"))
        for command in ("names", "contexts", "groups"):
            self.assertEqual(len(self.ctl(command).splitlines()), 1)
        workers = json.loads(self.ctl("status", "--json"))
        self.assertEqual([each["worker"]["name"] for each in workers], ["a", "b"])
        self.assertEqual(self.a.ask("drop counter"), "ok")

    def test_a_call_is_seen_and_cancelled(self) -> None:
        self.start()
        self.assertEqual(self.a.ask("begin k stall b"), "ok")
        shown = self.ctl_until("testapp::stall", "calls")
        line = next(line for line in shown.splitlines() if "testapp::stall" in line)
        number = line.split("testapp::stall")[1].split()[1]
        refused = self.ctl("cancel", "a", "123456789", status=1)
        self.assertIn("serves no call of 'a' with the number 123456789", refused)
        self.assertIn("b", line)

        workers = json.loads(self.ctl("calls", "--json"))
        address = next(each["address"] for each in workers if each["worker"]["name"] == "b")
        first, self.address = self.address, address
        self.ctl("cancel", "a", number)
        self.address = first
        # It is answered when it is released; that it was cancelled is its own matter to see.
        self.b.ask("release")
        self.a.ask("end k")

    def test_a_barrier_says_who_is_missing(self) -> None:
        self.start()
        self.assertIn("nothing is stuck", self.ctl("stuck"))
        self.assertEqual(self.a.ask("begin k barrier 60000"), "ok")
        self.assertIn("a barrier waits for 'b'", self.ctl_until("barrier", "stuck", "--older-than", "0"))
        self.assertIn("barrier", json.loads(self.ctl("stuck", "--older-than", "0", "--json"))[0][0])
        self.assertEqual(self.b.ask("barrier 60000"), "ok")
        self.assertEqual(self.a.ask("end k"), "ok")
        self.assertIn("nothing is stuck", self.ctl("stuck", "--older-than", "0"))

    def test_one_that_is_stopped_does_not_stop_the_tool(self) -> None:
        self.start()
        self.b.process.send_signal(signal.SIGSTOP)
        try:
            shown = self.ctl("status", "--timeout", "2")
            self.assertIn("NO ANSWER", shown)
            self.assertIn("no answer within 2 s", shown)
            self.assertIn("MEMBER", shown)
            self.assertIn("worker 'b' at", self.ctl("stuck", "--timeout", "2"))
        finally:
            self.b.process.send_signal(signal.SIGCONT)

    def test_a_worker_that_serves_is_asked_to_stop(self) -> None:
        self.start()
        self.assertIn("does not wait to be asked", self.ctl("stop", status=1))
        self.b.tell("serve")
        workers = json.loads(self.ctl("status", "--json"))
        address = next(each["address"] for each in workers if each["worker"]["name"] == "b")
        give_up = time.monotonic() + PATIENCE_S
        while subprocess.run([CTL, "stop", "--at", address], capture_output=True, timeout=PATIENCE_S, check=False).returncode:
            self.assertLess(time.monotonic(), give_up)  # It does not serve yet.
        self.assertEqual(self.b.answer(), "ok asked")

    def test_what_workers_did_last_is_on_one_time_line(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.start({"SINEW_FLIGHT_RECORD": f"{folder}/record"})
            self.assertEqual(self.a.ask("add b"), "ok 3")
            lines = [line.split(" ", 2) for line in self.ctl("dump").splitlines()]
            self.assertEqual([line[0] for line in lines], sorted(line[0] for line in lines))
            said = [f"{worker} {rest.split(' ', 1)[1]}" for _, worker, rest in lines]
            call = [next(i for i, each in enumerate(said) if each.startswith(begin)) for begin in (
                "a call made testapp::add", "b call begun testapp::add", "b call answered testapp::add", "a call ended testapp::add")]
            self.assertEqual(call, sorted(call), said)
            self.assertIn("a link up b 0", said)
            self.assertEqual(len(self.ctl("dump", "--events", "1").splitlines()), 2)
            # One that dies by a fault leaves what it did.
            self.b.process.send_signal(signal.SIGSEGV)
            self.assertEqual(self.b.process.wait(PATIENCE_S), -signal.SIGSEGV)
            record = (Path(folder) / f"record.{self.b.process.pid}.txt").read_text()
            self.assertIn("call answered testapp::add", record)
            self.assertRegex(record, r"^\d+\.\d{9} \d+ ")

    def test_strangers_see_nothing(self) -> None:
        self.start({"SINEW_JOB_TOKEN": TOKEN})
        for environment in ({"SINEW_JOB_TOKEN": ""}, {"SINEW_JOB_TOKEN": TOKEN[::-1]}):
            for command in ("status", "calls", "refs", "stuck"):
                refused = self.ctl(command, status=1, environment=environment)
                self.assertIn("does not answer", refused)
                self.assertNotIn("MEMBER", refused)
        self.assertIn("MEMBER", self.ctl("status"))

    def test_a_trace_shows_one_call_at_both_ends(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.start({"SINEW_TRACE": f"{folder}/trace"})
            self.assertEqual(self.a.ask("add b"), "ok 3")
            self.a.tell("shutdown graceful 60000")
            self.b.tell("shutdown graceful 60000")
            self.assertEqual([self.a.answer(), self.b.answer()], ["ok", "ok"])
            files = sorted(str(path) for path in Path(folder).iterdir())
            self.assertEqual(len(files), 2)
            merged = subprocess.run([CTL, "merge-traces", *files], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
            events = json.loads(merged.stdout)
            self.assertEqual({each["args"]["name"] for each in events if each["ph"] == "M"}, {"a", "b"})
            outer = next(each for each in events if each["name"] == "testapp::add at b")
            times = {(each["name"], each["ph"]): each["ts"] for each in events if each.get("id2") == outer["id2"]}
            order = [("testapp::add at b", "b"), ("waits for a thread", "b"), ("waits for a thread", "e"),
                     ("runs testapp::add", "b"), ("runs testapp::add", "e"), ("testapp::add at b", "e")]
            self.assertEqual(set(times), set(order))
            # Two processes tell the time, to some microseconds.
            for earlier, later in zip(order, order[1:]):
                self.assertLessEqual(times[earlier], times[later] + 1000)
            with open(files[0], "a", encoding="utf-8") as file:
                file.write(',\n{"ph":"b","cat":"ca')  # It was killed.
            cut = subprocess.run([CTL, "merge-traces", *files], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
            self.assertEqual(json.loads(cut.stdout), events)
            other = Path(folder) / "other"
            other.write_text("{}")
            refused = subprocess.run([CTL, "merge-traces", other], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertIn("is no trace", refused.stderr)

    def test_rubbish_is_an_error(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.environment = {}
            self.address = f"127.0.0.1:{listener.getsockname()[1]}"

            def babble() -> None:
                while True:
                    try:
                        peer, _ = listener.accept()
                    except OSError:
                        return
                    with peer:
                        peer.sendall(b"\x00\xff not HTTP/2 at all\r\n" * 100)

            thread = threading.Thread(target=babble, daemon=True)
            thread.start()
            self.assertIn("does not answer", self.ctl("status", "--timeout", "2", status=1))
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)

    def test_the_docs_have_all_commands(self) -> None:
        shown = subprocess.run([CTL, "--help"], capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
        there = set(re.findall(r"^  ([a-z-]+)  ", shown.split("Subcommands:")[1], re.MULTILINE)) - {"certs"}
        page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
        listed = {name for line in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`([a-z-]+)", line)}
        self.assertEqual({name for name in listed if not name.startswith("sinew")}, there)
        for name in re.findall(r"sinew-ctl ([a-z-]+)", page):
            self.assertIn(name, there)

    def test_wrong_words_are_refused(self) -> None:
        self.environment = {}
        for address, part in (("nowhere", "nowhere"), ("127.0.0.1:1", "does not answer"), ("192.0.2.1:5", "loopback")):
            self.address = address
            self.assertIn(part, self.ctl("status", "--timeout", "2", status=1))
        self.ctl("status", "--timeout", "-1", status=2)
        self.ctl("status", "--ca", "ca.pem", status=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
