#!/usr/bin/python3
"""Tests of tools/bench: arguments, rounds, ratios, and what it says when a program fails.

Nothing is built, installed or measured: the programs are scripts that print what the test wants.
Run with: /usr/bin/python3 benchmarks/test_bench.py
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
import unittest
from pathlib import Path
from typing import Sequence
from unittest import mock

# First: it makes the driver and the peers known.
from script_test import ScriptTest  # isort: skip

from benchlib import build, cli, pairing, programs, report
from benchlib.errors import BenchError
from benchlib.figures import Better, Figure, PeerProgram, Suite
from benchlib.suites import RPC, TENSORS

LATENCY = Figure("latency_us", Better.LOWER, targets={"grpc": 1.1})
RATE = Figure(
    "rate_per_s", Better.HIGHER, targets={"torch": 8}, counterparts={"torch": "slow_per_s"}
)
GRPC = PeerProgram("grpc", figures=("latency_us",), packages=(), cmake_target="grpc_raw")
TORCH = PeerProgram("torch", figures=("slow_per_s",), packages=(), script="torch_rl.py")
SUITE = Suite("rpc", "a suite of two figures", "bench_rpc", (LATENCY, RATE), (GRPC, TORCH))


class RatioTest(unittest.TestCase):
    def test_is_the_median_of_the_ratios_of_each_round(self) -> None:
        # The third round was ten times as slow for both: the ratios do not see it.
        self.assertEqual(pairing.median_of_ratios([2, 3, 40], [1, 1, 10]), 3)

    def test_is_not_the_ratio_of_the_medians(self) -> None:
        ours, theirs = [10, 1, 5], [1, 10, 5]
        self.assertEqual(pairing.median_of_ratios(ours, theirs), 1)
        ours, theirs = [1, 2, 3], [3, 1, 2]
        self.assertEqual(pairing.median_of_ratios(ours, theirs), 1.5)

    def test_of_an_even_number_of_rounds_lies_between_the_middle_two(self) -> None:
        self.assertEqual(pairing.median_of_ratios([1, 2], [1, 1]), 1.5)

    def test_refuses_rounds_that_one_side_did_not_finish(self) -> None:
        with self.assertRaises(ValueError):
            pairing.median_of_ratios([1, 2], [1])


class TargetTest(unittest.TestCase):
    def row(self, figure: Figure, peer: str, ratio: float) -> pairing.Row:
        return pairing.Row(figure, ours=ratio, peer=peer, theirs=1.0, ratio=ratio)

    def test_a_lower_figure_meets_it_at_most_at_the_limit(self) -> None:
        self.assertTrue(self.row(LATENCY, "grpc", 1.1).target_met)
        self.assertFalse(self.row(LATENCY, "grpc", 1.11).target_met)

    def test_a_higher_figure_meets_it_at_least_at_the_limit(self) -> None:
        self.assertTrue(self.row(RATE, "torch", 8).target_met)
        self.assertFalse(self.row(RATE, "torch", 7.9).target_met)

    def test_is_none_for_a_peer_without_one(self) -> None:
        self.assertIsNone(self.row(LATENCY, "torch", 5).target_met)
        self.assertIsNone(pairing.Row(LATENCY, ours=1.0).target_met)


class PairsTest(unittest.TestCase):
    def test_hold_the_figures_that_a_program_has(self) -> None:
        pairs = pairing.make_pairs(SUITE, SUITE.figures, ("grpc", "torch"))
        self.assertEqual([pair.program for pair in pairs], [GRPC, TORCH])
        self.assertEqual([pair.ours for pair in pairs], [("latency_us",), ("rate_per_s",)])
        self.assertEqual([pair.theirs for pair in pairs], [("latency_us",), ("slow_per_s",)])

    def test_leave_alone_what_no_chosen_peer_has(self) -> None:
        pairs = pairing.make_pairs(SUITE, SUITE.figures, ("grpc",))
        self.assertEqual([pair.program for pair in pairs], [GRPC, None])
        self.assertEqual(pairs[1].ours, ("rate_per_s",))

    def test_ask_a_peer_once_for_what_two_figures_are_compared_with(self) -> None:
        figures = [
            figure
            for figure in RPC.figures
            if figure.name in ("rl_steps_per_s_4", "rl_batched_steps_per_s_4")
        ]
        (pair,) = pairing.make_pairs(RPC, figures, ("torch",))
        self.assertEqual(pair.ours, ("rl_steps_per_s_4", "rl_batched_steps_per_s_4"))
        self.assertEqual(pair.theirs, ("rl_steps_per_s_4",))


class RoundTest(unittest.TestCase):
    def setUp(self) -> None:
        self.order: list[str] = []

    def side(self, name: str, values: dict[str, float]) -> pairing.Measure:
        def measure(figures: Sequence[str]) -> dict[str, float]:
            self.order.append(name)
            return {figure: values[figure] for figure in figures}

        return measure

    def test_runs_the_sides_in_the_order_asked_for(self) -> None:
        rounds = pairing.Rounds(pairing.Pair((LATENCY,), GRPC))
        ours, theirs = self.side("ours", {"latency_us": 2}), self.side("theirs", {"latency_us": 4})
        pairing.run_round(rounds, ours, theirs, ours_first=True)
        pairing.run_round(rounds, ours, theirs, ours_first=False)
        self.assertEqual(self.order, ["ours", "theirs", "theirs", "ours"])
        (row,) = pairing.summarize(rounds)
        self.assertEqual((row.ours, row.theirs, row.ratio), (2, 4, 0.5))

    def test_drops_the_whole_round_when_one_side_fails(self) -> None:
        def fail(figures: Sequence[str]) -> dict[str, float]:
            raise BenchError("grpc_raw ended")

        rounds = pairing.Rounds(pairing.Pair((LATENCY,), GRPC))
        pairing.run_round(rounds, self.side("ours", {"latency_us": 2}), fail, ours_first=True)
        self.assertEqual(str(rounds.failure), "grpc_raw ended")
        self.assertEqual(pairing.summarize(rounds), [])


class MeasureTest(ScriptTest):
    def measure(self, path: Path, *figures: str, timeout_s: float = 30) -> dict[str, float]:
        return programs.measure("bench_rpc", [str(path)], figures, quick=True, timeout_s=timeout_s)

    def test_passes_the_arguments_and_returns_what_was_asked_for(self) -> None:
        path = self.program_of("bench_rpc", {"a_us": 1.5, "b_us": 2, "c_us": 3})
        self.assertEqual(self.measure(path, "a_us", "b_us"), {"a_us": 1.5, "b_us": 2})
        self.assertEqual(self.log(), ["bench_rpc --figures a_us,b_us --quick"])

    def test_names_the_program_its_status_and_the_end_of_its_stderr(self) -> None:
        path = self.script(
            "fails",
            """
            import sys
            for line in range(100):
                print("line", line, file=sys.stderr)
            sys.exit(3)
            """,
        )
        with self.assertRaises(BenchError) as caught:
            self.measure(path, "a_us")
        message = str(caught.exception)
        self.assertIn("bench_rpc ended with exit status 3 while it measured a_us", message)
        self.assertTrue(message.endswith("line 99"))
        self.assertNotIn("line 50", message)

    def test_names_the_signal(self) -> None:
        path = self.script("dies", "import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
        with self.assertRaisesRegex(BenchError, r"signal 6 \(SIGABRT\).*wrote nothing to stderr"):
            self.measure(path, "a_us")

    def test_says_which_figure_is_missing(self) -> None:
        path = self.program_of("bench_rpc", {"a_us": 1})
        with self.assertRaisesRegex(BenchError, "bench_rpc ended without the figure b_us"):
            self.measure(path, "a_us", "b_us")

    def test_says_that_a_program_cannot_be_started(self) -> None:
        with self.assertRaisesRegex(BenchError, "bench_rpc cannot be started: No such .*absent"):
            self.measure(self.folder / "absent", "a_us")

    def test_ends_a_program_that_takes_too_long_and_its_servers(self) -> None:
        path = self.script(
            "hangs",
            f"""
            import os, sys, time
            server = os.fork()
            if server == 0:
                time.sleep(600)
            with open({str(self.folder / 'server')!r}, "w") as file:
                file.write(str(server))
            print("still waiting", file=sys.stderr, flush=True)
            time.sleep(600)
            """,
        )
        with self.assertRaisesRegex(BenchError, "(?s)did not end within 2 s.*still waiting"):
            self.measure(path, "a_us", timeout_s=2)
        self.assert_ends(int((self.folder / "server").read_text(encoding="utf-8")))

    def test_ends_the_servers_of_a_program_that_left_them_behind(self) -> None:
        path = self.script(
            "leaves",
            f"""
            import json, os, time
            server = os.fork()
            if server == 0:
                os.close(1), os.close(2)
                time.sleep(600)
            with open({str(self.folder / 'server')!r}, "w") as file:
                file.write(str(server))
            print(json.dumps({{"figure": "a_us", "value": 1}}))
            """,
        )
        self.assertEqual(self.measure(path, "a_us"), {"a_us": 1})
        self.assert_ends(int((self.folder / "server").read_text(encoding="utf-8")))

    def assert_ends(self, process: int) -> None:
        """Passes once `process` is gone, or is a zombie that waits for its new parent."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").split()[2]
            except OSError:
                return
            if state == "Z":
                return
            time.sleep(0.01)
        self.fail(f"process {process} still runs")


class ParseFiguresTest(unittest.TestCase):
    def test_reads_a_line_each(self) -> None:
        text = '{"figure": "a_us", "value": 1.5}\n\n{"figure": "b_us", "value": 2}\n'
        self.assertEqual(programs.parse_figures("peer", text), {"a_us": 1.5, "b_us": 2})

    def test_refuses_any_other_line(self) -> None:
        for line in ("hello", "[1]", '{"figure": "a_us"}', '{"figure": "a_us", "value": "x"}', "3"):
            with self.subTest(line=line):
                with self.assertRaisesRegex(BenchError, "peer printed a line that is not a figure"):
                    programs.parse_figures("peer", line)

    def test_refuses_what_no_measurement_can_give(self) -> None:
        for value in ("0", "-1", "NaN", "Infinity"):
            with self.subTest(value=value):
                with self.assertRaisesRegex(BenchError, "no measurement can give"):
                    programs.parse_figures("peer", f'{{"figure": "a_us", "value": {value}}}')


class BuildTest(ScriptTest):
    def test_says_what_is_missing_for_ours(self) -> None:
        with self.assertRaisesRegex(BenchError, "CMakePresets.json is missing in .*--ours PATH"):
            build.build_ours(self.folder, self.folder / "build", SUITE, jobs=1)

    def test_finds_the_program_in_the_benchmarks_folder(self) -> None:
        (self.folder / "benchmarks").mkdir()
        path = self.script("benchmarks/bench_rpc", "")
        self.assertEqual(build.find_program(self.folder, "bench_rpc"), path)

    def test_says_where_it_looked_for_the_program(self) -> None:
        with self.assertRaisesRegex(BenchError, "bench_rpc was built, but .*benchmarks/bench_rpc"):
            build.find_program(self.folder, "bench_rpc")

    def test_tells_what_to_install_when_it_may_not(self) -> None:
        with mock.patch.object(build, "missing_packages", return_value=["capnproto"]):
            with mock.patch.object(os, "geteuid", return_value=1000):
                with self.assertRaisesRegex(BenchError, "peer capnp .* as root: .*capnproto"):
                    build.install_packages("the peer capnp", ["capnproto"])

    def test_installs_what_is_missing_and_nothing_else(self) -> None:
        finished = programs.Finished(status=0, stdout="", stderr="")
        with mock.patch.object(build, "missing_packages", return_value=["capnproto"]):
            with mock.patch.object(os, "geteuid", return_value=0):
                with mock.patch.object(build.shutil, "which", return_value="/usr/bin/apt-get"):
                    with mock.patch.object(build, "run_process", return_value=finished) as run:
                        build.install_packages("the peer capnp", ["capnproto", "libcapnp-dev"])
        update, install = (call.args[1] for call in run.call_args_list)
        self.assertEqual(update[-1], "update")
        self.assertEqual(install[-3:], ["install", "--no-install-recommends", "capnproto"])

    def test_installs_nothing_when_nothing_is_missing(self) -> None:
        with mock.patch.object(build, "missing_packages", return_value=[]):
            with mock.patch.object(build, "run_process") as run_process:
                build.install_packages("the peer capnp", ["capnproto"])
        run_process.assert_not_called()

    def test_quotes_a_step_that_failed(self) -> None:
        step = ["sh", "-c", "echo unknown target bench_rpc; exit 1"]
        with self.assertRaisesRegex(BenchError, "(?s)building bench_rpc .*status 1.*unknown"):
            build._run_step("building bench_rpc", step, timeout_s=30)


class ReportTest(unittest.TestCase):
    def test_a_json_line_without_a_peer_holds_two_fields(self) -> None:
        line = report.to_json_line(pairing.Row(LATENCY, ours=80.5))
        self.assertEqual(json.loads(line), {"figure": "latency_us", "ours": 80.5})

    def test_a_json_line_with_a_peer_holds_five(self) -> None:
        row = pairing.Row(LATENCY, ours=80.0, peer="grpc", theirs=100.0, ratio=0.8)
        self.assertEqual(
            json.loads(report.to_json_line(row)),
            {"figure": "latency_us", "ours": 80, "peer": "grpc", "theirs": 100, "ratio": 0.8},
        )

    def test_the_table_tells_which_targets_are_met(self) -> None:
        table = report.to_table(
            [
                pairing.Row(LATENCY, ours=80.0, peer="grpc", theirs=100.0, ratio=0.8),
                pairing.Row(RATE, ours=71000.0, peer="torch", theirs=10000.0, ratio=7.1),
                pairing.Row(RATE, ours=71000.0),
            ]
        )
        self.assertRegex(table, r"latency_us +lower +grpc +80 +100 +0\.800 +<= 1\.1 met")
        self.assertRegex(table, r"rate_per_s +higher +torch +71,000 +10,000 +7\.100 +>= 8 MISSED")
        self.assertIn("1 of 2 targets met.", table)

    def test_a_goal_is_one_for_ours_itself(self) -> None:
        figure = Figure("steps_per_s", Better.HIGHER, goal=100_000)
        rows = [
            pairing.Row(figure, ours=120_000),
            pairing.Row(figure, ours=99_000, peer="torch", theirs=1000, ratio=99),
        ]
        table = report.to_table(rows)
        self.assertRegex(table, r"steps_per_s +higher +- +120,000 +- +- +>= 100000 met")
        self.assertRegex(table, r"steps_per_s +higher +torch +99,000 +1,000 +99\.000 +>= 100000 MISSED")
        self.assertIn("1 of 2 targets met.", table)

    def test_the_table_of_ours_alone_speaks_of_no_targets(self) -> None:
        self.assertNotIn("targets met", report.to_table([pairing.Row(LATENCY, ours=1.0)]))


class CommandLineTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        suites = mock.patch.object(cli, "SUITES", {"rpc": SUITE})
        suites.start()
        self.addCleanup(suites.stop)
        self.ours = self.program_of("ours", {"latency_us": 10, "rate_per_s": 90})
        self.peers = {
            "grpc_raw": self.program_of("grpc_raw", {"latency_us": 20}),
            "torch_rl.py": self.program_of("torch_rl.py", {"slow_per_s": 10}),
        }

    def run_bench(self, *arguments: str) -> tuple[int, str, str]:
        """Status, stdout and stderr of `tools/bench rpc`, with scripts for ours and the peers."""

        def prepare(root: Path, build_dir: Path, program: PeerProgram, jobs: int) -> list[str]:
            if program.name not in self.peers:
                raise BenchError(f"{program.name} cannot be prepared")
            return [str(self.peers[program.name])]

        stdout, stderr = io.StringIO(), io.StringIO()
        with mock.patch.object(build, "prepare_peer", prepare):
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                try:
                    status = cli.main(["rpc", "--ours", str(self.ours), *arguments])
                except SystemExit as end:
                    status = int(end.code or 0)
        return status, stdout.getvalue(), stderr.getvalue()

    def test_without_peers_runs_ours_alone_five_times(self) -> None:
        status, stdout, _ = self.run_bench("--json")
        self.assertEqual(status, 0)
        self.assertEqual(
            [json.loads(line) for line in stdout.splitlines()],
            [{"figure": "latency_us", "ours": 10}, {"figure": "rate_per_s", "ours": 90}],
        )
        self.assertEqual(self.log(), ["ours --figures latency_us,rate_per_s"] * 5)

    def test_with_peers_alternates_and_turns_the_order_every_round(self) -> None:
        status, stdout, _ = self.run_bench("--peer", "--json", "--rounds", "2", "--quick")
        self.assertEqual(status, 0)
        self.assertEqual(
            self.log(),
            [
                "ours --figures latency_us --quick",
                "grpc_raw --figures latency_us --quick",
                "ours --figures rate_per_s --quick",
                "torch_rl.py --figures slow_per_s --quick",
                "torch_rl.py --figures slow_per_s --quick",
                "ours --figures rate_per_s --quick",
                "grpc_raw --figures latency_us --quick",
                "ours --figures latency_us --quick",
            ],
        )
        self.assertEqual(
            [json.loads(line) for line in stdout.splitlines()],
            [
                {"figure": "latency_us", "ours": 10, "peer": "grpc", "theirs": 20, "ratio": 0.5},
                {"figure": "rate_per_s", "ours": 90, "peer": "torch", "theirs": 10, "ratio": 9},
            ],
        )

    def test_compares_with_an_older_build_of_ours(self) -> None:
        older = self.program_of("older", {"latency_us": 5, "rate_per_s": 30})
        status, stdout, _ = self.run_bench("--before", str(older), "--json", "--rounds", "2")
        self.assertEqual(status, 0)
        both = "--figures latency_us,rate_per_s"
        self.assertEqual(self.log(), [f"{name} {both}" for name in ("ours", "older", "older", "ours")])
        self.assertEqual(
            [json.loads(line) for line in stdout.splitlines()],
            [
                {"figure": "latency_us", "ours": 10, "peer": "before", "theirs": 5, "ratio": 2},
                {"figure": "rate_per_s", "ours": 90, "peer": "before", "theirs": 30, "ratio": 3},
            ],
        )

    def test_measures_only_the_chosen_peers_and_figures(self) -> None:
        arguments = ("--peer=torch", "--figures", "rate_per_s", "--rounds", "1")
        status, stdout, _ = self.run_bench(*arguments)
        self.assertEqual(status, 0)
        self.assertIn("1 of 1 targets met.", stdout)
        self.assertEqual(len(self.log()), 2)

    def test_a_peer_that_fails_leaves_the_others_their_results(self) -> None:
        self.peers["grpc_raw"] = self.script(
            "broken", "import sys; sys.exit('no loopback on this host')"
        )
        status, stdout, stderr = self.run_bench("--peer", "--json")
        self.assertEqual(status, 1)
        (line,) = stdout.splitlines()
        self.assertEqual(json.loads(line)["peer"], "torch")
        self.assertIn("grpc_raw ended with exit status 1", stderr)
        self.assertIn("no loopback on this host", stderr)
        self.assertEqual(stderr.count("exit status 1"), 1)

    def test_a_peer_that_cannot_be_prepared_leaves_the_others_their_results(self) -> None:
        del self.peers["grpc_raw"]
        status, stdout, stderr = self.run_bench("--peer", "--json", "--rounds", "1")
        self.assertEqual(status, 1)
        (line,) = stdout.splitlines()
        self.assertEqual(json.loads(line)["peer"], "torch")
        self.assertIn("grpc_raw cannot be prepared", stderr)
        self.assertEqual(len(self.log()), 2)

    def test_a_peer_may_be_our_own_program(self) -> None:
        two = Figure("two_ms", Better.LOWER, targets={"local": 1.15}, counterparts={"local": "one_ms"})
        local = PeerProgram("local", figures=("one_ms",), packages=(), ours=True)
        suite = Suite("rpc", "a suite", "bench_rpc", (two,), (local,))
        self.ours = self.program_of("ours", {"one_ms": 100, "two_ms": 110})
        with mock.patch.dict(cli.SUITES.copy(), clear=True):
            with mock.patch.object(cli, "SUITES", {"rpc": suite}):
                status, stdout, _ = self.run_bench("--peer", "--json", "--rounds", "1")
        self.assertEqual(status, 0)
        self.assertEqual(json.loads(stdout)["ratio"], 1.1)
        self.assertEqual(self.log(), ["ours --figures two_ms", "ours --figures one_ms"])

    def test_draws_the_curves_where_it_is_told(self) -> None:
        name = "same_host_push_4096_GBps"
        figure = next(figure for figure in TENSORS.figures if figure.name == name)
        torch = PeerProgram("torch", figures=(name,), packages=(), script="torch_rl.py")
        suite = Suite("rpc", "a suite", "bench_rpc", (figure,), (torch,), chart="tensors.svg")
        self.ours = self.program_of("ours", {name: 9})
        self.peers["torch_rl.py"] = self.program_of("torch_rl.py", {name: 3})
        path = self.folder / "curves.svg"
        with mock.patch.object(cli, "SUITES", {"rpc": suite}):
            status, _, stderr = self.run_bench("--peer", "--svg", str(path), "--rounds", "1")
        self.assertEqual(status, 0)
        self.assertIn(str(path), stderr)
        self.assertIn("Sinew", path.read_text(encoding="utf-8"))

    def test_our_program_that_fails_fails_the_run(self) -> None:
        self.ours = self.script("broken", "import sys; sys.exit('cannot bind')")
        status, stdout, stderr = self.run_bench()
        self.assertEqual((status, stdout), (1, ""))
        self.assertRegex(stderr, "(?s)bench_rpc ended with exit status 1.*cannot bind")
        self.assertNotIn("round 2", stderr)

    def test_refuses_arguments_that_name_nothing(self) -> None:
        for arguments, sentence in (
            (("--peer=ray",), "'ray' is not a peer of rpc; its peers are grpc, torch"),
            (("--figures=a",), "'a' is not a figure of rpc; its figures are latency_us,"),
            (("--rounds=0",), "'0' is not a whole number above 0"),
            (("--timeout=soon",), "'soon' is not a whole number above 0"),
        ):
            with self.subTest(arguments=arguments):
                status, _, stderr = self.run_bench(*arguments)
                self.assertEqual(status, 2)
                self.assertIn(sentence, stderr)


if __name__ == "__main__":
    unittest.main()
