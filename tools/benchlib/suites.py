"""What is measured: each suite is a table of figures and the peer programs that have them too.

To add a suite, write one more Suite below and name it in SUITES; nothing else has to change.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Mapping

from benchlib.figures import Better, Figure, PeerProgram, Suite

_TORCH_PACKAGES = ("python3-torch", "libopenblas0-pthread")
_GRPC_PACKAGES = (
    "g++",
    "cmake",
    "libgrpc++-dev",
    "libprotobuf-dev",
    "protobuf-compiler",
    "protobuf-compiler-grpc",
)
_CAPNP_PACKAGES = ("g++", "cmake", "pkg-config", "libcapnp-dev", "capnproto")

RPC = Suite(
    name="rpc",
    summary="calls, remote objects and the RL rollout between processes on this host",
    binary="bench_rpc",
    figures=(
        # The host's: all others depend on it.
        Figure("wake_up_us", Better.LOWER),
        Figure("noop_sync_p50_us", Better.LOWER, targets={"grpc": 1.1, "torch": 0.8}),
        Figure("noop_sync_p99_us", Better.LOWER),
        Figure(
            "noop_async64_per_s", Better.HIGHER, targets={"grpc": 3, "capnp": 2, "torch": 10}
        ),
        Figure("both_ways_async64_per_s", Better.HIGHER),
        Figure("remote_first_method_p50_us", Better.LOWER),
        Figure("rref_method_p50_us", Better.LOWER),
        Figure("rl_steps_per_s_1", Better.HIGHER, targets={"torch": 5}),
        Figure("rl_steps_per_s_4", Better.HIGHER, targets={"torch": 5}),
        Figure(
            "rl_batched_steps_per_s_4",
            Better.HIGHER,
            targets={"torch": 8},
            counterparts={"torch": "rl_steps_per_s_4"},
        ),
        Figure("rl_vector_steps_per_s_4", Better.HIGHER, goal=100_000),
        Figure("actor_learner_transitions_per_s", Better.HIGHER),
        Figure("batcher_calls_per_s_1", Better.HIGHER),
        Figure("batcher_calls_per_s_4", Better.HIGHER),
        Figure("batcher_calls_per_s_8", Better.HIGHER),
    ),
    programs=(
        PeerProgram(
            peer="grpc",
            cmake_target="grpc_raw",
            figures=("noop_sync_p50_us", "noop_sync_p99_us", "noop_async64_per_s"),
            packages=_GRPC_PACKAGES,
        ),
        PeerProgram(
            peer="capnp",
            cmake_target="capnp_rpc",
            figures=(
                "noop_sync_p50_us",
                "noop_sync_p99_us",
                "noop_async64_per_s",
                "remote_first_method_p50_us",
                "rref_method_p50_us",
            ),
            packages=_CAPNP_PACKAGES,
        ),
        PeerProgram(
            peer="torch",
            script="torch_rpc.py",
            figures=(
                "noop_sync_p50_us",
                "noop_sync_p99_us",
                "noop_async64_per_s",
                "remote_first_method_p50_us",
                "rref_method_p50_us",
            ),
            packages=_TORCH_PACKAGES,
        ),
        PeerProgram(
            peer="torch",
            script="torch_rl.py",
            figures=("rl_steps_per_s_1", "rl_steps_per_s_4", "rl_vector_steps_per_s_4"),
            packages=_TORCH_PACKAGES,
        ),
        PeerProgram(
            peer="torch",
            script="torch_actor_learner.py",
            figures=("actor_learner_transitions_per_s",),
            packages=_TORCH_PACKAGES,
        ),
        PeerProgram(
            peer="torch",
            script="torch_batches.py",
            figures=("batcher_calls_per_s_1", "batcher_calls_per_s_4", "batcher_calls_per_s_8"),
            packages=_TORCH_PACKAGES,
        ),
    ),
)

AUTOGRAD = Suite(
    name="autograd",
    summary="backward passes, training steps and an RNN with a parameter server, on this host",
    binary="bench_autograd",
    figures=(
        Figure("dist_backward_linear64_p50_us", Better.LOWER, targets={"torch": 0.35}),
        Figure("dist_train_step_linear64_p50_us", Better.LOWER, targets={"torch": 0.35}),
        Figure("rnn_tutorial_iter_p50_us", Better.LOWER, targets={"torch": 0.35}),
        Figure(
            "rnn_words_iter_p50_ms",
            Better.LOWER,
            targets={"torch": 0.77, "local": 0.9},
            counterparts={
                "torch": "rnn_words_iter_p50_ms",
                "local": "rnn_words_local_iter_p50_ms",
            },
        ),
        Figure(
            "rnn_words_loss_at_server_iter_p50_ms",
            Better.LOWER,
            counterparts={
                "torch": "rnn_words_iter_p50_ms",
                "local": "rnn_words_local_iter_p50_ms",
            },
        ),
        Figure("ps_step_per_s_1", Better.HIGHER),
        Figure("ps_step_per_s_2", Better.HIGHER),
        Figure("ps_step_per_s_4", Better.HIGHER),
        Figure("checkpoint_stall_ms", Better.LOWER),
        Figure("failover_s", Better.LOWER),
        Figure("failover_checkpoint_s", Better.LOWER),
        *(
            Figure(name, Better.LOWER, counterparts={"torch": name})
            for name in ("rnn_tutorial_local_iter_p50_us", "rnn_words_local_iter_p50_ms")
        ),
        *(
            Figure(
                name,
                Better.LOWER,
                targets={"graph": 1},
                counterparts={"graph": f"{name}_needed"},
            )
            for name in ("dist_backward_messages", "dist_train_step_messages", "rnn_iter_messages")
        ),
    ),
    programs=(
        PeerProgram(
            peer="torch",
            script="torch_autograd.py",
            figures=(
                "dist_backward_linear64_p50_us",
                "dist_train_step_linear64_p50_us",
                "rnn_tutorial_iter_p50_us",
                "rnn_words_iter_p50_ms",
                "rnn_tutorial_local_iter_p50_us",
                "rnn_words_local_iter_p50_ms",
                "ps_step_per_s_1",
                "ps_step_per_s_2",
                "ps_step_per_s_4",
            ),
            packages=_TORCH_PACKAGES,
        ),
        PeerProgram(
            peer="local", ours=True, figures=("rnn_words_local_iter_p50_ms",), packages=()
        ),
        PeerProgram(
            peer="graph",
            ours=True,
            figures=(
                "dist_backward_messages_needed",
                "dist_train_step_messages_needed",
                "rnn_iter_messages_needed",
            ),
            packages=(),
        ),
    ),
)

TENSOR_BYTES = (4096, 65536, 1048576, 16777216, 134217728, 1073741824)
TENSOR_PLANES = ("same_host", "network")
# Only ours: the network's figures with mutual TLS, which are compared with those without.
TENSOR_TLS_PLANE = "tls"
TENSOR_DIRECTIONS = ("push", "pull")
# A Data value of Cap'n Proto has fewer than 2^29 bytes.
_CAPNP_MOST_BYTES = 2**29 - 1


def tensor_figure(plane: str, direction: str, size: int) -> str:
    """GB/s of tensors of `size` bytes: `push` is an argument of a call, `pull` its result."""
    return f"{plane}_{direction}_{size}_GBps"


def _tensor_figures(
    planes: tuple[str, ...] = TENSOR_PLANES,
    directions: tuple[str, ...] = TENSOR_DIRECTIONS,
    most_bytes: int = TENSOR_BYTES[-1],
) -> tuple[str, ...]:
    return tuple(
        tensor_figure(plane, direction, size)
        for plane in planes
        for direction in directions
        for size in TENSOR_BYTES
        if size <= most_bytes
    )


def _tensor_counterparts(plane: str, direction: str, size: int) -> Mapping[str, str]:
    """The same figure of other systems and the kernel; our own is compared with that of TLS."""
    peers = ["limit", "torch", "grpc"]
    if size <= _CAPNP_MOST_BYTES:
        peers.append("capnp")
    if (plane, direction) != ("network", "pull"):
        peers.append("ucx")
    return MappingProxyType(dict.fromkeys(peers, tensor_figure(plane, direction, size)))


def _tensor_targets(plane: str, size: int) -> Mapping[str, float]:
    if plane == "same_host":
        return {"torch": 2.5, "limit": 0.6} if size >= 2**20 else {}
    if size >= 2**20:
        return {"torch": 2}
    return {"torch": 1.5} if size >= 2**16 else {}


TENSORS = Suite(
    name="tensors",
    summary="tensors of 4 KiB to 1 GiB, sent to and fetched from a process on this host",
    binary="bench_tensors",
    figures=tuple(
        Figure(
            tensor_figure(plane, direction, size),
            Better.HIGHER,
            targets=_tensor_targets(plane, size),
            counterparts=_tensor_counterparts(plane, direction, size),
        )
        for plane in TENSOR_PLANES
        for direction in TENSOR_DIRECTIONS
        for size in TENSOR_BYTES
    )
    + tuple(
        Figure(
            tensor_figure(TENSOR_TLS_PLANE, direction, size),
            Better.HIGHER,
            counterparts=MappingProxyType({"no-tls": tensor_figure("network", direction, size)}),
        )
        for direction in TENSOR_DIRECTIONS
        for size in TENSOR_BYTES
    ),
    programs=(
        PeerProgram(
            peer="limit",
            cmake_target="kernel_limits",
            figures=_tensor_figures(),
            packages=("g++", "cmake"),
        ),
        PeerProgram(
            peer="torch",
            script="torch_tensors.py",
            figures=_tensor_figures(),
            packages=_TORCH_PACKAGES,
        ),
        PeerProgram(
            peer="grpc",
            cmake_target="grpc_tensors",
            figures=_tensor_figures(),
            packages=_GRPC_PACKAGES,
        ),
        PeerProgram(
            peer="capnp",
            cmake_target="capnp_tensors",
            figures=_tensor_figures(most_bytes=_CAPNP_MOST_BYTES),
            packages=_CAPNP_PACKAGES,
        ),
        PeerProgram(
            peer="ucx",
            script="ucx_tensors.py",
            figures=(
                *_tensor_figures(("same_host",)),
                *_tensor_figures(("network",), ("push",)),
            ),
            packages=("ucx-utils",),
        ),
        PeerProgram(
            peer="no-tls", ours=True, figures=_tensor_figures(("network",)), packages=("openssl",)
        ),
    ),
    chart="benchmarks/tensors.svg",
)

STREAMS = Suite(
    name="streams",
    summary="streams of small items and of tensors from a process on this host",
    binary="bench_streams",
    figures=(
        Figure("stream_items64_per_s", Better.HIGHER, targets={"grpc": 3}),
        Figure(
            "stream_tensors1MiB_per_s",
            Better.HIGHER,
            targets={"calls": 0.9},
            counterparts={"calls": "calls8_tensors1MiB_per_s"},
        ),
    ),
    programs=(
        PeerProgram(
            peer="grpc",
            cmake_target="grpc_streams",
            figures=("stream_items64_per_s",),
            packages=_GRPC_PACKAGES,
        ),
        PeerProgram(peer="calls", ours=True, figures=("calls8_tensors1MiB_per_s",), packages=()),
    ),
)

TEAMS = Suite(
    name="teams",
    summary="objects that are called by one at a time, and teams of 8 processes on this host",
    binary="bench_teams",
    figures=(
        Figure(
            "turn_method_p50_us",
            Better.LOWER,
            targets={"plain": 1.05},
            counterparts={"plain": "plain_method_p50_us"},
        ),
        Figure("call_all8_p50_us", Better.LOWER, goal=200),
    ),
    programs=(
        PeerProgram(peer="plain", ours=True, figures=("plain_method_p50_us",), packages=()),
    ),
)

SCALE_WORKERS = (2, 8, 16, 32, 64)

SCALE = Suite(
    name="scale",
    summary="2 to 64 workers on this host, and 100,000 references",
    binary="bench_scale",
    figures=(
        *(
            Figure(f"scale_{what}_{workers}_{unit}", Better.LOWER)
            for workers in SCALE_WORKERS
            for what, unit in (
                ("init", "s"),
                ("init_etcd", "s"),
                ("memory_per_worker", "MiB"),
                ("connect", "s"),
                ("memory_connected", "MiB"),
                ("noop_p50", "us"),
                ("heartbeat", "B_per_s"),
                ("heartbeat", "packets_per_s"),
                ("join_known", "s"),
                ("kill_known", "s"),
                ("silent_known", "s"),
            )
        ),
        *(
            Figure(f"rref_{what}", Better.LOWER)
            for what in (
                "create_us",
                "share_us",
                "delete_us",
                "memory_before_MiB",
                "memory_full_MiB",
                "memory_after_MiB",
                "memory_trimmed_MiB",
            )
        ),
    ),
    programs=(),
    packages=("etcd-server",),
)

REGISTRY = Suite(
    name="registry",
    summary="what the list of 1,000 and 10,000 workers costs its registrar, by simulation",
    binary="bench_registry",
    figures=tuple(
        Figure(f"registry_{what}_{workers}", Better.LOWER)
        for workers in (1000, 10000)
        for what in (
            "join_messages",
            "join_MiB",
            "join_cpu_s",
            "in_per_s",
            "out_per_s",
            "worker_per_s",
            "MiB_per_s",
            "cpu_percent",
            "agree_s",
        )
    ),
    programs=(),
)

WAITING_RATES = (10, 100, 1000, 10000)


def _waiting_figures(names: tuple[str, ...], better: Better, unit: str) -> tuple[Figure, ...]:
    """Each compared with the same of workers that always sleep, than which it must not be worse."""
    limit = 0.95 if better is Better.HIGHER else 1.05
    return tuple(
        Figure(
            f"{name}_{unit}",
            better,
            targets=MappingProxyType({"asleep": limit}),
            counterparts=MappingProxyType({"asleep": f"{name}_asleep_{unit}"}),
        )
        for name in names
    )


_WAITING_RATES = _waiting_figures(
    ("ring8_hops", "ring8_computed", "callers16_calls", "training_steps", "training_served"),
    Better.HIGHER,
    "per_s",
)
_WAITING_ON_HALF_A_CORE = _waiting_figures(
    ("half_core_steps", "half_core_served"), Better.HIGHER, "per_s"
)
_WAITING_CPU = _waiting_figures(
    tuple(f"cpu_at_{rate}" for rate in WAITING_RATES), Better.LOWER, "s_per_million"
)

WAITING = Suite(
    name="waiting",
    summary="workers that poll before they sleep, on busy hosts and idle ones",
    binary="bench_waiting",
    figures=(*_WAITING_RATES, *_WAITING_ON_HALF_A_CORE, *_WAITING_CPU),
    programs=tuple(
        PeerProgram(
            peer="asleep",
            ours=True,
            figures=tuple(figure.counterpart("asleep") for figure in figures),
            packages=(),
        )
        # What takes root stands alone.
        for figures in (_WAITING_RATES, _WAITING_ON_HALF_A_CORE, _WAITING_CPU)
    ),
)

GROUP_BYTES = (4096, 65536, 1048576, 16777216, 67108864)
GROUP_RANKS = (2, 4)
_RING_RANKS = 4
_MPI_PACKAGES = ("libopenmpi-dev", "openmpi-bin")


def all_reduce_figure(size: int, ranks: int) -> str:
    """Time of an all-reduce of `size` bytes over sockets."""
    return f"all_reduce_{size}_{ranks}_us"


def ring_figure(size: int) -> str:
    """The same by an example's chunked ring of sends and receives."""
    return f"ring_all_reduce_{size}_us"


def mpi_figure(size: int) -> str:
    """The same over MPI, between two ranks."""
    return f"mpi_all_reduce_{size}_us"


_ALL_REDUCE = tuple(
    all_reduce_figure(size, ranks) for ranks in GROUP_RANKS for size in GROUP_BYTES
)

GROUPS = Suite(
    name="groups",
    summary="collectives, data parallelism and starting processes, on this host",
    binary="bench_groups",
    figures=(
        *(
            Figure(
                name,
                Better.LOWER,
                targets=MappingProxyType({"torch": 1.05}),
                counterparts=MappingProxyType({"torch": name}),
            )
            for name in _ALL_REDUCE
        ),
        Figure(
            "ddp_step_ms",
            Better.LOWER,
            targets={"torch": 1.0},
            counterparts={"torch": "ddp_step_ms"},
        ),
        *(
            Figure(
                ring_figure(size),
                Better.LOWER,
                targets=MappingProxyType({"gloo": 1.3}),
                counterparts=MappingProxyType(
                    {"torch": ring_figure(size), "gloo": all_reduce_figure(size, _RING_RANKS)}
                ),
            )
            for size in GROUP_BYTES
        ),
        Figure(
            "spawn_ms", Better.LOWER, targets={"torch": 0.6}, counterparts={"torch": "spawn_ms"}
        ),
        *(
            Figure(
                mpi_figure(size),
                Better.LOWER,
                targets=MappingProxyType({"mpi": 1.3}),
                counterparts=MappingProxyType({"mpi": mpi_figure(size)}),
            )
            for size in GROUP_BYTES
        ),
    ),
    programs=(
        PeerProgram(
            peer="torch",
            script="torch_groups.py",
            figures=(
                *_ALL_REDUCE,
                "ddp_step_ms",
                *(ring_figure(size) for size in GROUP_BYTES),
                "spawn_ms",
            ),
            packages=_TORCH_PACKAGES,
        ),
        PeerProgram(
            peer="gloo",
            ours=True,
            figures=tuple(all_reduce_figure(size, _RING_RANKS) for size in GROUP_BYTES),
            packages=(),
        ),
        PeerProgram(
            peer="mpi",
            cmake_target="mpi_all_reduce",
            figures=tuple(mpi_figure(size) for size in GROUP_BYTES),
            packages=("g++", "cmake", *_MPI_PACKAGES),
        ),
    ),
    packages=_MPI_PACKAGES,
    cmake_options=("-DSINEW_WITH_MPI=ON",),
)

SUITES: Mapping[str, Suite] = MappingProxyType(
    {
        suite.name: suite
        for suite in (RPC, AUTOGRAD, TENSORS, STREAMS, TEAMS, SCALE, REGISTRY, WAITING, GROUPS)
    }
)
