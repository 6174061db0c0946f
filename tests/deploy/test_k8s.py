#!/usr/bin/python3
"""The objects of deploy/k8s: fields that Kubernetes knows, pods that may do no more than they must, numbers that agree.

usage: test_k8s.py FOLDER [unittest arguments]     FOLDER is where npm puts what knows Kubernetes' objects (package.json)

Prints "skipped: " and a reason where that cannot be had.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Iterator

import yaml

HERE = Path(__file__).resolve().parent
FILES = sorted((HERE.parents[1] / "deploy" / "k8s").glob("*.yaml"))
INSTALL_TIMEOUT_S = 240
MODULES = Path()

# Mistakes: what is written, and what was meant.
MISTAKES = (
    ("terminationGracePeriodSecond:", "terminationGracePeriodSeconds:"),
    ("readonlyRootFilesystem:", "readOnlyRootFilesystem:"),
    ("runAsNonroot:", "runAsNonRoot:"),
    ("completionsMode:", "completionMode:"),
    ("publishNotReadyAddress:", "publishNotReadyAddresses:"),
    ("persistentVolumeClaims:", "persistentVolumeClaim:"),
    ("podSelectors:", "podSelector:"),
    ("apiVersion: batch/v2", "apiVersion: batch/v1"),
    ("kind: StatefulSets", "kind: StatefulSet"),
    ('completions: "2"', "completions: 2"),
)


def skip_all(reason: str) -> None:
    print(f"skipped: {reason}", flush=True)
    raise unittest.SkipTest(reason)


def install() -> None:
    """What package.json wants, once."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            skip_all(f"there is no {program}")
    MODULES.mkdir(parents=True, exist_ok=True)
    wanted = (HERE / "package.json").read_text()
    installed = MODULES / "installed.json"
    if installed.exists() and installed.read_text() == wanted:
        return
    (MODULES / "package.json").write_text(wanted)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(MODULES)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        skip_all(f"npm has not answered within {INSTALL_TIMEOUT_S} s")
    if done.returncode != 0:
        skip_all(f"npm has none of what package.json wants: {done.stderr.strip().splitlines()[-1:]}")
    installed.write_text(wanted)


def check(*files: Path) -> subprocess.CompletedProcess[str]:
    command = ["node", str(HERE / "check_k8s.mjs"), str(MODULES), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


class FieldsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        install()

    def test_all_are_right(self) -> None:
        done = check(*FILES)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(" 0 findings", done.stdout)

    def test_mistakes_are_found(self) -> None:
        text = (HERE.parents[1] / "deploy" / "k8s" / "ps-rnn.yaml").read_text()
        with tempfile.TemporaryDirectory() as folder:
            for number, (mistake, meant) in enumerate(MISTAKES):
                self.assertIn(meant, text)
                Path(folder, f"{number}.yaml").write_text(text.replace(meant, mistake))
            done = check(*sorted(Path(folder).iterdir()))
        for number, (mistake, _) in enumerate(MISTAKES):
            self.assertIn(f"/{number}.yaml, object", done.stdout, mistake)


class ContentsTest(unittest.TestCase):
    def objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for file in FILES:
            for one in yaml.safe_load_all(file.read_text()):
                yield file.name, one

    def pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for file, one in self.objects():
            if "template" in one["spec"]:
                pod = one["spec"]["template"]
                # A StatefulSet's own.
                pod["spec"]["volumes"] += [{"name": claim["metadata"]["name"]} for claim in one["spec"].get("volumeClaimTemplates", ())]
                yield f"{file}: {one['metadata']['name']}", pod

    def test_pods_may_do_no_more_than_they_must(self) -> None:
        names = []
        for name, pod in self.pods():
            names.append(name)
            with self.subTest(name):
                spec = pod["spec"]
                self.assertFalse(spec["automountServiceAccountToken"])
                self.assertFalse(spec["enableServiceLinks"])
                self.assertTrue(spec["shareProcessNamespace"])
                self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                self.assertGreaterEqual(spec["terminationGracePeriodSeconds"], 30)
                for container in spec["containers"]:
                    self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
                    self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
                    self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
                    self.assertIn("memory", container["resources"]["limits"])
                    volumes = {volume["name"] for volume in spec["volumes"]}
                    self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
        self.assertEqual(len(names), 5)

    def test_selectors_select(self) -> None:
        for file, one in self.objects():
            selector = one["spec"].get("selector", one["spec"].get("podSelector"))
            if selector is None:
                continue
            wanted = selector.get("matchLabels", selector)
            chosen = [name for name, pod in self.pods() if wanted.items() <= pod["metadata"]["labels"].items()]
            self.assertTrue(chosen, f"{file}: {one['kind']} {one['metadata']['name']} selects no pod")

    def test_hosts_have_the_names_that_others_look_for(self) -> None:
        services = {one["metadata"]["name"] for _, one in self.objects() if one["kind"] == "Service"}
        for name, pod in self.pods():
            # Those of a StatefulSet follow from its serviceName.
            self.assertIn(pod["spec"].get("subdomain", "sinew"), services, name)
        for file in FILES:
            for service in re.findall(r"\b(?:trainer|learner|etcd)-\d\.([a-z-]+)", file.read_text()):
                self.assertIn(service, services, file.name)

    def test_the_fixed_world_has_as_many_as_it_says(self) -> None:
        by_name = {one["metadata"]["name"]: one["spec"] for file, one in self.objects() if file == "ps-rnn.yaml"}
        servers, trainers = by_name["server"]["replicas"], by_name["trainer"]["completions"]
        self.assertEqual(by_name["trainer"]["parallelism"], trainers)
        containers = [by_name[name]["template"]["spec"]["containers"][0] for name in ("server", "trainer")]
        for container in containers:
            variables = {one["name"]: one.get("value") for one in container["env"]}
            self.assertEqual(variables["WORLD_SIZE"], str(servers + trainers))
            self.assertEqual(variables.get("TRAINERS", str(trainers)), str(trainers))
            self.assertIn(f"--servers {servers}", " ".join([*container["command"], *container["args"]]))

    def test_a_pod_that_is_lost_ends_no_job(self) -> None:
        jobs = {one["metadata"]["name"]: one["spec"] for _, one in self.objects() if one["kind"] == "Job"}
        for name, job in jobs.items():
            with self.subTest(name):
                # Several pods fail when the one that leads is lost.
                self.assertGreater(job["backoffLimit"], job["completions"])
                self.assertEqual(job["template"]["spec"]["restartPolicy"], "OnFailure")
        # The others need not be there any more when the one that leads has ended.
        self.assertEqual(jobs["trainer"]["successPolicy"]["rules"], [{"succeededIndexes": "0"}])

    def test_trainers_that_are_started_again_go_on_after_the_last_epoch(self) -> None:
        jobs = {one["metadata"]["name"]: one["spec"] for _, one in self.objects() if one["kind"] == "Job"}
        container = jobs["trainer"]["template"]["spec"]["containers"][0]
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "ps_rnn")
            program.write_text('#!/bin/sh\necho "$@"\n')
            program.chmod(0o755)
            command = [part.replace("/data/", f"{folder}/") for part in [*container["command"], *container["args"]]]

            def flags() -> list[str]:
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env={"PATH": folder})
                self.assertEqual(done.stderr, "")
                return done.stdout.split()

            first = flags()
            checkpoints = Path(first[first.index("--checkpoint") + 1])
            checkpoints.mkdir()
            self.assertEqual(flags(), first)
            (checkpoints / "latest").write_text("1\n")
            self.assertEqual(flags(), [*first, "--resume"])


def main() -> None:
    global MODULES
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    MODULES = Path(sys.argv.pop(1)).resolve()
    unittest.main()


if __name__ == "__main__":
    main()
