"""The command line of tools/churn, and the order in which things happen."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, Sequence

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))
import ports  # noqa: E402
from etcd import Etcd  # noqa: E402
from churnlib.job import Job  # noqa: E402
from churnlib.run import run, summary  # noqa: E402

DESCRIPTION = """\
Shakes a job, and checks what it comes to. Its workers, processes of this host, are started in random order within a
second. Then, for a time, they are killed, stopped (for less and for more than the lease), made to leave, and started
again, at most a third of them at a time, as a seed says. They call each other all the time, and make, share and drop
references at each other; a worker that is evicted shuts down hard and starts again. At the end all go on, and within
--settle seconds there must be one job: every worker is a member and sees exactly those that are there; once they
have stopped working no call and no reference is left; each gets a right answer from each. In the whole run there
must be no wrong answer, no error that no loss explains, no process that ends by itself, and nothing on stderr that
looks like a crash."""
EPILOG = """\
The default lease of 4 s is long enough for a busy host not to evict anybody by itself, and short enough for hundreds
of losses in five minutes. Worker processes need some 100 MiB each. exit status: 0 all is as it should be, 1 it is not
(the seed, and where the record of all that happened is, is told), 2 a mistake in the arguments, or the worker cannot be built, or etcd not started."""
# Workers make some thousand actions a second together, however many they are.
PAUSE_PER_WORKER_MS = 3.0


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/churn",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workers", type=int, default=64, metavar="N", help="2 at least (64)")
    parser.add_argument(
        "--seconds", type=float, default=300, metavar="S", help="how long it is shaken (300)"
    )
    parser.add_argument("--seed", type=int, help="says what happens when (default: any)")
    parser.add_argument(
        "--init",
        choices=("file", "tcp", "registrar", "etcd"),
        default="tcp",
        help="where they meet (tcp); registrar: at one of its own, and etcd, that are started for them",
    )
    parser.add_argument(
        "--world", choices=("fixed", "open"), default="open", help="membership (open)"
    )
    parser.add_argument("--lease", type=float, default=4, metavar="S", help="of all workers (4)")
    parser.add_argument(
        "--settle", type=float, default=90, metavar="S", help="limit for what is to be at the end (90)"
    )
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", help="for the record (default: kept where something failed)"
    )
    parser.add_argument(
        "--build-dir",
        type=Path,
        default=ROOT / "build" / "dev",
        metavar="DIR",
        help="where to build the worker (build/dev)",
    )
    parser.add_argument("--worker", type=Path, metavar="PATH", help="a built churn_worker")
    options = parser.parse_args(arguments)
    if options.workers < 2:
        parser.error(f"argument --workers: {options.workers} workers are no job to shake")
    for name in ("seconds", "lease", "settle"):
        if getattr(options, name) <= 0:
            parser.error(f"argument --{name}: {getattr(options, name):g} is not more than 0")
    if options.worker is not None and not os.access(options.worker, os.X_OK):
        parser.error(f"argument --worker: {options.worker} is no program")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def build_worker(build_dir: Path) -> Path:
    """Raises CalledProcessError."""
    if not (build_dir / "CMakeCache.txt").is_file():
        configure = ["cmake", "--preset", "dev", "-B", str(build_dir), "--log-level=WARNING"]
        subprocess.run(configure, check=True, cwd=ROOT, stdout=sys.stderr)
    jobs = str(os.cpu_count() or 1)
    targets = ["churn_worker", "sinew-registrar"]
    build = ["cmake", "--build", str(build_dir), "--target", *targets, "--parallel", jobs]
    subprocess.run(build, check=True, stdout=sys.stderr)
    return build_dir / "tests" / "process" / "churn_worker"


def command_line(options: argparse.Namespace, program: Path, init: str) -> Callable[[int], list[str]]:
    pause_ms = max(2, round(PAUSE_PER_WORKER_MS * options.workers))

    def command_of(worker: int) -> list[str]:
        words = [f"name=w{worker}", f"init={init}", f"lease_ms={int(options.lease * 1000)}"]
        words.append(f"pause_ms={pause_ms}")
        if options.world == "fixed":
            words += [f"rank={worker}", f"world={options.workers}"]
        elif options.init == "tcp" and worker == 0:
            words.append("rank=0")  # the founder
        if options.init == "registrar":
            words.append("founds=never")
        return [str(program), *words]

    return command_of


def start_registrar(options: argparse.Namespace, program: Path, ends: contextlib.ExitStack) -> str:
    """Raises OSError and RuntimeError."""
    address = f"127.0.0.1:{ports.free_port()}"
    world = options.workers if options.world == "fixed" else 0
    registrar = subprocess.Popen(
        [
            # Of the same build.
            str(program.resolve().parents[2] / "launch" / "sinew-registrar"),
            *("--bind", address, "--world-size", str(world), "--lease", f"{options.lease:g}"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    ends.callback(registrar.wait)
    ends.callback(registrar.kill)
    if not registrar.stdout.readline():
        raise RuntimeError(f"{registrar.args[0]} does not start")
    return f"tcp://{address}"


def place(options: argparse.Namespace, program: Path, logs: Path, ends: contextlib.ExitStack) -> str:
    """Where they meet. Raises OSError and RuntimeError: whoever holds the list does not start."""
    if options.init == "registrar":
        return start_registrar(options, program, ends)
    if options.init == "tcp":
        return f"tcp://127.0.0.1:{ports.free_port()}"
    if options.init == "file":
        return f"file://{logs.resolve()}/meet"
    etcd = Etcd(logs)
    ends.callback(etcd.end)
    return etcd.url("churn")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    try:
        program = options.worker or build_worker(options.build_dir)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"churn: the worker cannot be built: {error}", file=sys.stderr)
        return 2
    logs = options.logs or Path(tempfile.mkdtemp(prefix="sinew-churn-"))
    logs.mkdir(parents=True, exist_ok=True)
    names = [f"w{worker}" for worker in range(options.workers)]
    with contextlib.ExitStack() as ends, (logs / "record").open("w", encoding="utf-8") as file:
        try:
            init = place(options, program, logs, ends)
        except (OSError, RuntimeError) as error:
            print(f"churn: {error}", file=sys.stderr)
            return 2
        job = Job(names, command_line(options, program, init), file)
        try:
            result = run(job, options)
        finally:
            job.end()
    print(summary(job, options, result))
    if not result.failures:
        if options.logs is None:
            shutil.rmtree(logs)
        return 0
    again = (
        f"tools/churn --seed {options.seed} --workers {options.workers} --seconds {options.seconds:g} "
        f"--init {options.init} --world {options.world} --lease {options.lease:g}"
    )
    print(f"FAILED with seed {options.seed}; the record is {logs}/record; again: {again}")
    return 1
