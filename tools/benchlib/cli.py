"""The command line of tools/bench, and the order in which things happen."""

from __future__ import annotations

import argparse
import functools
import os
import signal
import sys
from pathlib import Path
from typing import Sequence

from benchlib import build, pairing, programs, report, tensor_chart
from benchlib.errors import BenchError
from benchlib.figures import BEFORE, Figure, Suite
from benchlib.suites import SUITES

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 5


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench", description="Takes the project's figures.")
    commands = parser.add_subparsers(dest="suite", required=True, metavar="SUITE")
    for suite in SUITES.values():
        command = commands.add_parser(suite.name, help=suite.summary, description=suite.summary)
        _add_options(command, suite)
    return parser.parse_args(arguments)


def _add_options(parser: argparse.ArgumentParser, suite: Suite) -> None:
    parser.set_defaults(peer=(), svg=None)
    if suite.peers:
        parser.add_argument(
            "--peer",
            nargs="?",
            const=suite.peers,
            type=functools.partial(_parse_peers, suite),
            metavar="NAMES",
            help="measure the peers too: all, or those named, of %s" % ", ".join(suite.peers),
        )
    if suite.chart:
        parser.add_argument(
            "--svg",
            nargs="?",
            const=ROOT / suite.chart,
            type=Path,
            metavar="FILE",
            help=f"draw the curves, by default to {suite.chart}",
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument(
        "--rounds",
        type=_parse_positive,
        default=ROUNDS,
        metavar="N",
        help="times each program runs (default %(default)s); fewer than 5 prove little",
    )
    parser.add_argument("--quick", action="store_true", help="few calls: shows that it works")
    parser.add_argument(
        "--figures",
        type=functools.partial(_parse_figures, suite),
        default=suite.figures,
        metavar="NAMES",
        help="measure these only: a,b,c",
    )
    parser.add_argument(
        "--build-dir",
        type=Path,
        default=ROOT / "build" / "release",
        metavar="DIR",
        help="where to build (default build/release); peers go to DIR/peers",
    )
    parser.add_argument(
        "--jobs", type=_parse_positive, default=os.cpu_count() or 1, help="compilers at once"
    )
    parser.add_argument("--ours", type=Path, metavar="PATH", help=f"a built {suite.binary}")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="PATH",
        help=f"a {suite.binary} of an older tree, to compare with as with a peer",
    )
    parser.add_argument(
        "--timeout",
        type=_parse_positive,
        default=300,
        metavar="SECONDS",
        help="limit of one run of one program (default %(default)s)",
    )


def _parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def _parse_peers(suite: Suite, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in text.split(",") if name))
    for name in names:
        if name not in suite.peers:
            raise argparse.ArgumentTypeError(
                f"'{name}' is not a peer of {suite.name}; its peers are {', '.join(suite.peers)}"
            )
    return names


def _parse_figures(suite: Suite, text: str) -> tuple[Figure, ...]:
    by_name = {figure.name: figure for figure in suite.figures}
    names = tuple(dict.fromkeys(name for name in text.split(",") if name))
    for name in names:
        if name not in by_name:
            raise argparse.ArgumentTypeError(
                f"'{name}' is not a figure of {suite.name}; its figures are {', '.join(by_name)}"
            )
    return tuple(by_name[name] for name in names)


def say(sentence: str) -> None:
    """Progress and failures go to stderr, so that stdout holds the figures alone."""
    print(f"bench: {sentence}", file=sys.stderr, flush=True)


def run_suite(suite: Suite, options: argparse.Namespace) -> int:
    """Builds, measures and prints. Returns 1 when a program failed, so figures are missing."""
    runner = functools.partial(
        programs.measure, quick=options.quick, timeout_s=float(options.timeout)
    )
    # A program is searched in PATH if its name has no slash; --ours names a file.
    ours_path = options.ours.absolute() if options.ours else _build_ours(suite, options)
    ours = functools.partial(runner, suite.binary, [str(ours_path)])

    pairs = [
        pairing.Rounds(pair)
        for pair in pairing.make_pairs(
            suite, options.figures, options.peer, options.before is not None
        )
    ]
    measures = [_prepare(rounds, runner, ours, options) for rounds in pairs]

    for index in range(options.rounds):
        if all(rounds.failure for rounds in pairs):
            break
        say(f"round {index + 1} of {options.rounds}")
        ours_first = index % 2 == 0
        order = list(zip(pairs, measures))
        for rounds, theirs in order if ours_first else reversed(order):
            if rounds.failure is None:
                pairing.run_round(rounds, ours, theirs, ours_first)
                _say_failure(rounds)

    rows = [row for rounds in pairs for row in pairing.summarize(rounds)]
    places = {figure.name: place for place, figure in enumerate(suite.figures)}
    rows.sort(key=lambda row: places[row.figure.name])
    if options.json:
        for row in rows:
            print(report.to_json_line(row))
    elif rows:
        print(report.to_table(rows))
    if options.svg and rows:
        tensor_chart.write(rows, options.svg)
        say(f"the curves are in {options.svg}")
    return 1 if any(rounds.failure for rounds in pairs) else 0


def _build_ours(suite: Suite, options: argparse.Namespace) -> Path:
    say(f"building {suite.binary} in {options.build_dir}")
    return build.build_ours(ROOT, options.build_dir.absolute(), suite, options.jobs)


def _prepare(
    rounds: pairing.Rounds,
    runner: functools.partial,
    ours: pairing.Measure,
    options: argparse.Namespace,
) -> pairing.Measure | None:
    program = rounds.pair.program
    if program is None:
        return None
    if program.ours:
        return ours
    if program.peer == BEFORE:
        return functools.partial(runner, f"the {BEFORE} program", [str(options.before.absolute())])
    say(f"preparing the peer {program.name}")
    peers_dir = options.build_dir.absolute() / "peers"
    try:
        command = build.prepare_peer(ROOT, peers_dir, program, options.jobs)
    except BenchError as error:
        rounds.failure = error
        _say_failure(rounds)
        return None
    return functools.partial(runner, program.name, command)


def _say_failure(rounds: pairing.Rounds) -> None:
    if rounds.failure is None:
        return
    finished = max((len(values) for values in rounds.ours.values()), default=0)
    program = rounds.pair.program
    whose = f"comparison with {program.name}" if program else "measurement"
    say(f"{rounds.failure}\nbench: this {whose} ends here, after {finished} full rounds")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    # The default action would skip the clean-up that kills what a measurement has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run_suite(SUITES[options.suite], options)
    except BenchError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 128 + signal.SIGINT
