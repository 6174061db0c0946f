#!/usr/bin/python3
"""Plays CartPole for an agent (rl_agent) that runs already, as its observers in C++ do.

Needs the package sinew_client (clients/python). `--env NAME` is an environment of Gymnasium with four numbers as state and two
actions; without it the CartPole below is played. Ends when the agent does.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from typing import Any, List, Tuple

import sinew_client

# What calls end with when the agent does.
ENDED = (sinew_client.ErrorCode.UNAVAILABLE, sinew_client.ErrorCode.CANCELLED, sinew_client.ErrorCode.NOT_FOUND)
STEP_S, GRAVITY, POLE_KG, TOTAL_KG, HALF_POLE_M, FORCE_N = 0.02, 9.8, 0.1, 1.1, 0.5, 10.0


class CartPole:
    """CartPole-v1, with the interface of gymnasium.Env."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def reset(self) -> Tuple[List[float], dict]:
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return self.state, {}

    def step(self, action: int) -> Tuple[List[float], float, bool, bool, dict]:
        position, velocity, angle, spin = self.state
        force = FORCE_N if action == 1 else -FORCE_N
        drive = (force + POLE_KG * HALF_POLE_M * spin**2 * math.sin(angle)) / TOTAL_KG
        turn = (GRAVITY * math.sin(angle) - math.cos(angle) * drive) / (
            HALF_POLE_M * (4 / 3 - POLE_KG * math.cos(angle) ** 2 / TOTAL_KG)
        )
        push = drive - POLE_KG * HALF_POLE_M * turn * math.cos(angle) / TOTAL_KG
        self.state = [
            position + STEP_S * velocity, velocity + STEP_S * push, angle + STEP_S * spin, spin + STEP_S * turn,
        ]  # fmt: skip
        self.steps += 1
        fell = abs(self.state[0]) > 2.4 or abs(self.state[2]) > math.radians(12)
        return self.state, 1.0, fell, self.steps >= 500, {}


def make_environment(name: str, seed: int) -> Any:
    if not name:
        return CartPole(seed)
    try:
        import gymnasium
    except ImportError:
        raise ValueError(f"--env {name} needs the package gymnasium; without --env the bundled CartPole is played") from None
    environment = gymnasium.make(name)
    state, actions = environment.observation_space, environment.action_space
    if getattr(state, "shape", None) != (4,) or getattr(actions, "n", None) != 2:
        raise ValueError(f"--env {name} has {state} as state and {actions} as actions; the agent knows four numbers, and 0 or 1")
    environment.reset(seed=seed)
    return environment


class Agent:
    """The agent, which its worker has published under that name."""

    def __init__(self, client: sinew_client.Client) -> None:
        self.client = client

    def __call__(self, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        return self.client.call(f"rl::Agent::{method}", *arguments, object="agent", timeout=timeout)

    def enter(self, name: str) -> int:
        """Waits until it is published: when the agent's first observers are there."""
        give_up = time.monotonic() + 60.0
        while True:
            try:
                return self("enter", name)
            except sinew_client.RpcError as error:
                if error.code is not sinew_client.ErrorCode.NOT_FOUND or time.monotonic() > give_up:
                    raise
            time.sleep(0.2)


def play(agent: Agent, me: int, environment: Any) -> bool:
    """One episode; False when there is none any more."""
    most = agent("next_episode", me, timeout=math.inf)
    if most == 0:
        return False
    state, _ = environment.reset()
    for _ in range(most):
        action = agent("select_action", me, [float(number) for number in state])
        state, reward, fell, is_over, _ = environment.step(action)
        agent("report_reward", me, float(reward))
        if fell or is_over:
            break
    agent("end_episode", me)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default="127.0.0.1:29500", help="of the agent: MASTER_ADDR:MASTER_PORT")
    parser.add_argument("--name", default="python", help="what the agent calls this one")
    parser.add_argument("--seed", type=int, default=1, help="of the environment")
    parser.add_argument("--env", default="", metavar="NAME", help="environment of Gymnasium")
    options = parser.parse_args()
    try:
        environment = make_environment(options.env, options.seed)
        with sinew_client.connect(options.address) as client:
            agent = Agent(client)
            me = agent.enter(options.name)
            episodes = 0
            while True:
                try:
                    if not play(agent, me, environment):
                        break
                    episodes += 1
                except sinew_client.RpcError as error:
                    if error.code in ENDED:
                        break
                    if not error.remote_message.startswith("the agent has no "):
                        raise
                    me = agent.enter(options.name)  # it was stopped for long
            print(f"The agent has ended, after {episodes} episodes")
    except (sinew_client.RpcError, ValueError) as error:
        print(f"observer.py: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
