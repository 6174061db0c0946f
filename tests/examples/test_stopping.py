#!/usr/bin/python3
"""What becomes of the example programs, and of their jobs, when they are asked to end (SIGTERM).

usage: test_stopping.py EXAMPLES SINEW_RUN [unittest arguments]

EXAMPLES is the folder of the built examples.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "docker"))
import example_process  # noqa: E402
import image_files  # noqa: E402
import ports  # noqa: E402
from lab.program import Program  # noqa: E402

EXAMPLES = Path()
SINEW_RUN = Path()
# However busy the machine is, it is faster than that.
LONG_S = 180.0


class StoppingTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def start(self, *command: object, **variables: str) -> Program:
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=example_process.environment(**variables), cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        program = Program(Path(str(command[0])).name, self.process, self.process.send_signal)
        self.addCleanup(program.wait, LONG_S)
        self.addCleanup(example_process.kill_group, self.process)
        return program

    def start_job(self, *commands: tuple[object, ...]) -> list[Program]:
        """One process for each rank."""
        self.commands = commands
        self.port = ports.free_port()
        return [self.start_rank(rank) for rank in range(len(commands))]

    def start_rank(self, rank: int) -> Program:
        return self.start(*self.commands[rank], **example_process.place(self.port, rank, len(self.commands)))

    def check_end(self, *programs: Program, status: int = 0) -> None:
        for program in programs:
            ended = program.wait(LONG_S)
            self.assertEqual(ended, status, f"{program.name} said last: {program.lines[-10:]}")

    def stop(self, *programs: Program, status: int = 0) -> None:
        """All at once, and each ends so."""
        for program in programs:
            program.terminate()
        self.check_end(*programs, status=status)


class RlTest(StoppingTest):
    def start_team(self, observers: int) -> list[Program]:
        endless = ("--episodes", "100000", "--gamma", "0", "--log-interval", "1")
        agent = (EXAMPLES / "rl" / "rl_agent", *endless, "--output", "out")
        team = self.start_job(agent, *[(EXAMPLES / "rl" / "rl_observer",)] * observers)
        team[0].expect("^Episode 3 ", LONG_S)
        return team

    def test_an_observer_leaves_and_the_agent_ends_the_job(self) -> None:
        agent, first, second = self.start_team(observers=2)
        self.stop(first)
        agent.expect("observer1 is lost; the others go on", LONG_S)
        for _ in range(3):
            agent.expect("^Episode ", LONG_S)
        self.stop(agent)
        self.check_end(second)
        self.assertRegex(agent.lines[-1], r"^Stopped after \d+ episodes")
        self.assertTrue((self.folder / "out" / "reward_curve.csv").exists())

    def test_all_at_once(self) -> None:
        self.stop(*self.start_team(observers=2))

    def start_lonely_observer(self, **variables: str) -> Program:
        place = example_process.place(ports.free_port(), 1, 2)
        observer = self.start(EXAMPLES / "rl" / "rl_observer", **place, **variables)
        # Before it handles the signal it ends by it.
        while not self.handles(signal.SIGTERM):
            observer.stay(0.05)
        return observer

    def test_who_waits_for_others(self) -> None:
        self.stop(self.start_lonely_observer())

    def test_a_status_that_is_no_number_is_said(self) -> None:
        for status in ("x", "256", ""):
            observer = self.start_lonely_observer(SINEW_EXAMPLES_STOPPED_STATUS=status)
            self.stop(observer, status=2)
            self.assertEqual(observer.lines[-1], f"SINEW_EXAMPLES_STOPPED_STATUS: '{status}' is no number from 0 to 255")

    def handles(self, number: signal.Signals) -> bool:
        (caught,) = re.findall(r"^SigCgt:\t(\w+)$", Path(f"/proc/{self.process.pid}/status").read_text(), re.MULTILINE)
        return int(caught, 16) >> (number - 1) & 1 == 1

    def test_under_sinew_run(self) -> None:
        roles = [("--role", "agent=1", EXAMPLES / "rl" / "rl_agent", "--episodes", "100000", "--gamma", "0", "--output", "out")]
        roles.append(("--role", "observer=2", EXAMPLES / "rl" / "rl_observer"))
        for tell in self.stop, self.stop_session:
            job = self.start(SINEW_RUN, *(word for role in roles for word in role))
            job.expect("Episode 10 ", LONG_S)
            tell(job)
            self.assertRegex("\n".join(job.lines), r"(?m)^Stopped after \d+ episodes")
            (self.folder / "out" / "reward_curve.csv").unlink()

    def stop_session(self, job: Program) -> None:
        """As a service manager or a scheduler does: all processes, of which the job's launcher tells them again."""
        for number in (self.process.pid, *example_process.members(self.process, "rl_")):
            os.kill(number, signal.SIGTERM)
        self.check_end(job)


class ParameterServerTest(StoppingTest):
    def start_training(self) -> list[Program]:
        (self.folder / "text").write_text("".join(f"w{n % 37} w{n % 11} w{n % 5} w{n % 23}\n" for n in range(3000)))
        command = (
            EXAMPLES / "ps_rnn" / "ps_rnn", "--data", self.folder / "text", "--ninp", "8", "--nhid", "8", "--batch", "5",
            "--bptt", "8", "--round", "2", "--epochs", "1000", "--checkpoint", "saved", "--checkpoint-rounds", "1",
        )  # fmt: skip
        job = self.start_job(*[command] * 3)
        job[0].expect("epoch 1, step 4 ", LONG_S)
        return job

    def test_trainer_and_server_leave_and_the_leader_ends_the_job(self) -> None:
        leader, trainer, server = self.start_training()
        self.stop(trainer)
        leader.expect("going on at step .* with 1 trainers", LONG_S)
        leader.expect("epoch .*, step ", LONG_S)
        self.stop(server)
        server = self.start_rank(2)
        leader.expect("going on at step .* with 1 trainers", LONG_S)
        leader.expect("epoch .*, step ", LONG_S)
        self.stop(leader)
        self.check_end(server)
        self.assertRegex("\n".join(leader.lines), r"(?m)^Stopped in epoch \d+$")

    def test_all_at_once(self) -> None:
        self.stop(*self.start_training())

    def test_batch_ps(self) -> None:
        command = (EXAMPLES / "batch_ps" / "batch_ps", "--steps", "1000000")
        server, first, second = self.start_job(*[command] * 3)
        server.expect("^Step 100:", LONG_S)
        self.stop(first)
        server.expect("worker1.*the others go on", LONG_S)
        server.expect("^Step ", LONG_S)
        self.stop(server)
        self.check_end(second)

    def test_inference_server(self) -> None:
        command = (EXAMPLES / "inference_server" / "inference_server", "--requests", "10000000", "--batches", "1")
        job = self.start_job(*[command] * 3)
        job[0].expect(".", LONG_S)
        self.stop(*job)


class LearnerTest(StoppingTest):
    def test_learner_and_actor(self) -> None:
        init_method = f"tcp://127.0.0.1:{ports.free_port()}"
        folder = EXAMPLES / "actor_learner"
        learner = self.start(folder / "learner", "--init-method", init_method, SINEW_EXAMPLES_STOPPED_STATUS="7")
        actor = self.start(folder / "actor" / "actor", "--init-method", init_method, "--name", "actor")
        actor.expect("found the learner", LONG_S)
        self.stop(learner, status=7)
        actor.expect("the learner is away", LONG_S)
        self.stop(actor)


class RanksTest(StoppingTest):
    def setUp(self) -> None:
        super().setUp()
        image_files.write_mnist(self.folder / "data", train=600, test=60)

    def test_image_classifier(self) -> None:
        program = EXAMPLES / "image_classifier" / "image_classifier"
        flags = (
            "--mode", "ddp", "--data", "data", "--width", "4", "--stem", "imagenet", "--batch", "20", "--round", "1",
            "--threads", "1", "--checkpoint", "saved", "--resume", "--epochs", "1000",
        )  # fmt: skip
        first, second = self.start_job(*[(program, *flags)] * 2)
        first.expect("^Epoch 2, step 2 ", LONG_S)
        second.terminate()
        self.check_end(first, second)
        job = self.start_job(*[(program, *flags)] * 2)
        job[0].expect("^Going on after epoch [1-9]", LONG_S)
        job[0].expect("^Epoch .*, step ", LONG_S)
        self.stop(*job)

    def test_mnist_sgd_with_ranks_of_its_own(self) -> None:
        program = EXAMPLES / "mnist_sgd" / "mnist_sgd"
        job = self.start(program, "--nproc", "2", "--data", "data", "--epochs", "1000000")
        job.expect("^Epoch 1: ", LONG_S)
        self.stop(job)


if __name__ == "__main__":
    EXAMPLES, SINEW_RUN = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
