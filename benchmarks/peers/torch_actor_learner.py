#!/usr/bin/python3
"""A learner and four actors on torch.distributed.rpc: transitions per second that the learner takes.

Each actor swings a pendulum by a rule that costs nothing, and pushes what it has played to the learner, 20 steps in a
call, the next when that has returned. The learner keeps them in a replay buffer.
"""

from __future__ import annotations

import math
import random
import threading
import time
from typing import Any, Callable

import torch
import torch.distributed.rpc as rpc
from torch.distributed.rpc import RRef

import peer_options
import peer_program

FIGURE = "actor_learner_transitions_per_s"
LEARNER = "learner"
ACTORS = tuple(f"actor{number}" for number in range(1, 5))
STEPS_PER_PUSH = 20
CAPACITY = 100_000


class Pendulum:
    """The task Pendulum-v1, without the cut into episodes."""

    STEP_S = 0.05
    MAX_VELOCITY = 8.0
    MAX_TORQUE = 2.0

    def __init__(self, seed: int) -> None:
        self._angle = random.Random(seed).uniform(-math.pi, math.pi)
        self.velocity = 0.0

    def observe(self) -> list[float]:
        return [math.cos(self._angle), math.sin(self._angle), self.velocity]

    def step(self, torque: float) -> float:
        """Moves on. Returns the reward."""
        angle = math.remainder(self._angle, 2 * math.pi)
        cost = angle**2 + 0.1 * self.velocity**2 + 0.001 * torque**2
        velocity = self.velocity + (15 * math.sin(self._angle) + 3 * torque) * self.STEP_S
        self.velocity = min(max(velocity, -self.MAX_VELOCITY), self.MAX_VELOCITY)
        self._angle += self.velocity * self.STEP_S
        return -cost


class Learner:
    """A replay buffer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._columns = [
            torch.zeros(CAPACITY, 3),
            torch.zeros(CAPACITY, 1),
            torch.zeros(CAPACITY),
            torch.zeros(CAPACITY, 3),
            torch.zeros(CAPACITY),
        ]
        self._next = 0
        self.transitions = 0

    def push(self, played: list[torch.Tensor]) -> int:
        """Returns the version of the newest weights."""
        if not all(bool(tensor.isfinite().all()) for tensor in played):
            raise ValueError("transitions must be finite")
        count = played[2].size(0)
        with self._lock:
            until_end = min(count, CAPACITY - self._next)
            for column, tensor in zip(self._columns, played):
                column[self._next : self._next + until_end] = tensor[:until_end]
                column[: count - until_end] = tensor[until_end:]
            self._next = (self._next + count) % CAPACITY
            self.transitions += count
        return 1


def call_method(method: Callable[..., Any], target: RRef, *arguments: Any) -> Any:
    """Runs at the owner of `target`."""
    return method(target.local_value(), *arguments)


def act(learner: RRef, seed: int, seconds: float) -> None:
    """Runs at an actor."""
    pendulum = Pendulum(seed)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        observations, actions, rewards, nexts = [], [], [], []
        for _ in range(STEPS_PER_PUSH):
            observations.append(pendulum.observe())
            action = 1.0 if pendulum.velocity >= 0 else -1.0
            rewards.append(pendulum.step(Pendulum.MAX_TORQUE * action))
            actions.append([action])
            nexts.append(pendulum.observe())
        played = [
            torch.tensor(observations),
            torch.tensor(actions),
            torch.tensor(rewards),
            torch.tensor(nexts),
            torch.zeros(STEPS_PER_PUSH),
        ]
        rpc.rpc_sync(learner.owner(), call_method, args=(Learner.push, learner, played))


def measure(options: peer_options.Options) -> None:
    """Runs at the learner."""
    learner = Learner()
    reference = RRef(learner)
    seconds = 3 * options.rate_warm_up_s + options.rate_window_s
    acting = [
        rpc.rpc_async(actor, act, args=(reference, seed, seconds)) for seed, actor in enumerate(ACTORS, 1)
    ]
    time.sleep(2 * options.rate_warm_up_s)
    before, start = learner.transitions, time.perf_counter()
    time.sleep(options.rate_window_s)
    rate = (learner.transitions - before) / (time.perf_counter() - start)
    options.report(FIGURE, rate)
    torch.futures.wait_all(acting)


if __name__ == "__main__":
    peer_program.run_workers(
        (LEARNER, *ACTORS), measure, peer_options.parse_options((FIGURE,), __doc__ or "")
    )
