#!/usr/bin/python3
"""The RPC tutorial's agent and observers on torch.distributed.rpc: CartPole steps per second.

One agent holds the policy. Each observer has an environment of its own; for every step it asks
the agent for an action in one call, and tells it the reward in another. After each episode the
agent learns from what it collected (REINFORCE); that time does not count.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any, Callable

import torch
import torch.distributed.rpc as rpc
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributed.rpc import RRef
from torch.distributions import Categorical

import peer_options
import peer_program

OBSERVERS_OF_FIGURE = {"rl_steps_per_s_1": 1, "rl_steps_per_s_4": 4}
STEPS_PER_EPISODE = 500  # shared out among the observers
WARM_UP_EPISODES = 2
DISCOUNT = 0.1
LEARNING_RATE = 1e-2


class CartPole:
    """A pole on a cart that is pushed left or right (Barto, Sutton and Anderson, 1983)."""

    GRAVITY = 9.8
    CART_MASS = 1.0
    POLE_MASS = 0.1
    POLE_HALF_LENGTH = 0.5
    FORCE = 10.0
    STEP_S = 0.02
    MAX_POSITION = 2.4
    MAX_ANGLE = math.radians(12)
    MAX_STEPS = 500

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._state = [0.0, 0.0, 0.0, 0.0]
        self._steps = 0

    def reset(self) -> list[float]:
        self._state = [self._random.uniform(-0.05, 0.05) for _ in range(4)]
        self._steps = 0
        return list(self._state)

    def step(self, action: int) -> tuple[list[float], float, bool]:
        """Pushes right for 1, left for 0. Returns the state, the reward and whether it ended."""
        position, velocity, angle, spin = self._state
        force = self.FORCE if action == 1 else -self.FORCE
        total_mass = self.CART_MASS + self.POLE_MASS
        pole_moment = self.POLE_MASS * self.POLE_HALF_LENGTH
        sine, cosine = math.sin(angle), math.cos(angle)

        push = (force + pole_moment * spin * spin * sine) / total_mass
        spin_change = (self.GRAVITY * sine - cosine * push) / (
            self.POLE_HALF_LENGTH * (4 / 3 - self.POLE_MASS * cosine * cosine / total_mass)
        )
        velocity_change = push - pole_moment * spin_change * cosine / total_mass

        self._state = [
            position + self.STEP_S * velocity,
            velocity + self.STEP_S * velocity_change,
            angle + self.STEP_S * spin,
            spin + self.STEP_S * spin_change,
        ]
        self._steps += 1
        ended = (
            abs(self._state[0]) > self.MAX_POSITION
            or abs(self._state[2]) > self.MAX_ANGLE
            or self._steps >= self.MAX_STEPS
        )
        return list(self._state), 1.0, ended


class Policy(nn.Module):
    """State to the probabilities of the two actions, by one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden = nn.Linear(4, 128)
        self._dropout = nn.Dropout(p=0.6)
        self._scores = nn.Linear(128, 2)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self._dropout(self._hidden(state)))
        return F.softmax(self._scores(hidden), dim=1)


def call_method(method: Callable[..., Any], target: RRef, *arguments: Any) -> Any:
    """Runs at the owner of `target`."""
    return method(target.local_value(), *arguments)


def remote_method(method: Callable[..., Any], target: RRef, *arguments: Any) -> Any:
    """Calls a method of the object behind `target`, where that object lives."""
    return rpc.rpc_sync(target.owner(), call_method, args=(method, target, *arguments))


class Observer:
    """Plays an environment by the agent's orders."""

    def __init__(self) -> None:
        self._id = rpc.get_worker_info().id
        self._environment = CartPole(seed=self._id)

    def run_episode(self, agent: RRef, steps: int) -> int:
        """Plays until the episode ends, `steps` steps at most. Returns the steps played."""
        state = self._environment.reset()
        for step in range(1, steps + 1):
            action = remote_method(Agent.select_action, agent, self._id, state)
            state, reward, ended = self._environment.step(action)
            remote_method(Agent.report_reward, agent, self._id, reward)
            if ended:
                return step
        return steps


class Agent:
    """Holds the policy, answers the observers, and learns between episodes."""

    def __init__(self, observer_names: list[str]) -> None:
        self._self_ref = RRef(self)
        self._policy = Policy()
        self._optimizer = optim.Adam(self._policy.parameters(), lr=LEARNING_RATE)
        self._observers: list[RRef] = []
        self._rewards: dict[int, list[float]] = {}
        self._log_probabilities: dict[int, list[torch.Tensor]] = {}
        for name in observer_names:
            worker = rpc.get_worker_info(name)
            self._observers.append(rpc.remote(worker, Observer))
            self._rewards[worker.id] = []
            self._log_probabilities[worker.id] = []

    def select_action(self, observer: int, state: list[float]) -> int:
        probabilities = self._policy(torch.tensor(state).float().unsqueeze(0))
        distribution = Categorical(probabilities)
        action = distribution.sample()
        self._log_probabilities[observer].append(distribution.log_prob(action))
        return int(action.item())

    def report_reward(self, observer: int, reward: float) -> None:
        self._rewards[observer].append(reward)

    def run_episode(self) -> int:
        """Lets all observers play one episode at once. Returns the steps of all of them."""
        steps = STEPS_PER_EPISODE // len(self._observers)
        episodes = [
            rpc.rpc_async(
                observer.owner(),
                call_method,
                args=(Observer.run_episode, observer, self._self_ref, steps),
            )
            for observer in self._observers
        ]
        return sum(episode.wait() for episode in episodes)

    def finish_episode(self) -> None:
        """One step of REINFORCE on what the observers reported, which is then forgotten."""
        rewards = [reward for each in self._rewards.values() for reward in each]
        log_probabilities = [entry for each in self._log_probabilities.values() for entry in each]
        for observer in self._rewards:
            self._rewards[observer] = []
            self._log_probabilities[observer] = []

        returns = []
        discounted = 0.0
        for reward in reversed(rewards):
            discounted = reward + DISCOUNT * discounted
            returns.append(discounted)
        weights = torch.tensor(returns[::-1])
        weights = (weights - weights.mean()) / (weights.std() + 1e-7)

        loss = (-torch.cat(log_probabilities) * weights).sum()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


def measure_rollout(observer_names: list[str], steps_wanted: int) -> float:
    """Steps per second over whole episodes, until `steps_wanted` steps are played."""
    agent = Agent(observer_names)
    for _ in range(WARM_UP_EPISODES):
        agent.run_episode()
        agent.finish_episode()
    steps = 0
    seconds = 0.0
    while steps < steps_wanted:
        start = time.perf_counter()
        steps += agent.run_episode()
        seconds += time.perf_counter() - start
        agent.finish_episode()
    return steps / seconds


def observer_names(count: int) -> list[str]:
    return [f"observer{i}" for i in range(1, count + 1)]


def measure(options: peer_options.Options) -> None:
    """Runs at the agent, for the one figure in `options`."""
    (figure,) = options.figures
    names = observer_names(OBSERVERS_OF_FIGURE[figure])
    options.report(figure, measure_rollout(names, 600 if options.quick else 6000))


def main() -> None:
    options = peer_options.parse_options(tuple(OBSERVERS_OF_FIGURE), __doc__ or "")
    for figure in options.figures:
        names = ["agent", *observer_names(OBSERVERS_OF_FIGURE[figure])]
        peer_program.run_workers(names, measure, peer_options.Options((figure,), options.quick))


if __name__ == "__main__":
    main()
