"""Starts the processes of a peer on torch.distributed.rpc."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

# Each process computes on one thread. BLAS reads these when torch is imported, which is below.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The name of this host need not resolve, in a container for example; loopback is always there.
os.environ.setdefault("TP_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed.rpc as rpc  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from peer_options import Options  # noqa: E402


def run_workers(
    names: Sequence[str],
    body: Callable[[Options], None],
    options: Options,
    backend: Mapping[str, Any] | None = None,
) -> None:
    """Starts one RPC worker process per name; `body` runs in the first, the others serve it.

    `backend` are further options of TensorPipe. The processes meet through a file, so no port has
    to be guessed. Ends with an exception, and the program with a status other than 0, when any of
    the processes failed.
    """
    with tempfile.TemporaryDirectory(prefix="torch-peer-") as folder:
        rendezvous = (Path(folder) / "rendezvous").as_uri()
        arguments = (tuple(names), rendezvous, body, options, dict(backend or {}))
        mp.spawn(_run_worker, args=arguments, nprocs=len(names), join=True)


def _run_worker(
    rank: int,
    names: Sequence[str],
    rendezvous: str,
    body: Callable[[Options], None],
    options: Options,
    backend: Mapping[str, Any],
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rpc.init_rpc(
        names[rank],
        rank=rank,
        world_size=len(names),
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=rendezvous, rpc_timeout=60, **backend
        ),
    )
    if rank == 0:
        body(options)
    rpc.shutdown()
