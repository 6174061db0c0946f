"""The command line of tests/docker/run."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, Sequence

from lab.engine import EngineLab, docker
from lab.hosts import Lab, Unsupported
from lab.local_engine import LocalEngine
from lab.namespaces import NamespaceLab
from lab.program import LabError
from scenarios import actor_learner, backward, compose, data_parallel, etcd, limits, ps_rnn, rl, scenario as common, trust
from scenarios.scenario import Scenario, Wrong

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS: list[Scenario] = [
    scenario
    for module in (ps_rnn, backward, rl, actor_learner, etcd, trust, data_parallel, limits, compose)
    for scenario in module.SCENARIOS
]
IMAGE = "sinew-lab"
# With a package manager in it, over a network that others use too.
IMAGE_TIMEOUT_S = 1800
DESCRIPTION = """\
Runs jobs of the example programs over several hosts, does to them what happens to jobs, and checks what they come to.
Hosts are containers: of the engine that DOCKER_HOST says, or else of one that is started here and ended again. Where there
can be none the reason is told ("skipped: ..."), and hosts are network namespaces."""
EPILOG = """\
exit status: 0 all is as it must be, also where something was skipped; 1 it is not; 2 a mistake in the arguments, or programs
or image cannot be made."""


@dataclass
class Row:
    """Of the table."""

    scenario: str
    result: str
    recovery: str
    seconds: float
    note: str


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/docker/run",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--backend", choices=("docker", "namespaces"), default="docker", help="what hosts are (docker)")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="this one; may be repeated (default: all)")
    parser.add_argument("--quick", action="store_true", help="those that CI runs")
    parser.add_argument("--list", action="store_true", help="print the scenarios' names, and do nothing")
    parser.add_argument(
        "--build-dir", type=Path, default=ROOT / "build" / "dev", metavar="DIR",
        help="where the example programs are built (build/dev)",
    )  # fmt: skip
    parser.add_argument("--suite", default="bookworm", help="release of Debian of the image, as of the programs (bookworm)")
    parser.add_argument("--image", metavar="NAME", help="hosts are of this image, rather than of one that is made here")
    parser.add_argument(
        "--engine-data", type=Path, metavar="DIR",
        help="where an engine that is started here keeps its images for the next time (default: nowhere)",
    )  # fmt: skip
    parser.add_argument("--remove-images", action="store_true", help="remove the images that were made here")
    options = parser.parse_args(arguments)
    names = [scenario.name for scenario in SCENARIOS]
    for name in options.scenario or ():
        if name not in names:
            parser.error(f"argument --scenario: there is no '{name}'; there are: {', '.join(names)}")
    return options


def chosen(options: argparse.Namespace) -> list[Scenario]:
    if options.scenario:
        return [scenario for scenario in SCENARIOS if scenario.name in options.scenario]
    return [scenario for scenario in SCENARIOS if scenario.quick or not options.quick]


def say(text: str) -> None:
    print(f"== docker/run: {text}", file=sys.stderr, flush=True)


def collect_programs(build_dir: Path, folder: Path) -> None:
    """Raises LabError."""
    command = [ROOT / "deploy" / "collect-binaries", build_dir, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(done.stderr.strip())


@contextlib.contextmanager
def engine(data: Path | None) -> Iterator[str | None]:
    """Sees to it that one answers. Gives why that cannot be."""
    obstacle = EngineLab.obstacle()
    if obstacle is None:
        yield None
        return
    obstacle = LocalEngine.obstacle()
    if obstacle is not None:
        yield obstacle
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(LocalEngine(data))
        except LabError as error:
            yield str(error)
            return
        yield EngineLab.obstacle()


def make_base(suite: str, base: str) -> None:
    """Raises LabError. What it has made so far goes with it when this is interrupted."""
    command = [ROOT / "deploy" / "base-image", "--suite", suite, "--tag", base]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as making:
        try:
            said, _ = making.communicate(timeout=IMAGE_TIMEOUT_S)
        except BaseException:
            # With its children, for which the shell waits.
            os.killpg(making.pid, signal.SIGTERM)
            making.communicate()
            raise
    if making.returncode != 0:
        raise LabError(said.strip())


def make_image(suite: str, programs: Path) -> str:
    """Its name. Raises LabError."""
    begin = time.monotonic()
    base = f"sinew-base:{suite}"
    make_base(suite, base)
    # Of the layers only the programs' own is new when these have changed.
    shutil.copytree(ROOT / "deploy", programs / "deploy")
    image = f"{IMAGE}:{suite}"
    # The builder that every engine has.
    os.environ.setdefault("DOCKER_BUILDKIT", "0")
    docker(
        "build", "--network", "host", "--quiet", "--tag", image, "--file", programs / "deploy" / "Dockerfile",
        "--build-arg", f"BASE={base}", "--build-arg", "BINARIES=prebuilt", programs,
        timeout_s=IMAGE_TIMEOUT_S,
    )  # fmt: skip
    size_MB = int(docker("image", "inspect", "--format", "{{.Size}}", image)) / 1e6
    say(f"{image} has {size_MB:.0f} MB, and took {time.monotonic() - begin:.0f} s")
    return image


def remove_images(suite: str) -> None:
    for image in (f"{IMAGE}:{suite}", f"sinew-base:{suite}"):
        with contextlib.suppress(LabError):
            docker("image", "rm", "--force", image)


def run_scenario(scenario: Scenario, make_lab: Callable[[], Lab]) -> Row:
    begin = time.monotonic()
    recovery = note = ""
    try:
        with make_lab() as lab:
            result = scenario.run(lab)
        outcome = "ok"
        recovery = "" if result.recovery_s is None else f"{result.recovery_s:.1f} s"
        note = result.note
    except Unsupported as reason:
        outcome, note = "skipped", str(reason)
    except (LabError, Wrong) as error:
        outcome, note = "FAILED", str(error)
    return Row(scenario.name, outcome, recovery, time.monotonic() - begin, note)


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'scenario':<24}{'result':<10}{'recovery':>10}{'in all':>10}  note"]
    for row in rows:
        first, *more = row.note.splitlines() or [""]
        lines.append(f"{row.scenario:<24}{row.result:<10}{row.recovery:>10}{row.seconds:>8.1f} s  {first}".rstrip())
        lines += [f"    {line}" for line in more]
    return "\n".join(lines)


def run_all(scenarios: Sequence[Scenario], make_lab: Callable[[], Lab]) -> int:
    rows = []
    for scenario in scenarios:
        say(scenario.name)
        rows.append(run_scenario(scenario, make_lab))
        if rows[-1].result != "ok":
            say(f"{rows[-1].result}: {rows[-1].note}")
    print(table(rows))
    return 1 if any(row.result == "FAILED" for row in rows) else 0


def over_namespaces(scenarios: Sequence[Scenario], programs: Path) -> int:
    obstacle = NamespaceLab.obstacle()
    if obstacle is not None:
        print(f"skipped: {obstacle}")
        return 0
    return run_all(scenarios, lambda: NamespaceLab([programs / "bin"]))


def over_containers(options: argparse.Namespace, scenarios: Sequence[Scenario], programs: Path) -> int:
    with engine(options.engine_data) as obstacle:
        if obstacle is None:
            image = options.image or make_image(options.suite, programs)
            try:
                return run_all(scenarios, lambda: EngineLab(image))
            finally:
                if options.remove_images and options.image is None:
                    remove_images(options.suite)
    print(f"skipped: {obstacle}; the hosts are network namespaces instead", flush=True)
    return over_namespaces(scenarios, programs)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    scenarios = chosen(options)
    common.own_programs = options.build_dir / "tests" / "docker"
    if options.list:
        print("\n".join(scenario.name for scenario in scenarios))
        return 0

    def end(number: int, _: object) -> None:
        # By an exception: labs and engine are to be gone.
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    with tempfile.TemporaryDirectory(prefix="sinew-docker-") as folder:
        programs = Path(folder)
        # Users of containers look into it too.
        programs.chmod(0o755)
        try:
            collect_programs(options.build_dir, programs)
            if options.backend == "namespaces":
                return over_namespaces(scenarios, programs)
            return over_containers(options, scenarios, programs)
        except (LabError, subprocess.TimeoutExpired) as error:
            print(f"docker/run: {error}", file=sys.stderr)
            return 2
