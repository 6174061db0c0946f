#!/usr/bin/env python3
"""The programs of the table of truth that torch.distributed can express, run with it: what each rank sees.

    tests/truth/reference.py [--ranks 2] [--rows TEXT]

Needs a Python with torch (Debian: python3-torch). Each program runs in processes of its own, over gloo, and is
ended after --limit seconds. Prints a line for each: the program, what is right, and what was seen by rank.
docs/parallel.md has these beside our own.
"""
import argparse
import multiprocessing
import os
import tempfile
import threading
import time
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as Ddp
from torch.utils.checkpoint import checkpoint

DOUBLE = torch.float64
ROWS = []


def row(name, right):
    def add(function):
        ROWS.append((name, right, function))
        return function

    return add


def odd(rank, factor=1.0):
    """1, 3, 5, ...: their mean is the number of ranks."""
    return torch.full((1,), factor * (2 * rank + 1), dtype=DOUBLE)


class Factors(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(1, dtype=DOUBLE))
        self.b = torch.nn.Parameter(torch.ones(1, dtype=DOUBLE))

    def forward(self, x, first=True, second=True):
        total = torch.zeros(1, dtype=DOUBLE)
        if first:
            total = total + self.a * x
        if second:
            total = total + self.b * x
        return total


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(1, dtype=DOUBLE))
        self.second = torch.nn.Parameter(torch.zeros(1, dtype=DOUBLE))

    def forward(self, x):
        return (self.first + self.second) * x


class ActorAndCritic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("trunk", "actor", "critic"):
            setattr(self, name, torch.nn.Parameter(torch.ones(1, dtype=DOUBLE)))

    def forward(self, x):
        hidden = self.trunk * x
        return hidden * self.actor, hidden * self.critic


def of(*tensors):
    return [None if tensor is None else round(float(tensor), 6) for tensor in tensors]


def grads(module):
    return of(*(parameter.grad for parameter in module.parameters()))


# ---- Optimizers.


def clip(rank, norm_type, fault=None, **options):
    row_of_this_rank = torch.nn.Parameter(torch.ones(1, dtype=DOUBLE))
    dense = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.ones_(dense.weight)
    ddp = Ddp(dense)
    gradient = 100 if rank == 0 else 0.1 if fault is None else fault
    (row_of_this_rank.sum() * gradient + ddp(torch.full((1, 1), 2.0, dtype=DOUBLE)).sum()).backward()
    parameters = [row_of_this_rank, *ddp.parameters()]
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1, norm_type, **options)
    torch.optim.SGD(parameters, 0.5).step()
    return of(norm, dense.weight)


@row("clip_grad_norm_() of embeddings and a dense part, norm 2", "equal on all ranks")
def _(rank, size):
    return clip(rank, 2.0)


@row("the same, norm inf", "equal on all ranks")
def _(rank, size):
    return clip(rank, float("inf"))


@row("the same, infinite on rank 1, error_if_nonfinite", "an error on all ranks")
def _(rank, size):
    return clip(rank, 2.0, fault=float("inf"), error_if_nonfinite=True)


@row("GradScaler on the CPU", "enabled")
def _(rank, size):
    return [torch.cuda.amp.GradScaler().is_enabled()]


@row("tied weights in clip_grad_norm_([w, w]), gradient 6", "norm 6, or refused")
def _(rank, size):
    weight = torch.nn.Parameter(torch.full((1,), 3.0, dtype=DOUBLE))
    weight.grad = torch.full((1,), 6.0, dtype=DOUBLE)
    return of(torch.nn.utils.clip_grad_norm_([weight, weight], 1), weight.grad)


@row("tied weights twice in ZeroRedundancyOptimizer", "stepped once, or refused")
def _(rank, size):
    weight = torch.nn.Parameter(torch.full((1,), 3.0, dtype=DOUBLE))
    optimizer = ZeroRedundancyOptimizer([weight, weight], torch.optim.SGD, lr=0.1)
    weight.grad = torch.ones(1, dtype=DOUBLE)
    optimizer.step()
    return of(weight)


@row("state loaded into an optimizer with other options", "-0.561")
def _(rank, size):
    weight = torch.nn.Parameter(torch.zeros(1, dtype=DOUBLE))
    weight.grad = torch.ones(1, dtype=DOUBLE)
    first = torch.optim.SGD([weight], 0.1, momentum=0.9)
    first.step()
    first.step()
    second = torch.optim.SGD([weight], 1, weight_decay=0.5)
    second.load_state_dict(first.state_dict())
    second.step()
    return of(weight)


# ---- Set on one rank alone.


@row("ZeroRedundancyOptimizer, a rate that rank 1 alone sets", "an error, or -0.5, -0.5")
def _(rank, size):
    weights = [torch.nn.Parameter(torch.zeros(1, dtype=DOUBLE)) for _ in range(2)]
    optimizer = ZeroRedundancyOptimizer(weights, torch.optim.SGD, lr=0.5)
    if rank == 1:
        optimizer.param_groups[0]["lr"] = 0.25
    for weight in weights:
        weight.grad = torch.ones(1, dtype=DOUBLE)
    optimizer.step()
    return of(*weights)


def step_twice(rank, step):
    ddp = Ddp(Factors())
    for _ in range(2):
        ddp.zero_grad()
        ddp(odd(rank)).backward()
        step(ddp)
    return of(*ddp.parameters())


@row("SGD, another rate on rank 1, two steps", "an error, or equal on all ranks")
def _(rank, size):
    return step_twice(rank, lambda ddp: torch.optim.SGD(ddp.parameters(), 0.2 if rank == 1 else 0.1).step())


@row("clip_grad_norm_(), another limit on rank 1, two steps of SGD", "an error, or equal on all ranks")
def _(rank, size):
    def step(ddp):
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.5 if rank == 1 else 1)
        torch.optim.SGD(ddp.parameters(), 0.1).step()

    return step_twice(rank, step)


@row("DistributedSampler, set_epoch() on rank 0 alone", "an error")
def _(rank, size):
    sampler = torch.utils.data.DistributedSampler(range(6), size, rank)
    sampler.set_epoch(1 if rank == 0 else 0)
    return list(sampler)


@row("an fp16 communication hook on rank 1 alone", "an error")
def _(rank, size):
    ddp = Ddp(Factors())
    if rank == 1:
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    ddp(odd(rank)).backward()
    return grads(ddp.module)


# ---- Uneven inputs.


def epoch(ddp, optimizer, inputs):
    for number in range(1, inputs + 1):
        optimizer.zero_grad()
        ddp(torch.full((1,), float(number), dtype=DOUBLE)).backward()
        optimizer.step()


def inputs_of(rank):
    return (4, 2, 0)[rank]


def spread(rank, epochs, kind, **options):
    ddp = Ddp(Layers())
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), kind, **options)
    for _ in range(epochs):
        with Join([ddp, optimizer]):
            epoch(ddp, optimizer, inputs_of(rank))
    return of(*ddp.parameters())


@row("join() with ZeroRedundancyOptimizer, SGD", "-0.65, -0.65")
def _(rank, size):
    return spread(rank, 1, torch.optim.SGD, lr=0.1)


@row("the same with momentum, two epochs", "-4.505697, -4.505697")
def _(rank, size):
    return spread(rank, 2, torch.optim.SGD, lr=0.1, momentum=0.9)


def joined_twice(rank, momentum):
    ddp = Ddp(Layers())
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1, momentum=momentum)
    with Join([ddp]):
        epoch(ddp, optimizer, inputs_of(rank))
    epoch(ddp, optimizer, 2)
    return of(*ddp.parameters())


@row("join(), SGD, a second epoch of 1 and 2", "-0.95, -0.95")
def _(rank, size):
    return joined_twice(rank, 0)


@row("join(), momentum of each rank, a second epoch", "equal on all ranks, or an error")
def _(rank, size):
    return joined_twice(rank, 0.9)


@row("join(), divided by those who have inputs", "-1, -1")
def _(rank, size):
    ddp = Ddp(Layers())
    with Join([ddp], divide_by_initial_world_size=False):
        epoch(ddp, torch.optim.SGD(ddp.parameters(), 0.1), inputs_of(rank))
    return of(*ddp.parameters())


# ---- Passes.


@row("b used under no_sync() alone, find_unused_parameters", "22, 2")
def _(rank, size):
    ddp = Ddp(Factors(), find_unused_parameters=True)
    with ddp.no_sync():
        ddp(odd(rank)).backward()
    ddp(odd(rank, 10), True, False).backward()
    return grads(ddp.module)


@row("b used by rank 1 under no_sync() alone, find_unused_parameters", "22, 1.5")
def _(rank, size):
    ddp = Ddp(Factors(), find_unused_parameters=True)
    with ddp.no_sync():
        ddp(odd(rank), True, rank == 1).backward()
    ddp(odd(rank, 10), True, False).backward()
    return grads(ddp.module)


def unused(rank, second):
    ddp = Ddp(Factors())
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    ddp(odd(rank), True, second).backward()
    optimizer.step()
    return of(*ddp.parameters())


@row("b unused on all ranks, then a step", "an error before the step")
def _(rank, size):
    return unused(rank, False)


@row("b used on rank 0 alone, then a step", "an error before the step")
def _(rank, size):
    return unused(rank, rank == 0)


@row("b used on rank 0 alone, and rank 1 sums as many numbers", "an error")
def _(rank, size):
    ddp = Ddp(Factors())
    ddp(odd(rank), True, rank == 0).backward()
    if rank == 0:
        return grads(ddp.module)
    total = torch.full((2,), 1000.0, dtype=DOUBLE)
    dist.all_reduce(total)
    return total.tolist()


@row("two forwards, two backwards", "22, 22")
def _(rank, size):
    ddp = Ddp(Factors())
    first, second = ddp(odd(rank)), ddp(odd(rank, 10))
    first.backward()
    second.backward()
    return grads(ddp.module)


@row("one forward, two backwards", "4, 4")
def _(rank, size):
    ddp = Ddp(Factors())
    output = ddp(odd(rank))
    output.backward(retain_graph=True)
    output.backward()
    return grads(ddp.module)


@row("losses of actor and critic one after the other, find_unused_parameters", "22, 2, 20")
def _(rank, size):
    ddp = Ddp(ActorAndCritic(), find_unused_parameters=True)
    policy, worth = ddp(odd(rank))
    policy.backward(retain_graph=True)
    (10 * worth).backward()
    return grads(ddp.module)


@row("one backward of two forwards that use a and b, find_unused_parameters", "2, 20")
def _(rank, size):
    ddp = Ddp(Factors(), find_unused_parameters=True)
    (ddp(odd(rank), True, False) + ddp(odd(rank, 10), False, True)).backward()
    return grads(ddp.module)


@row("BatchNorm, a second forward between forward and backward", "works")
def _(rank, size):
    torch.manual_seed(0)
    ddp = Ddp(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)))
    inputs = [torch.arange(8.0).mul(1.7).add(call + 3 * rank).sin().view(4, 2) for call in range(2)]
    (ddp(inputs[0]).pow(3).sum() + ddp(inputs[1]).pow(3).sum()).backward()
    return of(ddp.module[0].weight.grad.sum())


@row("SyncBatchNorm in bfloat16 on the CPU", "as BatchNorm of the whole batch")
def _(rank, size):
    norm = torch.nn.SyncBatchNorm(3)
    return of(norm(torch.randn(4, 3, 2).bfloat16()).float().sum())


# ---- The module becomes another one.


def changed(rank, change, **options):
    model = Factors()
    options.pop("freeze", None) and model.b.requires_grad_(False)
    ddp = Ddp(model, **options)
    ddp(odd(rank)).backward()
    change(ddp.module)
    ddp.zero_grad()
    ddp(odd(rank)).backward()
    return grads(ddp.module)


@row("b unfrozen after the first step", "an error, or 2, 2")
def _(rank, size):
    return changed(rank, lambda model: model.b.requires_grad_(True), freeze=True)


@row("b frozen after the first step", "an error, or 2, none")
def _(rank, size):
    return changed(rank, lambda model: model.b.requires_grad_(False))


@row("a replaced after the first step", "an error, or 2, 2")
def _(rank, size):
    return changed(rank, lambda model: setattr(model, "a", torch.nn.Parameter(torch.ones(1, dtype=DOUBLE))))


class Restless(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, dtype=DOUBLE))

    def forward(self, x):
        with torch.no_grad():
            self.weight.mul_(x)
        return x * self.weight


@row("weights that forward() sets by its input", "an error")
def _(rank, size):
    ddp = Ddp(Restless())
    ddp(odd(rank)).backward()
    return of(ddp.module.weight, ddp.module.weight.grad)


@row("an embedding with max_norm, other rows on each rank", "an error")
def _(rank, size):
    torch.manual_seed(0)
    ddp = Ddp(torch.nn.Embedding(8, 2, max_norm=0.1))
    ddp(torch.full((1,), rank)).sum().backward()
    return of(*ddp.module.weight.detach().norm(dim=1)[:2])


# ---- Failures, and ranks in different passes.


def fail(gradient):
    raise RuntimeError("a hook broke")


def try_backward(tensor):
    try:
        tensor.backward()
    except RuntimeError:
        pass


@row("rank 0's pass fails before the module, and it goes on", "an error")
def _(rank, size):
    ddp = Ddp(Factors())
    if rank == 0:
        output = ddp(odd(rank)) * 2
        output.register_hook(fail)
        try_backward(output)
    ddp(odd(rank, 10 if rank == 0 else 1)).backward()
    return grads(ddp.module)


@row("rank 0's pass fails before the module, and it sums as many numbers", "an error")
def _(rank, size):
    ddp = Ddp(Factors())
    output = ddp(odd(rank)) * 2
    if rank > 0:
        output.backward()
        return grads(ddp.module)
    output.register_hook(fail)
    try_backward(output)
    total = torch.full((2,), 1000.0, dtype=DOUBLE)
    dist.all_reduce(total)
    return total.tolist()


@row("rank 0's pass fails between two gradients, and it goes on", "an error of this pass on all ranks")
def _(rank, size):
    ddp = Ddp(Factors())
    if rank == 0:
        ddp.module.a.register_hook(fail)
    ddp(odd(rank)).backward()
    return grads(ddp.module)


@row("two modules in another order on rank 0", "an error")
def _(rank, size):
    modules = [Ddp(Factors()), Ddp(Factors())]
    for at in (0, 1):
        number = at if rank == 0 else 1 - at
        modules[number](odd(rank, 1 + 9 * number)).backward()
    return grads(modules[0].module) + grads(modules[1].module)


@row("passes of two calls in another order on rank 0, no backward between", "an error, or 2, 2 and 22, 22")
def _(rank, size):
    ddp = Ddp(Factors())
    outputs = [ddp(odd(rank)), ddp(odd(rank, 10))]
    if rank == 0:
        outputs.reverse()
    outputs[0].backward()
    return grads(ddp.module)


@row("two threads with a mutex, other turns on rank 0", "never a mean of two batches")
def _(rank, size):
    ddp = Ddp(Factors())
    seen = {}
    turns = [1, 10] if rank == 0 else [10, 1]

    def step(factor):
        ddp.zero_grad()
        ddp(odd(rank, factor)).backward()
        seen[factor] = grads(ddp.module)

    for factor in turns:
        thread = threading.Thread(target=step, args=(factor,))
        thread.start()
        thread.join()
    return seen[1] + seen[10]


class Checkpointing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.ones(1, dtype=DOUBLE))
        self.second = torch.nn.Parameter(torch.full((1,), 3.0, dtype=DOUBLE))

    def forward(self, x):
        return checkpoint(lambda y: y * self.second, x * self.first)


@row("a checkpointed layer", "6, 2")
def _(rank, size):
    ddp = Ddp(Checkpointing())
    ddp(odd(rank)).backward()
    return grads(ddp.module)


# ---- Running them.


def run_rank(function, rank, size, place, results):
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=size)
    try:
        seen = function(rank, size)
    except Exception as error:  # whatever a program sees
        seen = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    results.put((rank, seen))
    # Who ends takes its connections along.
    time.sleep(3600)


def run_row(function, size, limit):
    results = multiprocessing.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            multiprocessing.Process(
                target=run_rank, args=(function, rank, size, f"{folder}/place", results), daemon=True
            )
            for rank in range(size)
        ]
        for process in ranks:
            process.start()
        seen = {}
        deadline = time.monotonic() + limit
        while len(seen) < size and time.monotonic() < deadline:
            try:
                rank, what = results.get(timeout=0.2)
                seen[rank] = what
            except Exception:
                if not any(process.is_alive() for process in ranks):
                    break
        for process in ranks:
            process.kill()
            process.join()
    return [seen.get(rank, f"waits, for more than {limit:g} s") for rank in range(size)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, choices=(2, 3))
    parser.add_argument("--limit", type=float, default=15)
    parser.add_argument("--rows", default="", help="those that have this in their names")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    print(f"torch {torch.__version__}, gloo, {arguments.ranks} ranks")
    for name, right, function in ROWS:
        if arguments.rows not in name:
            continue
        print(f"\n{name}\n  right: {right}", flush=True)
        for rank, seen in enumerate(run_row(function, arguments.ranks, arguments.limit)):
            print(f"  rank {rank}: {seen}", flush=True)


if __name__ == "__main__":
    main()
