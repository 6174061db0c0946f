"""deploy/compose.yaml, as its users start it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from lab.engine import EngineLab, docker
from lab.hosts import Lab, Unsupported
from lab.program import LabError
from scenarios.scenario import LONG_S, Result, Scenario, Stopwatch, check

FILE = Path(__file__).resolve().parents[3] / "deploy" / "compose.yaml"
OBSERVERS = 4
# The job plays until it is stopped, however long it takes to ask all containers something.
ENDLESS = {"EPISODES": "1000000"}


class Project:
    """What `docker-compose` starts, and takes away again."""

    def __init__(self, image: str, name: str, profile: str, **variables: str) -> None:
        self._command = ["docker-compose", "--project-name", name, "--file", str(FILE), "--profile", profile]
        self._env = {**os.environ, **variables, "SINEW_IMAGE": image}
        self._name = name

    def __enter__(self) -> Project:
        try:
            self._run("up", "--detach")
        except BaseException:
            self._run("down", "--volumes", "--timeout", "5")
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._run("down", "--volumes", "--timeout", "5")

    def _run(self, *words: str) -> None:
        done = subprocess.run(
            [*self._command, *words], env=self._env, capture_output=True, text=True, timeout=LONG_S, check=False
        )
        if done.returncode != 0:
            raise LabError(f"docker-compose {' '.join(words)}: {done.stderr.strip()[-1000:]}")

    def container(self, service: str, replica: int = 1) -> str:
        return f"{self._name}_{service}_{replica}"


def logs(container: str) -> str:
    both = subprocess.run(["docker", "logs", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    return both.stdout


def wait_for_line(container: str, text: str) -> None:
    deadline = time.monotonic() + LONG_S
    while text not in logs(container):
        check(time.monotonic() < deadline, f"{container} has not said '{text}' in time: {logs(container)[-1000:]}")
        time.sleep(0.2)


def scaled(lab: Lab) -> Result:
    """An agent and four observers with certificates that a service makes: healthy while they play, and all end well when the
    agent is stopped."""
    if not isinstance(lab, EngineLab):
        raise Unsupported("only containers are started by Compose")
    if shutil.which("docker-compose") is None:
        raise Unsupported("there is no docker-compose; apt-get install docker-compose")
    name = f"{lab.name}-compose"
    with Project(lab.image, name, "rl", OBSERVERS=str(OBSERVERS), **ENDLESS) as project:
        agent = project.container("agent")
        wait_for_line(agent, "Episode 20 ")
        for container in (agent, *(project.container("observer", replica) for replica in range(1, OBSERVERS + 1))):
            docker("exec", container, "health-check")
        stop_container(agent)
        check("Stopped after" in logs(agent), f"the agent said last: {logs(agent)[-1000:]}")
        for replica in range(1, OBSERVERS + 1):
            ended = docker("wait", project.container("observer", replica), timeout_s=LONG_S)
            check(ended == "0", f"observer {replica} ended with {ended}")
    left = docker("ps", "--all", "--quiet", "--filter", f"name={name}") + docker("volume", "ls", "--quiet", "--filter", f"name={name}")
    check(not left, f"left behind: {left}")
    return Result(note=f"{OBSERVERS} observers")


def stopped(lab: Lab) -> Result:
    """The engine stops a container (SIGTERM), and the others play on; it stops the agent's, and the job is over. All end
    with 0, before the engine kills."""
    if not isinstance(lab, EngineLab):
        raise Unsupported("only an engine stops containers")
    if shutil.which("docker-compose") is None:
        raise Unsupported("there is no docker-compose; apt-get install docker-compose")
    name = f"{lab.name}-stop"
    with Project(lab.image, name, "rl", OBSERVERS="2", **ENDLESS) as project:
        agent, first, second = (project.container(*which) for which in (("agent",), ("observer", 1), ("observer", 2)))
        wait_for_line(agent, "Episode 20 ")
        stop_container(first)
        wait_for_line(agent, "is lost; the others go on")
        played = logs(agent).count("Episode ")
        deadline = time.monotonic() + LONG_S
        while logs(agent).count("Episode ") == played:
            check(time.monotonic() < deadline, f"the agent stands still: {logs(agent)[-1000:]}")
            time.sleep(0.2)
        with Stopwatch() as stopping:
            stop_container(agent)
        check("Stopped after" in logs(agent), f"the agent said last: {logs(agent)[-1000:]}")
        ended = docker("wait", second, timeout_s=LONG_S)
        check(ended == "0", f"the other observer ended with {ended}")
    return Result(note=f"the agent took {stopping.seconds:.1f} s")


def stop_container(container: str) -> None:
    docker("stop", container, timeout_s=LONG_S)
    status = docker("inspect", "--format", "{{.State.ExitCode}}", container)
    check(status == "0", f"{container} was stopped, and ended with {status}: {logs(container)[-1000:]}")


SCENARIOS = [Scenario("compose_scaled", scaled, quick=True), Scenario("compose_stopped", stopped, quick=True)]
