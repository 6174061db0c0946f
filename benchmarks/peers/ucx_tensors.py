#!/usr/bin/python3
"""Tensors over UCX, as its own ucx_perftest measures them between two processes.

A push is its tag_bw: the sender keeps several messages in flight. A pull is its ucp_get: a read of
the other one's memory, where the other one has allocated it for that. Over TCP, UCX has no such
read, and what it puts in its place took milliseconds for 4 KiB; so network_pull is not measured.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import peer_options
from tensor_figures import BYTES, figure_name

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))
import ports  # noqa: E402

PERFTEST = "ucx_perftest"
TESTS = {"push": "tag_bw", "pull": "ucp_get"}
# UCX by itself takes the best that the host has. Over TCP that is an address of a network card, if
# there is any, which is loopback all the same, but was faster than "lo".
ENVIRONMENTS = {"same_host": {}, "network": {"UCX_TLS": "tcp"}}
MEASURED = (("same_host", "push"), ("same_host", "pull"), ("network", "push"))
FIGURES = tuple(
    figure_name(plane, direction, size) for plane, direction in MEASURED for size in BYTES
)
ALTOGETHER_BYTES = 2 << 30
LIMIT_S = 60.0


class PerftestError(Exception):
    """A sentence on what went wrong."""


def parse_gbps(output: str) -> float:
    """The bandwidth over all iterations, in GB/s, from what `ucx_perftest -v -f` printed."""
    lines = output.splitlines()
    for place, line in enumerate(lines):
        if line.startswith("iterations,") and place + 1 < len(lines):
            row = dict(zip(next(csv.reader([line])), next(csv.reader([lines[place + 1]]))))
            # Its MB are 2^20 bytes. avg_bw is that of the last interval only, which may be empty.
            try:
                value = float(row["overall_bw"]) * 2**20 / 1e9
            except (KeyError, TypeError, ValueError):
                break
            return value
    raise PerftestError(f"{PERFTEST} printed no bandwidth, but {output[-300:]!r}")


def iterations(options: peer_options.Options, size: int) -> int:
    # Small messages take a microsecond each: more of them, to last long enough.
    return 3 if options.quick else min(max(ALTOGETHER_BYTES // size, 3), 100_000)


def is_listening(port: int) -> bool:
    # Not by connecting: the server takes the first connection for its client.
    wanted = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[1].endswith(":" + wanted) and fields[3] == "0A":
                return True
    return False


def wait_until_listening(server: subprocess.Popen, port: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_listening(port):
        if server.poll() is not None:
            raise PerftestError(f"the server of {PERFTEST} ended with status {server.returncode}")
        if time.monotonic() > deadline:
            raise PerftestError(f"the server of {PERFTEST} did not listen within {LIMIT_S:g} s")
        time.sleep(0.01)


def run_perftest(plane: str, direction: str, size: int, count: int) -> float:
    environment = {**os.environ, "UCX_WARN_UNUSED_ENV_VARS": "n", **ENVIRONMENTS[plane]}
    port = ports.free_port()
    server = subprocess.Popen(
        [PERFTEST, "-p", str(port)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_listening(server, port)
        client = [PERFTEST, "127.0.0.1", "-p", str(port), "-t", TESTS[direction], "-s", str(size)]
        client += ["-n", str(count), "-w", str(1 + count // 10), "-f", "-v"]
        finished = subprocess.run(
            client,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        server.kill()
        server.wait()
    if finished.returncode != 0:
        raise PerftestError(
            f"{' '.join(client)} ended with status {finished.returncode}: {finished.stderr[-500:]}"
        )
    return parse_gbps(finished.stdout)


def main() -> int:
    options = peer_options.parse_options(FIGURES, (__doc__ or "").splitlines()[0])
    for plane, direction in MEASURED:
        for size in BYTES:
            figure = figure_name(plane, direction, size)
            if options.wants(figure):
                count = iterations(options, size)
                options.report(figure, run_perftest(plane, direction, size, count))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (PerftestError, OSError, subprocess.TimeoutExpired) as error:
        print(f"ucx_tensors.py: {error}", file=sys.stderr)
        sys.exit(1)
