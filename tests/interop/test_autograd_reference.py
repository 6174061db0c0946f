"""The gradients of a set of models are those of torch.distributed.autograd.

  test_autograd_reference.py PROGRAM    compares PROGRAM's output with the reference; 77: there is no reference here
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import ports  # noqa: E402

SKIPPED = 77
WORKERS = 3


def import_reference():
    try:
        import torch
        import torch.distributed.autograd  # noqa: F401
        import torch.distributed.rpc  # noqa: F401
    except ImportError as error:
        print(f"skipped: this Python has no torch with torch.distributed.rpc ({error})")
        sys.exit(SKIPPED)
    return torch


LEAVES: dict = {}


def elements(number, *sizes):
    import torch

    count = 1
    for size in sizes:
        count *= size
    values = torch.arange(count, dtype=torch.float64)
    return ((values * 7 + number * 3) % 11 - 5).div(7).reshape(sizes)


def leaf(number, *sizes):
    return elements(number, *sizes).requires_grad_()


def reset():
    LEAVES.clear()
    LEAVES.update({1: leaf(1, 4, 4), 2: leaf(2, 4, 4), 3: leaf(3, 6, 4)})


def gradient(number, context):
    import torch.distributed.autograd as dist_autograd

    found = dist_autograd.get_gradients(context).get(LEAVES[number])
    return found.to_dense() if found is not None and found.is_sparse else found


def linear(x):
    return LEAVES[1] @ x


def cell(x, h):
    return (LEAVES[1] @ x + LEAVES[2] @ h).tanh()


def embed(rows):
    import torch

    return torch.nn.functional.embedding(rows, LEAVES[3], sparse=True).sum(0)


def multiply(a, b):
    return a * b


def nested(x, hops):
    import torch.distributed.rpc as rpc

    y = linear(x)
    if hops == 0:
        return y
    return rpc.rpc_sync((rpc.get_worker_info().id + 1) % WORKERS, nested, (y.sin(), hops - 1)) + x


def models(rpc):
    import torch

    def ping_pong(own):
        x = own[0]
        for _ in range(3):
            x = rpc.rpc_sync(1, multiply, (x, own[1])) + own[0]
        return x.sum()

    def diamond(own):
        x = own[0].tanh()
        return (rpc.rpc_sync(1, linear, (x,)) * rpc.rpc_sync(2, linear, (x,)) + x * own[1]).sum()

    def recurrent(own):
        h = own[1]
        for i in range(4):
            h = rpc.rpc_sync(1, cell, (own[0] * (i + 1), h))
        return h.sum()

    def to_here(own):
        product = rpc.remote(2, multiply, (own[0], own[1]))
        return (product.to_here() * product.to_here()).sum()

    return {
        "linear": lambda own: rpc.rpc_sync(1, linear, (own[0],)).pow(2).sum(),
        "ping_pong": ping_pong,
        "diamond": diamond,
        "recurrent": recurrent,
        "embedding": lambda own: (rpc.rpc_sync(2, embed, (torch.tensor([1, 4, 1]),)) * own[0]).sum(),
        "nested": lambda own: rpc.rpc_sync(1, nested, (own[0], 3)).sum(),
        "reference_to_here": to_here,
    }


def show(name, found):
    values = [] if found is None else [repr(value) for value in found.reshape(-1).tolist()]
    print(" ".join([name, *values]), flush=True)


def run_worker(rank: int) -> None:
    torch = import_reference()
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc

    torch.set_num_threads(1)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=WORKERS)
    if rank == 0:
        for name, model in sorted(models(rpc).items()):
            for worker in range(WORKERS):
                rpc.rpc_sync(worker, reset)
            own = [leaf(5, 4), leaf(6, 4)]
            with dist_autograd.context() as context:
                dist_autograd.backward(context, [model(own)])
                mine = dist_autograd.get_gradients(context)
                for i, one in enumerate(own):
                    show(f"{name}.own{i}", mine.get(one))
                for worker in range(1, WORKERS):
                    for number in (1, 2, 3):
                        try:
                            found = rpc.rpc_sync(worker, gradient, (number, context))
                        except RuntimeError as error:
                            # It takes no part in this model.
                            if "Could not find autograd context" not in str(error):
                                raise
                            found = None
                        show(f"{name}.worker{worker}.{number}", found)
    rpc.shutdown()


def parse(output: str) -> dict:
    return {words[0]: [float(word) for word in words[1:]] for words in map(str.split, output.splitlines()) if words}


def main() -> int:
    if len(sys.argv) == 3 and sys.argv[1] == "--rank":
        run_worker(int(sys.argv[2]))
        return 0
    import_reference()
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ports.free_port()), TP_SOCKET_IFNAME="lo")
    processes = [
        subprocess.Popen([sys.executable, __file__, "--rank", str(rank)], env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(WORKERS)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        print("the reference failed")
        return 1
    expected = parse(outputs[0])
    actual = parse(subprocess.run([sys.argv[1]], stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout)
    failures = 0
    for name in sorted(expected.keys() | actual.keys()):
        one, other = expected.get(name), actual.get(name)
        equal = one is not None and other is not None and len(one) == len(other)
        equal = equal and all(abs(a - b) <= 1e-10 * (1 + abs(a)) for a, b in zip(one, other))
        if not equal:
            failures += 1
            print(f"{name}: the reference has {one}, Sinew has {other}")
    compared = sum(1 for values in expected.values() if values)
    print(f"{compared} gradients compared, {failures} differ")
    return 1 if failures or compared < 15 else 0


if __name__ == "__main__":
    sys.exit(main())
