#!/usr/bin/python3
"""What torch.distributed.autograd and its optimizer cost: processes on this host."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef

import peer_options
import peer_program

FIGURES = (
    "dist_backward_linear64_p50_us",
    "dist_train_step_linear64_p50_us",
    "rnn_tutorial_iter_p50_us",
    "rnn_words_iter_p50_ms",
    "rnn_tutorial_local_iter_p50_us",
    "rnn_words_local_iter_p50_ms",
    "ps_step_per_s_1",
    "ps_step_per_s_2",
    "ps_step_per_s_4",
)
TRAINERS = (1, 2, 4)
SERVER = "server"
LEARNING_RATE = 0.05
DROPOUT = 0.5


def call_method(method: Callable, module: RRef, *arguments: Any) -> Any:
    return method(module.local_value(), *arguments)


def call(method: Callable, module: RRef, *arguments: Any) -> Any:
    """Calls a method of a module where it is."""
    return rpc.rpc_sync(module.owner(), call_method, args=(method, module, *arguments))


def parameter_rrefs(module: nn.Module) -> list[RRef]:
    return [RRef(parameter) for parameter in module.parameters()]


class Embedding(nn.Module):
    def __init__(self, ntoken: int, ninp: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(DROPOUT)
        self.table = nn.Embedding(ntoken, ninp)
        self.table.weight.data.uniform_(-0.1, 0.1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.table(words))


class Decoder(nn.Module):
    def __init__(self, ntoken: int, nhid: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(DROPOUT)
        self.scores = nn.Linear(nhid, ntoken)

    def forward(self, output: torch.Tensor) -> torch.Tensor:
        return self.scores(self.dropout(output))


@dataclass(frozen=True)
class Work:
    """Sizes of an RNN and of what it reads in an iteration."""

    ntoken: int
    ninp: int
    nhid: int
    nlayers: int
    steps: int
    columns: int

    def words(self) -> torch.Tensor:
        return torch.randint(self.ntoken, (self.steps, self.columns))

    def first_hidden(self) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = torch.zeros(self.nlayers, self.columns, self.nhid)
        return zeros, zeros.clone()

    def lstm(self) -> nn.LSTM:
        return nn.LSTM(self.ninp, self.nhid, self.nlayers, dropout=DROPOUT)


TUTORIAL = Work(ntoken=10, ninp=2, nhid=3, nlayers=4, steps=5, columns=3)
WORDS = Work(ntoken=10_000, ninp=200, nhid=200, nlayers=2, steps=35, columns=20)


def loss_of(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def p50_us(steps: int, step: Callable[[], object]) -> float:
    for _ in range(3):
        step()
    return peer_options.measure_latency(steps, step).p50_us


def measure_layer(options: peer_options.Options) -> None:
    layer = rpc.remote(SERVER, nn.Linear, args=(64, 64))
    steps = 100 if options.quick else 1200
    plain = torch.randn(8, 64)
    leaf = torch.randn(8, 64, requires_grad=True)

    def backward() -> None:
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [call(nn.Linear.forward, layer, leaf).sum()])

    optimizer = DistributedOptimizer(
        torch.optim.SGD, call(parameter_rrefs, layer), lr=LEARNING_RATE
    )

    def train_step() -> None:
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [call(nn.Linear.forward, layer, plain).sum()])
            optimizer.step(context)

    if options.wants("dist_backward_linear64_p50_us"):
        options.report("dist_backward_linear64_p50_us", p50_us(steps, backward))
    if options.wants("dist_train_step_linear64_p50_us"):
        options.report("dist_train_step_linear64_p50_us", p50_us(steps, train_step))


class LayerTrainer:
    """Trains a layer that the server has."""

    def __init__(self, layer: RRef) -> None:
        self.layer = layer
        self.optimizer = DistributedOptimizer(
            torch.optim.SGD, call(parameter_rrefs, layer), lr=LEARNING_RATE
        )
        self.input = torch.randn(8, 1024)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            with dist_autograd.context() as context:
                loss = call(nn.Linear.forward, self.layer, self.input).sum()
                dist_autograd.backward(context, [loss])
                self.optimizer.step(context)


def measure_trainers(trainers: int, options: peer_options.Options) -> float:
    """Steps per second of all trainers of one layer."""
    layer = rpc.remote(SERVER, nn.Linear, args=(1024, 1024))
    own = LayerTrainer(layer)
    others = [
        rpc.remote(f"trainer{number}", LayerTrainer, args=(layer,)) for number in range(1, trainers)
    ]

    def train(steps: int) -> None:
        running = [
            rpc.rpc_async(other.owner(), call_method, (LayerTrainer.train, other, steps), timeout=0)
            for other in others
        ]
        own.train(steps)
        torch.futures.wait_all(running)

    train(5)
    steps = 20 if options.quick else 400
    start = time.perf_counter()
    train(steps)
    return trainers * steps / (time.perf_counter() - start)


def measure_rnn(work: Work, steps: int) -> float:
    """The parameter-server tutorial's model: the loss is here, what looks words up is there."""
    embedding = rpc.remote(SERVER, Embedding, args=(work.ntoken, work.ninp))
    decoder = rpc.remote(SERVER, Decoder, args=(work.ntoken, work.nhid))
    lstm = work.lstm()
    parameters = [
        *call(parameter_rrefs, embedding),
        *parameter_rrefs(lstm),
        *call(parameter_rrefs, decoder),
    ]
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=LEARNING_RATE)
    words, targets, hidden = work.words(), work.words(), work.first_hidden()

    def iteration() -> None:
        nonlocal hidden
        with dist_autograd.context() as context:
            before = (hidden[0].detach(), hidden[1].detach())
            output, hidden = lstm(call(Embedding.forward, embedding, words), before)
            loss = loss_of(call(Decoder.forward, decoder, output), targets)
            dist_autograd.backward(context, [loss])
            optimizer.step(context)

    return p50_us(steps, iteration)


def measure_local_rnn(work: Work, steps: int) -> float:
    """The same in this process."""
    embedding, decoder = Embedding(work.ntoken, work.ninp), Decoder(work.ntoken, work.nhid)
    lstm = work.lstm()
    parameters = [*embedding.parameters(), *lstm.parameters(), *decoder.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)
    words, targets, hidden = work.words(), work.words(), work.first_hidden()

    def iteration() -> None:
        nonlocal hidden
        output, hidden = lstm(embedding(words), (hidden[0].detach(), hidden[1].detach()))
        loss = loss_of(decoder(output), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return p50_us(steps, iteration)


def measure(options: peer_options.Options) -> None:
    """Runs at the client."""
    if options.wants("dist_backward_linear64_p50_us", "dist_train_step_linear64_p50_us"):
        measure_layer(options)
    steps = 50 if options.quick else 600
    if options.wants("rnn_tutorial_iter_p50_us"):
        options.report("rnn_tutorial_iter_p50_us", measure_rnn(TUTORIAL, steps))
    if options.wants("rnn_tutorial_local_iter_p50_us"):
        options.report("rnn_tutorial_local_iter_p50_us", measure_local_rnn(TUTORIAL, steps))
    steps = 3 if options.quick else 20
    if options.wants("rnn_words_iter_p50_ms"):
        options.report("rnn_words_iter_p50_ms", measure_rnn(WORDS, steps) / 1000)
    if options.wants("rnn_words_local_iter_p50_ms"):
        options.report("rnn_words_local_iter_p50_ms", measure_local_rnn(WORDS, steps) / 1000)


    for trainers in TRAINERS:
        if options.wants(f"ps_step_per_s_{trainers}"):
            options.report(f"ps_step_per_s_{trainers}", measure_trainers(trainers, options))


def main() -> None:
    options = peer_options.parse_options(FIGURES, __doc__ or "")
    wanted = [count for count in TRAINERS if options.wants(f"ps_step_per_s_{count}")]
    further = [f"trainer{number}" for number in range(1, max(wanted, default=1))]
    peer_program.run_workers(("client", SERVER, *further), measure, options)


if __name__ == "__main__":
    main()
