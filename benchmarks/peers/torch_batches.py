#!/usr/bin/python3
"""A policy on torch.distributed.rpc that answers its clients in batches: calls per second.

Each client asks for an action, and for the next one when it has that. The policy computes when all of them have asked.
"""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed.rpc as rpc
from torch.distributed.rpc import RRef
from torch.futures import Future

import peer_options
import peer_program

CLIENTS_OF_FIGURE = {f"batcher_calls_per_s_{clients}": clients for clients in (1, 4, 8)}


class Policy:
    """A network of 4, 128 and 2 units."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._states: list[torch.Tensor] = []
        self._batch: Future = Future()
        self._network = torch.nn.Sequential(torch.nn.Linear(4, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2))
        self.calls = 0
        self.finished = False

    def select_action(self, state: torch.Tensor) -> Future:
        with self._lock:
            place = len(self._states)
            self._states.append(state)
            action = self._batch.then(lambda batch: batch.wait()[place])
            if len(self._states) < self._clients:
                return action
            states, batch = self._states, self._batch
            self._states, self._batch = [], Future()
        with torch.no_grad():
            actions = self._network(torch.stack(states)).argmax(1).tolist()
        self.calls += len(actions)
        batch.set_result([-1] * len(actions) if self.finished else actions)
        return action


@rpc.functions.async_execution
def select_action(policy: RRef, state: torch.Tensor) -> Future:
    """Runs at the owner of `policy`."""
    return policy.local_value().select_action(state)


def ask(policy: RRef) -> None:
    """Runs at a client, until it is told that it is over."""
    state = torch.rand(4)
    while rpc.rpc_sync(policy.owner(), select_action, args=(policy, state)) >= 0:
        pass


def measure(options: peer_options.Options) -> None:
    """Runs at the policy's worker."""
    (figure,) = options.figures
    clients = CLIENTS_OF_FIGURE[figure]
    policy = Policy(clients)
    reference = RRef(policy)
    asking = [rpc.rpc_async(name, ask, args=(reference,)) for name in client_names(clients)]
    time.sleep(2 * options.rate_warm_up_s)
    before, start = policy.calls, time.perf_counter()
    time.sleep(options.rate_window_s)
    rate = (policy.calls - before) / (time.perf_counter() - start)
    policy.finished = True
    torch.futures.wait_all(asking)
    options.report(figure, rate)


def client_names(count: int) -> list[str]:
    return [f"client{number}" for number in range(1, count + 1)]


def main() -> None:
    options = peer_options.parse_options(tuple(CLIENTS_OF_FIGURE), __doc__ or "")
    for figure in options.figures:
        names = ["server", *client_names(CLIENTS_OF_FIGURE[figure])]
        peer_program.run_workers(names, measure, peer_options.Options((figure,), options.quick))


if __name__ == "__main__":
    main()
