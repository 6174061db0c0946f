#!/usr/bin/python3
"""Runs the agent and its observers as processes, for a few episodes.

usage: test_rl.py SINEW_RUN RL [unittest arguments]

RL is the folder of the built programs.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Iterator, Sequence
from xml.etree import ElementTree

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "docker"))
import example_process  # noqa: E402
import ports  # noqa: E402
from example_process import Ended  # noqa: E402
from lab.program import Program  # noqa: E402

SINEW_RUN = Path()
RL = Path()
SOURCES = Path(__file__).resolve().parents[2]
# However busy the machine is, it is faster than that.
LONG_S = 180.0
LOG_LINE = re.compile(r"^Episode \d+  Last reward: \d+\.\d\d  Average reward: \d+\.\d\d$")


def job(flags: Sequence[str | Path], observers: int) -> list[str | Path]:
    return [
        SINEW_RUN, "--role", "agent=1", RL / "rl_agent", *flags, "--role", f"observer={observers}", RL / "rl_observer",
    ]  # fmt: skip


class JobTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def train(self, *flags: str, observers: int = 1, output: str = "out", timeout_s: float = 120) -> Ended:
        command = job(["--output", self.folder / output, *flags], observers)
        return example_process.run(command, timeout_s, cwd=str(self.folder))

    def csv(self, output: str = "out") -> list[str]:
        return (self.folder / output / "reward_curve.csv").read_text().splitlines()


class ClientTest(JobTest):
    """rl/observer.py, a client of the agent."""

    def setUp(self) -> None:
        super().setUp()
        if subprocess.run(["/usr/bin/python3", "-c", "import grpc, numpy, google.protobuf"], check=False).returncode != 0:
            self.skipTest("a package of the Python client is missing")
        self.port = ports.free_port()

    def start(self, rank: int, *command: str | Path) -> Program:
        return self.run_as(command, **example_process.place(self.port, rank, 2))

    def start_client(self, *flags: str) -> Program:
        command = (
            "/usr/bin/python3", SOURCES / "examples" / "rl" / "observer.py", "--address", f"127.0.0.1:{self.port}", *flags,
        )  # fmt: skip
        return self.run_as(command, PYTHONPATH=f"{SOURCES / 'clients' / 'python'}:{self.folder}", PYTHONDONTWRITEBYTECODE="1",
                           SINEW_JOB_TOKEN="")

    def write_gymnasium(self) -> None:
        """A package with that interface; the real one need not be here."""
        (self.folder / "gymnasium.py").write_text(
            "import types\n"
            "class Env:\n"
            "    action_space = types.SimpleNamespace(n=2)\n"
            "    def __init__(self, size): self.observation_space = types.SimpleNamespace(shape=(size,))\n"
            "    def reset(self, seed=None): return [0.0] * 4, {}\n"
            "    def step(self, action): return [0.1] * 4, 1.0, action == 1, False, {}\n"
            "def make(name): return Env({'Four-v0': 4, 'Three-v0': 3}[name])\n"
        )

    def run_as(self, command: Sequence[str | Path], **variables: str) -> Program:
        process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=example_process.environment(**variables), cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        program = Program(Path(str(command[-1])).name, process, process.send_signal)
        self.addCleanup(program.wait, LONG_S)
        self.addCleanup(example_process.kill_group, process)
        return program

    def start_team(self, *flags: str, episodes: int = 100_000) -> Program:
        self.start(1, RL / "rl_observer")
        return self.start(0, RL / "rl_agent", "--episodes", str(episodes), "--gamma", "0", "--log-interval", "1", "--max-steps", "40",
                          "--output", "out", *flags)

    def test_comes_goes_and_comes_again(self) -> None:
        agent = self.start_team()
        for leave in (signal.SIGKILL, signal.SIGINT):
            client = self.start_client()
            agent.expect("python joins the team", LONG_S)
            for _ in range(5):
                agent.expect("^Episode ", LONG_S)
            client.signal(leave)
            client.wait(LONG_S)
            agent.expect("python is lost; the others go on", LONG_S)
            agent.expect("^Episode ", LONG_S)

    def test_ends_with_the_agent(self) -> None:
        agent = self.start_team()
        client = self.start_client()
        agent.expect("python joins the team", LONG_S)
        for _ in range(3):
            agent.expect("^Episode ", LONG_S)
        agent.terminate()
        self.assertEqual(agent.wait(LONG_S), 0)
        self.assertEqual(client.wait(LONG_S), 0, client.lines)
        self.assertRegex(client.lines[-1], r"^The agent has ended, after [1-9]\d* episodes$")

    def test_ends_with_the_job(self) -> None:
        """The agent's shutdown waits for no call of a client."""
        client = self.start_client()  # it waits for the agent, and so is there early
        agent = self.start_team(episodes=1000)
        agent.expect("python joins the team", LONG_S)
        self.assertEqual(agent.wait(LONG_S), 1, agent.lines[-3:])
        self.assertIn("rl_agent: not solved", agent.lines[-1])
        self.assertEqual(client.wait(LONG_S), 0, client.lines)

    def test_one_that_stood_still_comes_again(self) -> None:
        agent = self.start_team()
        client = self.start_client()
        agent.expect("python joins the team", LONG_S)
        client.pause()
        agent.expect("python is lost; the others go on", LONG_S)
        client.resume()
        agent.expect("python joins the team", LONG_S)

    def test_environments_of_gymnasium(self) -> None:
        (self.folder / "gymnasium.py").write_text("raise ImportError")
        client = self.start_client("--env", "Four-v0")
        self.assertEqual(client.wait(LONG_S), 3)
        self.assertIn("--env Four-v0 needs the package gymnasium", client.lines[-1])
        self.write_gymnasium()
        client = self.start_client("--env", "Three-v0")
        self.assertEqual(client.wait(LONG_S), 3)
        self.assertIn("the agent knows four numbers, and 0 or 1", client.lines[-1])
        agent = self.start_team()
        self.start_client("--env", "Four-v0")
        agent.expect("python joins the team", LONG_S)
        for _ in range(3):
            agent.expect("^Episode ", LONG_S)

    def test_no_client_with_batch(self) -> None:
        self.start_team("--batch").expect("^Episode ", LONG_S)
        client = self.start_client()
        self.assertEqual(client.wait(LONG_S), 3)
        self.assertIn("the agent takes no client", client.lines[-1])


class TrainingTest(JobTest):
    def test_unsolved_training_logs_writes_the_curve_and_says_so(self) -> None:
        ended = self.train("--episodes", "12", "--log-interval", "5")
        self.assertEqual(ended.status, 1, ended.stderr)
        lines = [line for line in ended.stdout.splitlines() if line.startswith("Episode")]
        self.assertEqual([line.split()[1] for line in lines], ["5", "10", "12"])
        for line in lines:
            self.assertRegex(line, LOG_LINE)
        self.assertIn("not solved", ended.stderr)
        self.assertNotIn("Solved!", ended.stdout)
        self.assertNotIn("\r", ended.stdout + ended.stderr, "no progress bar into a pipe")

        table = self.csv()
        self.assertEqual(table[0], "episode,last_reward,average_reward")
        self.assertEqual([row.split(",")[0] for row in table[1:]], [str(n) for n in range(1, 13)])
        average = 0.0
        for row in table[1:]:
            reward = float(row.split(",")[1])
            self.assertTrue(1 <= reward <= 500 and reward.is_integer(), row)
            average = 0.05 * reward + 0.95 * average
            self.assertAlmostEqual(float(row.split(",")[2]), average, 9)
        picture = ElementTree.parse(self.folder / "out" / "reward_curve.svg").getroot()
        self.assertTrue(picture.tag.endswith("svg"))

    def test_one_observer_is_reproducible(self) -> None:
        for mode in ((), ("--batch",)):
            for output in ("first", "second"):
                ended = self.train("--episodes", "15", "--seed", "4", *mode, output=output)
                self.assertEqual(ended.status, 1, ended.stderr)
            self.assertEqual(self.csv("first"), self.csv("second"), mode)
            self.assertEqual(len(self.csv("first")), 16)

    def test_another_seed_plays_otherwise(self) -> None:
        self.train("--episodes", "5", "--seed", "1", output="one")
        self.train("--episodes", "5", "--seed", "2", output="two")
        self.assertNotEqual(self.csv("one"), self.csv("two"))

    def test_batches_of_several_observers_are_reproducible(self) -> None:
        for output in ("first", "second"):
            ended = self.train(
                "--batch", "--max-wait", "60000", "--episodes", "6", "--seed", "3", observers=3, output=output
            )
            self.assertEqual(ended.status, 1, ended.stderr)
        self.assertEqual(self.csv("first"), self.csv("second"))

    def test_several_observers_share_the_steps(self) -> None:
        ended = self.train("--max-steps", "30", "--episodes", "5", observers=3)
        self.assertEqual(ended.status, 1, ended.stderr)
        picture = (self.folder / "out" / "reward_curve.svg").read_text()
        self.assertIn("CartPole-v1, 3 observers, seed", picture)
        self.assertIn(">goal 9.5<", picture)
        for row in self.csv()[1:]:
            self.assertLessEqual(float(row.split(",")[1]), 10)

    def test_many_environments_per_observer_learn(self) -> None:
        for output in ("first", "second"):
            ended = self.train("--envs", "8", "--episodes", "25", "--log-interval", "10", output=output)
            self.assertEqual(ended.status, 1, ended.stderr)
            lines = [line for line in ended.stdout.splitlines() if line.startswith("Episode")]
            self.assertEqual([line.split()[1] for line in lines], ["10", "20", "25"])
            for line in lines:
                self.assertRegex(line, LOG_LINE)
        self.assertEqual(self.csv("first"), self.csv("second"))
        picture = (self.folder / "first" / "reward_curve.svg").read_text()
        self.assertIn("CartPole-v1, 1 observer of 8 environments, seed", picture)

    def test_many_environments_at_two_observers(self) -> None:
        ended = self.train("--envs", "8", "--episodes", "30", observers=2)
        self.assertEqual(ended.status, 1, ended.stderr)
        self.assertIn("CartPole-v1, 2 observers of 8 environments", (self.folder / "out" / "reward_curve.svg").read_text())
        rewards = [float(row.split(",")[1]) for row in self.csv()[1:]]
        self.assertEqual(len(rewards), 30)
        self.assertTrue(all(8 <= reward <= 250 and reward.is_integer() for reward in rewards), rewards)
        # Sixteen poles, of which the worst counts: nobody does so by luck.
        self.assertGreater(sum(rewards[-5:]), 1.5 * sum(rewards[:5]), rewards)

    def test_ends_with_solved_at_the_goal(self) -> None:
        # Nobody drops the pole within 8 steps, so the average reaches 95 % of 4 steps each after 59 episodes.
        ended = self.train("--max-steps", "8", "--episodes", "100", observers=2)
        self.assertEqual(ended.status, 0, ended.stderr)
        self.assertEqual(ended.stdout.splitlines()[-1], "Solved!")
        self.assertEqual(len(self.csv()), 1 + 59)

    def test_no_curve(self) -> None:
        command = job(["--output", "", "--episodes", "1"], observers=1)
        ended = example_process.run(command, cwd=str(self.folder))
        self.assertEqual(ended.status, 1, ended.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])


class SpawnTest(JobTest):
    """One program that spawns the agent and the observers."""

    def spawn(self, *flags: str) -> Ended:
        return example_process.run([RL / "rl_spawn", *flags], 240, cwd=str(self.folder))

    def test_a_few_episodes(self) -> None:
        ended = self.spawn("--observers", "2", "--episodes", "7", "--log-interval", "3")
        self.assertEqual((ended.status, ended.stderr), (0, ""), ended.stdout)
        *lines, last = ended.stdout.splitlines()
        self.assertEqual([line.split()[1] for line in lines], ["3", "6"])
        for line in lines:
            self.assertRegex(line, LOG_LINE)
        self.assertEqual(last, "Not solved within 7 episodes")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_it_plays_what_rl_agent_plays(self) -> None:
        flags = ("--episodes", "12", "--log-interval", "4", "--seed", "3")
        spawned = self.spawn("--observers", "1", *flags).stdout.splitlines()
        launched = self.train(*flags).stdout.splitlines()
        self.assertEqual(len(spawned), 4, spawned)
        self.assertEqual(spawned[:3], [line for line in launched if line.startswith("Episode")])

    def test_mistakes(self) -> None:
        for flags in (("--observers", "0"), ("--seed", "x"), ("--nonsense",)):
            ended = self.spawn(*flags)
            self.assertEqual(ended.status, 2, ended.stderr)
            self.assertIn(flags[0], ended.stderr)


class MistakeTest(JobTest):
    def test_wrong_flags_end_it_at_once(self) -> None:
        for flags, told in (
            (("--gamma", "2"), "--gamma"),
            (("--nonsense",), "--nonsense"),
            (("--envs", "0"), "--envs: must be a whole number from 1 to 1024, and '0' is not"),
            (("--envs", "some"), "--envs: must be a whole number from 1 to 1024, and 'some' is not"),
            (("--envs", "2000"), "--envs: must be a whole number from 1 to 1024, and '2000' is not"),
            (("--envs", "4", "--batch"), "--envs 4 asks for many actions in one call already: leave out --batch"),
            (("--max-steps", "5"), "--max-steps 5 leaves fewer than 2 steps for each of 3 observers"),
        ):
            ended = self.train(*flags, observers=3, timeout_s=30)
            self.assertEqual(ended.status, 2, ended.stderr)
            self.assertIn(told, ended.stderr)

    def test_help(self) -> None:
        for program, told in (
            ("rl_agent", ("--log-interval", "sinew-run --role agent=1 rl_agent")),
            ("rl_observer", ("rl_agent --help",)),
        ):
            ended = example_process.run([RL / program, "--help"])
            self.assertEqual(ended.status, 0)
            for words in told:
                self.assertIn(words, ended.stdout)

    def test_an_observer_has_no_flags(self) -> None:
        ended = example_process.run([RL / "rl_observer", "--gamma", "0"], 30)
        self.assertEqual(ended.status, 2)
        self.assertIn("--gamma", ended.stderr)

    def test_jobs_that_are_none(self) -> None:
        observer_first = [
            SINEW_RUN, "--role", "observer=1", RL / "rl_observer", "--role", "agent=1", RL / "rl_agent",
        ]  # fmt: skip
        for command, told in (
            ([RL / "rl_agent"], "sinew-run --role agent=1 rl_agent"),
            ([RL / "rl_observer"], "sinew-run --role agent=1 rl_agent"),
            ([SINEW_RUN, RL / "rl_agent"], "a job of 1 processes, and it takes 2 to 1024"),
            (observer_first, "the agent's role must be the first one"),
        ):
            ended = example_process.run(command, 30)
            self.assertEqual(ended.status, 2, ended.stderr)
            self.assertIn(told, ended.stderr)

    def test_a_curve_that_cannot_be_written(self) -> None:
        (self.folder / "file").write_text("")
        ended = self.train("--episodes", "1", output="file/sub")
        self.assertEqual(ended.status, 3, ended.stderr)
        self.assertIn("file/sub", ended.stderr)


class EndingTest(JobTest):
    """How a job ends, of which nothing is left."""

    # All returns are the same, so there is nothing to learn.
    UNSOLVABLE = ("--gamma", "0", "--log-interval", "1", "--episodes")
    ENDLESS = "1000000"

    def end_with_the_test(self, process: subprocess.Popen[str]) -> None:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                self.addCleanup(pipe.close)
        self.addCleanup(process.wait)
        self.addCleanup(example_process.kill_group, process)

    def start(self, observers: int = 1) -> subprocess.Popen[str]:
        process = example_process.start(job([*self.UNSOLVABLE, self.ENDLESS], observers))
        self.end_with_the_test(process)
        self.read_until(process, "Episode 1 ")
        return process

    def start_by_hand(
        self, *flags: str | Path, observers: int = 1, episodes: str = ENDLESS
    ) -> list[subprocess.Popen[str]]:
        """The agent and its observers, of which each ends alone, and can be started again."""
        agent = [RL / "rl_agent", *self.UNSOLVABLE, episodes, *flags]
        commands = [agent, *([RL / "rl_observer"] for _ in range(observers))]
        self.port = ports.free_port()
        # In one pipe the agent's lines stay in order: episodes behind the loss were played after it.
        processes = example_process.start_by_hand(commands, self.port, stderr=subprocess.STDOUT)
        for process in processes:
            self.end_with_the_test(process)
        self.read_until(processes[0], "Episode 1 ")
        return processes

    def start_observer_again(self, rank: int, observers: int) -> subprocess.Popen[str]:
        place = example_process.place(self.port, rank, 1 + observers)
        process = example_process.start([RL / "rl_observer"], place, stderr=subprocess.STDOUT)
        self.end_with_the_test(process)
        return process

    def members(self, process: subprocess.Popen[str]) -> list[int]:
        return example_process.members(process, "rl_")

    @contextlib.contextmanager
    def ended_if_it_stands_still(self, process) -> Iterator[None]:
        """Kills the group when the body takes minutes: what it reads ends then. However slow the machine is, it is faster than that."""
        timer = threading.Timer(240, example_process.kill_group, [process])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def read_until(self, process, text: str) -> list[str]:
        """The lines up to the next one with `text`."""
        lines = []
        for line in iter(process.stdout.readline, ""):
            lines.append(line)
            if text in line:
                return lines
        self.fail(f"the agent stands still, or has ended, before {text!r}: {lines}")

    def test_signals_end_all_processes(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start(observers=2)
            self.assertEqual(len(self.members(process)), 3)
            process.send_signal(number)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
            self.assertEqual(self.members(process), [])

    def test_a_killed_process_ends_the_job(self) -> None:
        for program in ("rl_agent", "rl_observer"):
            process = self.start(observers=2)
            os.kill(example_process.members(process, program)[0], signal.SIGKILL)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + signal.SIGKILL)
            self.assertEqual(self.members(process), [])

    def test_without_sinew_run_the_others_play_on_and_a_killed_observer_comes_back(self) -> None:
        for mode in ((), ("--batch",), ("--envs", "8")):
            agent, victim, other = self.start_by_hand(*mode, observers=2)
            with self.ended_if_it_stands_still(agent):
                victim.kill()
                lines = self.read_until(agent, "observer1 is lost; the others")
                for _ in range(20):
                    lines += self.read_until(agent, "Episode ")
                self.assertEqual(sum("is lost" in line for line in lines), 1, lines)
                self.assertIsNone(other.poll())

                victim = self.start_observer_again(1, observers=2)
                self.read_until(agent, "observer1 joins the team")
                for _ in range(20):
                    self.read_until(agent, "Episode ")
                # It plays: nobody else is left.
                other.kill()
                self.read_until(agent, "observer2 is lost; the others")
                for _ in range(20):
                    self.read_until(agent, "Episode ")
                self.assertIsNone(victim.poll())

    def test_an_observer_that_is_stopped_for_longer_than_its_lease_rejoins_by_itself(self) -> None:
        agent, victim, other = self.start_by_hand(observers=2)
        with self.ended_if_it_stands_still(agent):
            victim.send_signal(signal.SIGSTOP)
            self.read_until(agent, "observer1 is lost; the others")
            self.read_until(agent, "Episode ")
            victim.send_signal(signal.SIGCONT)
            self.read_until(victim, "rl_observer: was out of the job, and joins it again")
            self.read_until(agent, "observer1 joins the team")
            # It plays: nobody else is left.
            other.kill()
            self.read_until(agent, "observer2 is lost; the others")
            for _ in range(20):
                self.read_until(agent, "Episode ")
            agent.kill()
            self.assertEqual(victim.wait(timeout=60), 0)

    def test_the_only_observer_comes_back_and_all_end_together(self) -> None:
        output = self.folder / "out"
        agent, victim = self.start_by_hand("--output", output, episodes="500")
        victim.kill()
        self.read_until(agent, "observer1 is lost")
        observer = self.start_observer_again(1, observers=1)
        self.read_until(agent, "observer1 joins the team")
        agent.communicate(timeout=240)
        self.assertEqual(agent.returncode, 1)
        self.assertEqual(len(self.csv()), 1 + 500)
        self.assertEqual(observer.wait(timeout=60), 0)

    def test_all_observers_lost(self) -> None:
        agent, victim = self.start_by_hand("--patience", "0.5")
        victim.kill()
        output, _ = agent.communicate(timeout=60)
        self.assertEqual(agent.returncode, 3)
        self.assertIn("all observers are lost, and none has come within 0.5 s", output)

    def test_an_observer_leaves_with_a_killed_agent(self) -> None:
        agent, observer = self.start_by_hand()
        agent.kill()
        self.assertEqual(observer.wait(timeout=60), 0)


def main() -> None:
    global SINEW_RUN, RL
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    SINEW_RUN, RL = (Path(sys.argv.pop(1)).absolute() for _ in range(2))
    unittest.main()


if __name__ == "__main__":
    main()
