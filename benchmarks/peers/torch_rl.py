#!/usr/bin/python3
"""The RPC tutorial's agent and observers on torch.distributed.rpc: CartPole steps per second.

One agent holds the policy. Each observer has an environment of its own; for every step it asks
the agent for an action in one call, and tells it the reward in another. After each episode the
agent learns from what it collected (REINFORCE); that time does not count.

With many environments an observer steps them as arrays, in two groups: it asks for all actions of one
group in one call while the other one steps, and tells all rewards at the end.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
import torch
import torch.distributed.rpc as rpc
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributed.rpc import RRef
from torch.distributions import Categorical

import peer_options
import peer_program

VECTOR_FIGURE = "rl_vector_steps_per_s_4"
OBSERVERS_OF_FIGURE = {"rl_steps_per_s_1": 1, "rl_steps_per_s_4": 4, VECTOR_FIGURE: 4}
ENVIRONMENTS = 256  # of each observer, for VECTOR_FIGURE
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


class CartPoles:
    """Several of them, stepped as arrays. Whichever has ended is left out until all begin again."""

    def __init__(self, numbers: range, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._numbers = np.asarray(numbers)
        self.playing = self._numbers
        self._states = np.empty((4, 0))
        self._steps = 0

    def reset(self) -> None:
        self.playing = self._numbers
        self._states = self._random.uniform(-0.05, 0.05, (4, len(self._numbers)))
        self._steps = 0

    def states(self) -> torch.Tensor:
        return torch.from_numpy(self._states.T.astype(np.float32, order="C"))

    def step(self, actions: torch.Tensor, max_steps: int) -> np.ndarray:
        """Returns the rewards of those who played."""
        one = CartPole
        position, velocity, angle, spin = self._states
        force = np.where(actions.numpy() == 1, one.FORCE, -one.FORCE)
        total_mass = one.CART_MASS + one.POLE_MASS
        pole_moment = one.POLE_MASS * one.POLE_HALF_LENGTH
        sine, cosine = np.sin(angle), np.cos(angle)

        push = (force + pole_moment * spin * spin * sine) / total_mass
        spin_change = (one.GRAVITY * sine - cosine * push) / (
            one.POLE_HALF_LENGTH * (4 / 3 - one.POLE_MASS * cosine * cosine / total_mass)
        )
        velocity_change = push - pole_moment * spin_change * cosine / total_mass

        self._states = self._states + one.STEP_S * np.stack((velocity, velocity_change, spin, spin_change))
        self._steps += 1
        rewards = np.ones(len(self.playing))
        goes_on = (np.abs(self._states[0]) <= one.MAX_POSITION) & (np.abs(self._states[2]) <= one.MAX_ANGLE)
        if self._steps >= min(one.MAX_STEPS, max_steps):
            goes_on[:] = False
        if not goes_on.all():
            self.playing = self.playing[goes_on]
            self._states = self._states[:, goes_on]
        return rewards


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

    def draw_dropout(self, rows: int) -> torch.Tensor:
        kept = 1 - self._dropout.p
        return torch.rand(rows, 128).lt_(kept).mul_(1 / kept)  # bernoulli_() takes longer

    def forward_with(self, states: torch.Tensor, dropout: torch.Tensor) -> torch.Tensor:
        """The same with a dropout that was drawn before."""
        hidden = F.relu(self._hidden(states) * dropout)
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


class VectorObserver:
    """Plays many environments by the agent's orders: while it decides for one group, the other steps."""

    def __init__(self) -> None:
        self._id = rpc.get_worker_info().id
        numbers = range(ENVIRONMENTS)
        half = ENVIRONMENTS // 2
        self._groups = [CartPoles(numbers[:half], 2 * self._id), CartPoles(numbers[half:], 2 * self._id + 1)]

    def run_episode(self, agent: RRef, steps: int) -> int:
        """One episode in each environment, `steps` steps at most. Returns the steps of all."""
        owner = agent.owner()

        def ask(group: CartPoles) -> torch.futures.Future:
            arguments = (VectorAgent.select_actions, agent, self._id, group.states())
            return rpc.rpc_async(owner, call_method, args=arguments)

        for group in self._groups:
            group.reset()
        environments, rewards = [], []
        asking, other = self._groups
        asked = ask(asking)
        while len(asking.playing) > 0:
            actions = asked.wait()
            is_other_playing = len(other.playing) > 0
            if is_other_playing:
                asked = ask(other)
            environments.append(asking.playing)
            rewards.append(asking.step(actions, steps))
            if is_other_playing:
                asking, other = other, asking
            elif len(asking.playing) > 0:
                asked = ask(asking)
        earned = torch.from_numpy(np.concatenate(rewards))
        whose = torch.from_numpy(np.concatenate(environments))
        remote_method(VectorAgent.report_rewards, agent, self._id, whose, earned)
        return len(earned)


class Agent:
    """Holds the policy, answers the observers, and learns between episodes."""

    def __init__(self, observer_names: list[str], observer_class: type = Observer) -> None:
        self._self_ref = RRef(self)
        self._policy = Policy()
        self._optimizer = optim.Adam(self._policy.parameters(), lr=LEARNING_RATE)
        self._observer_class = observer_class
        self._observers: list[RRef] = []
        self._rewards: dict[int, list[float]] = {}
        self._log_probabilities: dict[int, list[torch.Tensor]] = {}
        for name in observer_names:
            worker = rpc.get_worker_info(name)
            self._observers.append(rpc.remote(worker, observer_class))
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
                args=(self._observer_class.run_episode, observer, self._self_ref, steps),
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
        self._learn(torch.cat(log_probabilities), torch.tensor(returns[::-1]))

    def _learn(self, log_probabilities: torch.Tensor, weights: torch.Tensor) -> None:
        weights = (weights - weights.mean()) / (weights.std() + 1e-7)
        loss = (-log_probabilities * weights).sum()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


@dataclass
class Played:
    """What one observer has played of an episode, without graphs."""

    states: list[torch.Tensor]
    dropout: list[torch.Tensor]
    actions: list[torch.Tensor]
    environments: torch.Tensor
    rewards: torch.Tensor

    def returns(self) -> torch.Tensor:
        later = [0.0] * ENVIRONMENTS
        returns = []
        for environment, reward in zip(self.environments.flip(0).tolist(), self.rewards.flip(0).tolist()):
            later[environment] = reward + DISCOUNT * later[environment]
            returns.append(later[environment])
        return torch.tensor(returns[::-1])


class VectorAgent(Agent):
    """The same for observers with many environments. Keeps no graphs: it computes once more at the end."""

    def __init__(self, observer_names: list[str]) -> None:
        super().__init__(observer_names, VectorObserver)
        self._played: dict[int, Played] = {}
        self._forget()

    def _forget(self) -> None:
        self._played = {id: Played([], [], [], torch.empty(0), torch.empty(0)) for id in self._rewards}

    @torch.no_grad()
    def select_actions(self, observer: int, states: torch.Tensor) -> torch.Tensor:
        dropout = self._policy.draw_dropout(len(states))
        actions = self._policy.forward_with(states, dropout).multinomial(1).squeeze(1)
        played = self._played[observer]
        played.states.append(states)
        played.dropout.append(dropout)
        played.actions.append(actions)
        return actions

    def report_rewards(self, observer: int, environments: torch.Tensor, rewards: torch.Tensor) -> None:
        self._played[observer].environments = environments
        self._played[observer].rewards = rewards

    def finish_episode(self) -> None:
        all_played = list(self._played.values())
        states = torch.cat([entry for each in all_played for entry in each.states])
        dropout = torch.cat([entry for each in all_played for entry in each.dropout])
        actions = torch.cat([entry for each in all_played for entry in each.actions])
        probabilities = self._policy.forward_with(states, dropout).gather(1, actions.unsqueeze(1)).squeeze(1)
        self._learn(probabilities.log(), torch.cat([each.returns() for each in all_played]))
        self._forget()


def measure_rollout(agent: Agent, steps_wanted: int) -> float:
    """Steps per second over whole episodes, until `steps_wanted` steps are played."""
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
    if figure == VECTOR_FIGURE:
        rate = measure_rollout(VectorAgent(names), 10_000 if options.quick else 600_000)
    else:
        rate = measure_rollout(Agent(names), 600 if options.quick else 6000)
    options.report(figure, rate)


def main() -> None:
    options = peer_options.parse_options(tuple(OBSERVERS_OF_FIGURE), __doc__ or "")
    for figure in options.figures:
        names = ["agent", *observer_names(OBSERVERS_OF_FIGURE[figure])]
        peer_program.run_workers(names, measure, peer_options.Options((figure,), options.quick))


if __name__ == "__main__":
    main()
