"""What is measured: each suite is a table of figures and the peer programs that have them too.

To add a suite, write one more Suite below and name it in SUITES; nothing else has to change.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Mapping


class Better(enum.Enum):
    """Which way a figure improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Figure:
    """One number. Its unit ends its name; `_p50_us` is a median of times, `_per_s` a rate."""

    name: str
    better: Better
    # Peer to the ratio ours/theirs that is wanted: at most that if LOWER, at least if HIGHER.
    targets: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    # Peer to the figure of that peer which ours is compared with. Empty: every peer's figure of the
    # same name.
    counterparts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def counterpart(self, peer: str) -> str:
        """The name under which `peer` measures what this is compared with."""
        if not self.counterparts:
            return self.name
        return self.counterparts.get(peer, "")


@dataclass(frozen=True)
class PeerProgram:
    """Measures figures of one peer: a CMake target of benchmarks/peers, or a script there."""

    peer: str
    figures: tuple[str, ...]
    packages: tuple[str, ...]  # of Debian, needed to build and run it
    cmake_target: str = ""
    script: str = ""
    # It is our own program: figures of ours are compared with others of ours.
    ours: bool = False

    @property
    def name(self) -> str:
        return self.cmake_target or self.script or f"our own program as {self.peer}"


@dataclass(frozen=True)
class Suite:
    """What one sub-command measures."""

    name: str
    summary: str
    binary: str  # our program, and the CMake target that builds it
    figures: tuple[Figure, ...]
    programs: tuple[PeerProgram, ...]

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(program.peer for program in self.programs))


_TORCH_PACKAGES = ("python3-torch", "libopenblas0-pthread")

RPC = Suite(
    name="rpc",
    summary="calls, remote objects and the RL rollout between processes on this host",
    binary="bench_rpc",
    figures=(
        Figure("noop_sync_p50_us", Better.LOWER, targets={"grpc": 1.1, "torch": 0.8}),
        Figure("noop_sync_p99_us", Better.LOWER),
        Figure(
            "noop_async64_per_s", Better.HIGHER, targets={"grpc": 3, "capnp": 2, "torch": 10}
        ),
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
    ),
    programs=(
        PeerProgram(
            peer="grpc",
            cmake_target="grpc_raw",
            figures=("noop_sync_p50_us", "noop_sync_p99_us", "noop_async64_per_s"),
            packages=(
                "g++",
                "cmake",
                "libgrpc++-dev",
                "libprotobuf-dev",
                "protobuf-compiler",
                "protobuf-compiler-grpc",
            ),
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
            packages=("g++", "cmake", "pkg-config", "libcapnp-dev", "capnproto"),
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
            figures=("rl_steps_per_s_1", "rl_steps_per_s_4"),
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
            targets={"torch": 0.8, "local": 1.15},
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

SUITES: Mapping[str, Suite] = MappingProxyType({suite.name: suite for suite in (RPC, AUTOGRAD)})
