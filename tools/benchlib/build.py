"""Makes the programs that are to be run: ours, the peers, and the packages the peers need."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Sequence

from benchlib.errors import BenchError
from benchlib.programs import describe_status, quote_tail, run_process
from benchlib.figures import PeerProgram, Suite

PYTHON = "/usr/bin/python3"  # Debian's, for which python3-torch is built
BUILD_TIMEOUT_S = 3600.0
INSTALL_TIMEOUT_S = 1200.0


def _run_step(what: str, command: Sequence[str], timeout_s: float, cwd: Path | None = None) -> None:
    finished = run_process(what, command, timeout_s, cwd, {"DEBIAN_FRONTEND": "noninteractive"})
    if finished.status != 0:
        # Compilers are heard on stderr by make and on stdout by ninja.
        raise BenchError(
            f"{what} ended with {describe_status(finished.status)} ({' '.join(command)})"
            f"{quote_tail(finished.stdout + finished.stderr)}"
        )


def _build_target(what: str, build_dir: Path, target: str, jobs: int) -> None:
    command = ["cmake", "--build", str(build_dir), "--target", target, "--parallel", str(jobs)]
    _run_step(what, command, BUILD_TIMEOUT_S)


def build_ours(root: Path, build_dir: Path, suite: Suite, jobs: int) -> Path:
    """Builds our program with the release preset, and returns where it is."""
    target = suite.binary
    if not (root / "CMakePresets.json").is_file():
        raise BenchError(
            f"{target} cannot be built, because CMakePresets.json is missing in {root}; "
            "name a built program with --ours PATH"
        )
    install_packages(target, suite.packages)
    configure = ["cmake", "--preset", "release", "-B", str(build_dir), *suite.cmake_options]
    _run_step(f"configuring {target}", configure, BUILD_TIMEOUT_S, cwd=root)
    _build_target(f"building {target}", build_dir, target, jobs)
    return find_program(build_dir, target)


def find_program(build_dir: Path, target: str) -> Path:
    """Where a build put the program of `target`."""
    places = [build_dir / folder / target for folder in ("", "benchmarks", "bin")]
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place
    looked = ", ".join(str(place) for place in places)
    raise BenchError(f"{target} was built, but it is in none of the places looked at: {looked}")


def prepare_peer(root: Path, build_dir: Path, program: PeerProgram, jobs: int) -> list[str]:
    """Installs what the peer's program needs, builds it, and returns the command that runs it."""
    install_packages(f"the peer {program.peer}", program.packages)
    sources = root / "benchmarks" / "peers"
    if program.script:
        return [PYTHON, str(sources / program.script)]
    configure = ["cmake", "-S", str(sources), "-B", str(build_dir), "-DCMAKE_BUILD_TYPE=Release"]
    _run_step(f"configuring the peer {program.name}", configure, BUILD_TIMEOUT_S)
    _build_target(f"building the peer {program.name}", build_dir, program.cmake_target, jobs)
    return [str(find_program(build_dir, program.cmake_target))]


def install_packages(who: str, packages: Sequence[str]) -> None:
    """Installs those of the Debian packages that are missing; raises BenchError when it cannot."""
    missing = missing_packages(who, packages)
    if not missing:
        return
    names = " ".join(missing)
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise BenchError(
            f"{who} needs packages that are missing, and only root can install them; "
            f"run this as root: apt-get install --no-install-recommends {names}"
        )
    # A package manager that runs beside this one holds the lock for minutes at most.
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "--yes"]
    what = f"installing {names} for {who}"
    _run_step(f"{what}: apt-get update", [*apt, "update"], INSTALL_TIMEOUT_S)
    install = [*apt, "install", "--no-install-recommends", *missing]
    _run_step(f"{what}: apt-get install", install, INSTALL_TIMEOUT_S)


def missing_packages(who: str, packages: Sequence[str]) -> list[str]:
    """Those of the Debian packages that are not installed."""
    if not packages:
        return []
    if shutil.which("dpkg-query") is None:
        raise BenchError(
            f"{who} cannot be prepared on a system without dpkg; it needs what Debian "
            f"calls {' '.join(packages)}"
        )
    missing = []
    for package in packages:
        query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
        finished = run_process(f"dpkg-query for {package}", query, timeout_s=60)
        if finished.stdout.strip() != "installed":
            missing.append(package)
    return missing
