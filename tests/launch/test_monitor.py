"""sinew-ctl monitor, as Prometheus and browsers see it. Arguments: SINEW_CTL TEST_WORKER SOURCES, then those of unittest."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from operator_case import CTL, PATIENCE_S, TOKEN, OperatorCase, free_port

SOURCES = Path(sys.argv.pop(1))
MONITORING = SOURCES / "deploy" / "monitoring"
PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")


class Monitor(OperatorCase):
    def monitor(self, *words: str) -> None:
        """Starts it; self.url says where."""
        self.server = subprocess.Popen(
            [CTL, "monitor", "--at", self.address, "--bind", "127.0.0.1:0", *words], stdout=subprocess.PIPE, text=True,
            env={**os.environ, **self.environment},
        )
        self.addCleanup(lambda: (self.server.kill(), self.server.communicate()))
        assert self.server.stdout is not None
        self.url = self.server.stdout.readline().split("/ and")[0]

    def get(self, path: str, headers: dict[str, str] | None = None) -> str:
        request = urllib.request.Request(self.url + path, headers=headers or {})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def refusal(self, path: str, headers: dict[str, str] | None = None) -> int:
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.get(path, headers)
        self.addCleanup(refused.exception.close)
        return refused.exception.code

    def test_metrics_are_what_prometheus_reads(self) -> None:
        self.start()
        self.assertEqual(self.a.ask("add b"), "ok 3")
        self.monitor()
        text = self.get("/metrics")
        self.assertIn('sinew_worker_up{worker="a"} 1', text)
        self.assertIn('sinew_call_duration_seconds_count{worker="b",method="testapp::add"} 1', text)
        self.assertIn('sinew_link_up{worker="a",peer="b"} 1', text)
        for line in text.splitlines():
            self.assertRegex(line, r"^(#|sinew_[a-z0-9_]+\{)")
        if PROMTOOL:
            checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_the_docs_list_all_metrics(self) -> None:
        self.start()
        self.assertEqual(self.a.ask("add b"), "ok 3")
        self.monitor()
        there = set(re.findall(r"^# TYPE (\w+)", self.get("/metrics"), re.MULTILINE))
        listed = set(re.findall(r"`(sinew_\w+)`", (SOURCES / "docs" / "operate.md").read_text()))
        of_counters = {name for name in there if re.match(r"sinew_(rpc|rref|names|autograd|optim|streams|device|nccl)_", name)}
        self.assertEqual(there - of_counters, {name for name in listed if name in there - of_counters})
        self.assertLessEqual({name for name in listed if not re.match(r"sinew_(rpc|optim)_", name)}, there)

    @unittest.skipUnless(PROMETHEUS, "prometheus is not installed")
    def test_prometheus_reads_it_and_answers_the_dashboard(self) -> None:
        self.start()
        self.assertEqual(self.a.ask("add b"), "ok 3")
        self.monitor()
        with tempfile.TemporaryDirectory() as folder:
            config = (MONITORING / "prometheus.yaml").read_text().replace("127.0.0.1:9464", self.url.split("//")[1])
            (Path(folder) / "prometheus.yaml").write_text(config.replace(": 5s", ": 1s"))
            shutil.copy(MONITORING / "rules.yaml", folder)
            url = f"http://127.0.0.1:{free_port()}"
            server = subprocess.Popen(
                [PROMETHEUS, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address={url.split('//')[1]}"], stderr=subprocess.DEVNULL,
            )
            try:
                self.assertEqual(self.until(url, "sum(sinew_worker_up)"), ["2"])
                # A rate needs two of them.
                self.until(url, 'sum(rate(sinew_call_duration_seconds_count[1m]))')
                dashboard = json.loads((MONITORING / "dashboard.json").read_text())
                for panel in dashboard["panels"]:
                    for target in panel["targets"]:
                        self.query(url, target["expr"])
                rules = json.loads(urllib.request.urlopen(f"{url}/api/v1/rules", timeout=PATIENCE_S).read())
                for rule in rules["data"]["groups"][0]["rules"]:
                    self.assertEqual(rule["state"], "inactive", rule)
            finally:
                server.terminate()
                server.wait(PATIENCE_S)

    def query(self, url: str, expression: str) -> list[str]:
        path = "/api/v1/query?query=" + urllib.parse.quote(expression)
        with urllib.request.urlopen(url + path, timeout=PATIENCE_S) as answer:
            found = json.loads(answer.read())
        self.assertEqual(found["status"], "success", expression)
        return [each["value"][1] for each in found["data"]["result"]]

    def until(self, url: str, expression: str) -> list[str]:
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                if values := self.query(url, expression):
                    return values
            except OSError:
                pass  # It starts.
            self.assertLess(time.monotonic(), give_up, expression)
            time.sleep(0.2)

    def test_who_looks_shows_the_token(self) -> None:
        self.start({"SINEW_JOB_TOKEN": TOKEN})
        self.monitor()
        password = base64.b64encode(f"me:{TOKEN}".encode()).decode()
        wrong = base64.b64encode(f"me:{TOKEN}x".encode()).decode()
        for path in ("/", "/metrics", "/state.json", "/stuck.json", "/nothing"):
            self.assertEqual(self.refusal(path), 401)
            for value in (f"Bearer {TOKEN[:-1]}", f"Basic {wrong}", "Basic ???", TOKEN):
                self.assertEqual(self.refusal(path, {"Authorization": value}), 401)
        self.assertIn("sinew_worker_up", self.get("/metrics", {"Authorization": f"Bearer {TOKEN}"}))
        self.assertIn("<title>Sinew</title>", self.get("/", {"Authorization": f"Basic {password}"}))

    def test_without_a_token_another_sites_name_leads_nowhere(self) -> None:
        self.start()
        self.monitor()
        for host in ("evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1"):
            for path in ("/", "/metrics", "/state.json"):
                self.assertEqual(self.refusal(path, {"Host": host}), 403)
        for host in ("localhost", "localhost:9464", "127.0.0.1", "[::1]:9464"):
            self.assertIn("sinew_worker_up", self.get("/metrics", {"Host": host}))

    def test_the_page_asks_for_what_there_is(self) -> None:
        self.start()
        self.monitor()
        page = self.get("/")
        self.assertNotRegex(page, r'(src|href)="?https?:')
        for path in re.findall(r'ask\("([\w.]+)"\)', page):
            self.assertIsInstance(json.loads(self.get("/" + path)), list)
        names = [each["worker"]["name"] for each in json.loads(self.get("/state.json"))]
        self.assertEqual(names, ["a", "b"])
        self.assertEqual(self.refusal("/nothing"), 404)

    def test_a_job_that_is_gone_is_said_to_be(self) -> None:
        self.start()
        self.monitor("--timeout", "2")
        self.a.end()
        self.b.end()
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.get("/metrics")
            except urllib.error.HTTPError as refused:
                with refused:
                    self.assertEqual(refused.code, 503)
                    self.assertIn("does not answer", refused.read().decode())
                break
            self.assertLess(time.monotonic(), give_up)

    def test_it_does_not_listen_for_everybody(self) -> None:
        self.environment = {}
        self.address = "127.0.0.1:1"
        self.assertIn("no loopback address", self.ctl("monitor", "--bind", "0.0.0.0:0", status=1))
        self.assertIn("nonsense", self.ctl("monitor", "--bind", "nonsense", status=1))

    def test_it_ends_when_it_is_asked_to(self) -> None:
        self.start()
        self.monitor()
        self.server.terminate()
        self.assertEqual(self.server.wait(PATIENCE_S), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
