#!/usr/bin/python3
"""Tests of what `tools/bench` measures: figures, peers, and the programs that have them."""

from __future__ import annotations

import contextlib
import io
import re
import unittest
from pathlib import Path
from typing import Sequence
from unittest import mock

# First: it makes the driver and the peers known.
from script_test import ROOT  # isort: skip

import group_figures
from benchlib import build, cli, pairing, programs
from benchlib.suites import AUTOGRAD, GROUPS, SCALE, SUITES


class SuitesTest(unittest.TestCase):
    def test_agree_with_themselves(self) -> None:
        for suite in SUITES.values():
            for figure in suite.figures:
                for peer in (*figure.targets, *figure.counterparts):
                    with self.subTest(suite=suite.name, figure=figure.name, peer=peer):
                        measured = [p.figures for p in suite.programs if p.peer == peer]
                        self.assertIn(figure.counterpart(peer), sum(measured, ()))

    def test_name_peers_whose_sources_exist(self) -> None:
        cmake = (ROOT / "benchmarks" / "peers" / "CMakeLists.txt").read_text(encoding="utf-8")
        for suite in SUITES.values():
            for program in suite.programs:
                with self.subTest(program=program.name):
                    if program.ours:
                        own = (ROOT / "benchmarks" / "CMakeLists.txt").read_text(encoding="utf-8")
                        self.assertIn(f"add_executable({suite.binary} ", own)
                    elif program.script:
                        self.assertTrue((ROOT / "benchmarks" / "peers" / program.script).is_file())
                    else:
                        self.assertIn(f"peer_program({program.cmake_target} ", cmake)


class AutogradSuiteTest(unittest.TestCase):
    def pairs(self, *peers: str) -> dict[str, pairing.Pair]:
        pairs = pairing.make_pairs(AUTOGRAD, AUTOGRAD.figures, peers)
        return {pair.program.peer if pair.program else "": pair for pair in pairs}

    def test_sets_the_word_model_beside_torch_and_beside_one_process(self) -> None:
        pairs = self.pairs("torch", "local")
        self.assertIn("rnn_words_iter_p50_ms", pairs["torch"].theirs)
        self.assertEqual(
            pairs["local"].ours, ("rnn_words_iter_p50_ms", "rnn_words_loss_at_server_iter_p50_ms")
        )
        self.assertEqual(pairs["local"].theirs, ("rnn_words_local_iter_p50_ms",))
        figure = pairs["local"].figures[0]
        self.assertEqual(dict(figure.targets), {"torch": 0.77, "local": 0.9})

    def test_sets_messages_beside_what_the_graph_needs(self) -> None:
        pair = self.pairs("graph")["graph"]
        self.assertEqual([f"{name}_needed" for name in pair.ours], list(pair.theirs))
        self.assertTrue(all(figure.targets["graph"] == 1 for figure in pair.figures))

    def test_our_program_measures_all_that_is_asked_of_it(self) -> None:
        source = (ROOT / "benchmarks" / "bench_autograd.cc").read_text(encoding="utf-8")
        for figure in AUTOGRAD.figures:
            self.assertIn(f'"{figure.name}"', source)


class ScaleSuiteTest(unittest.TestCase):
    def test_our_program_measures_all_that_is_asked_of_it(self) -> None:
        source = (ROOT / "benchmarks" / "bench_scale.cc").read_text(encoding="utf-8")
        listed = re.search(r"kWorkers = \{([^}]*)\}", source)
        assert listed is not None
        workers = [int(count) for count in listed.group(1).split(",")]
        of_groups = [figure.name for figure in SCALE.figures if figure.name.startswith("scale_")]
        of_references = [figure.name for figure in SCALE.figures if figure.name.startswith("rref_")]
        self.assertEqual(len(of_groups) + len(of_references), len(SCALE.figures))
        for name in of_groups:
            match = re.fullmatch(r"scale_(\w+?)_(\d+)_(\w+)", name)
            assert match is not None
            self.assertIn(f'{{"{match[1]}", "{match[3]}"}}', source)
            self.assertIn(int(match[2]), workers)
        self.assertEqual(len(of_groups), 11 * len(workers))
        for name in of_references:
            self.assertIn(f'"{name}"', source)

    def test_has_no_peers_and_does_not_take_any(self) -> None:
        self.assertEqual(cli.parse_arguments(["scale", "--quick"]).peer, ())
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            with self.assertRaises(SystemExit):
                cli.parse_arguments(["scale", "--peer"])
        self.assertIn("--peer", stderr.getvalue())


class GroupsSuiteTest(unittest.TestCase):
    def test_all_programs_measure_what_is_asked_of_them(self) -> None:
        listed = {
            "torch": set(torch_figures()),
            "mpi": {f"mpi_all_reduce_{size}_us" for size in cc_numbers("kReducedBytes")},
        }
        for program in GROUPS.programs:
            if not program.ours:
                with self.subTest(program=program.name):
                    self.assertEqual(set(program.figures), listed[program.peer])
        # Ours has those of both, by the same header.
        self.assertEqual(
            {figure.name for figure in GROUPS.figures}, listed["torch"] | listed["mpi"]
        )

    def test_sets_the_ring_beside_the_all_reduce_of_as_many_ranks(self) -> None:
        (ring_ranks,) = cc_numbers("kRingRanks")
        pairs = pairing.make_pairs(GROUPS, GROUPS.figures, ("gloo",))
        pair = next(pair for pair in pairs if pair.program)
        for ours, theirs in zip(pair.ours, pair.theirs, strict=True):
            size = re.fullmatch(r"ring_all_reduce_(\d+)_us", ours)
            assert size is not None
            self.assertEqual(theirs, f"all_reduce_{size[1]}_{ring_ranks}_us")

    def test_ours_is_built_with_mpi(self) -> None:
        steps: list[Sequence[str]] = []

        def run(what: str, command: Sequence[str], *_: object, **__: object) -> programs.Finished:
            steps.append(command)
            return programs.Finished(status=0, stdout="installed", stderr="")

        with mock.patch.object(build, "run_process", run):
            with mock.patch.object(build, "find_program", return_value=Path("bench_groups")):
                build.build_ours(ROOT, ROOT / "build" / "release", GROUPS, jobs=1)
        configure = next(step for step in steps if "--preset" in step)
        self.assertIn("-DSINEW_WITH_MPI=ON", configure)


def cc_numbers(name: str) -> list[int]:
    """The values of a constant of group_figures.h."""
    source = (ROOT / "benchmarks" / "group_figures.h").read_text(encoding="utf-8")
    match = re.search(rf"{name} = {{?([^;}}]*)}}?;", source)
    assert match is not None
    return [int(number) for number in match[1].split(",")]


def torch_figures() -> list[str]:
    """The figures of peers/torch_groups.py, which is not imported, as torch may not be here."""
    return [
        *(
            group_figures.all_reduce_figure(size, ranks)
            for ranks in cc_numbers("kGroupRanks")
            for size in group_figures.BYTES
        ),
        *(group_figures.ring_figure(size) for size in group_figures.BYTES),
        group_figures.DDP_FIGURE,
        group_figures.SPAWN_FIGURE,
    ]


if __name__ == "__main__":
    unittest.main()
