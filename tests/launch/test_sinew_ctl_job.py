"""sinew-ctl, as whoever looks into a running job uses it. Arguments: SINEW_CTL TEST_WORKER, then those of unittest."""

from __future__ import annotations

import json
import signal
import socket
import threading
import unittest

from operator_case import PATIENCE_S, TOKEN, OperatorCase


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

    def test_strangers_see_nothing(self) -> None:
        self.start({"SINEW_JOB_TOKEN": TOKEN})
        for environment in ({"SINEW_JOB_TOKEN": ""}, {"SINEW_JOB_TOKEN": TOKEN[::-1]}):
            for command in ("status", "calls", "refs", "stuck"):
                refused = self.ctl(command, status=1, environment=environment)
                self.assertIn("does not answer", refused)
                self.assertNotIn("MEMBER", refused)
        self.assertIn("MEMBER", self.ctl("status"))

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

    def test_wrong_words_are_refused(self) -> None:
        self.environment = {}
        for address, part in (("nowhere", "nowhere"), ("127.0.0.1:1", "does not answer"), ("192.0.2.1:5", "loopback")):
            self.address = address
            self.assertIn(part, self.ctl("status", "--timeout", "2", status=1))
        self.ctl("status", "--timeout", "-1", status=2)
        self.ctl("status", "--ca", "ca.pem", status=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
