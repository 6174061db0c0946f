#!/usr/bin/python3
"""Tests of what `tools/bench tensors` has of its own: the suite, the figures of UCX, and the curves."""

from __future__ import annotations

import math
import re
import unittest
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

# First: it makes the driver and the peers known.
from script_test import ROOT, ScriptTest  # isort: skip

import tensor_figures
import ucx_tensors
from benchlib import chart, pairing, tensor_chart
from benchlib.errors import BenchError
from benchlib.suites import TENSOR_BYTES, TENSORS, tensor_figure
from peer_options import Options


class TensorSuiteTest(unittest.TestCase):
    def targets(self, *parts: object) -> dict[str, float]:
        (figure,) = [f for f in TENSORS.figures if f.name == tensor_figure(*parts)]
        return dict(figure.targets)

    def figures_of(self, peer: str) -> tuple[str, ...]:
        (program,) = [program for program in TENSORS.programs if program.peer == peer]
        return program.figures

    def test_has_targets_from_the_size_on_where_they_begin(self) -> None:
        for direction in ("push", "pull"):
            self.assertEqual(self.targets("same_host", direction, 65536), {})
            at_1_mib = self.targets("same_host", direction, 1048576)
            self.assertEqual(at_1_mib, {"torch": 2.5, "limit": 0.6})
            self.assertEqual(self.targets("same_host", direction, 1073741824), at_1_mib)
            self.assertEqual(self.targets("network", direction, 4096), {})
            self.assertEqual(self.targets("network", direction, 65536), {"torch": 1.5})
            self.assertEqual(self.targets("network", direction, 1048576), {"torch": 2})

    def test_measures_the_same_sizes_in_every_language(self) -> None:
        header = (ROOT / "benchmarks" / "tensor_transfers.h").read_text(encoding="utf-8")
        listed = re.search(r"kTensorBytes = \{([^}]*)\}", header)
        assert listed is not None
        sizes = tuple(int(size) for size in listed.group(1).split(","))
        self.assertEqual(sizes, TENSOR_BYTES)
        self.assertEqual(tensor_figures.BYTES, TENSOR_BYTES)
        self.assertEqual(
            tensor_figures.figure_name("network", "pull", 4096),
            tensor_figure("network", "pull", 4096),
        )

    def test_leaves_out_what_a_peer_cannot_carry(self) -> None:
        everything = {
            figure.name for figure in TENSORS.figures if not figure.name.startswith("tls_")
        }
        self.assertEqual(set(self.figures_of("torch")), everything)
        lacking = everything - set(self.figures_of("capnp"))
        self.assertEqual({name.split("_")[-2] for name in lacking}, {"1073741824"})
        lacking = everything - set(self.figures_of("ucx"))
        self.assertTrue(lacking and all(name.startswith("network_pull_") for name in lacking))

    def test_compares_tls_with_the_same_without_and_nothing_else(self) -> None:
        for figure in TENSORS.figures:
            without = figure.counterpart("no-tls")
            if figure.name.startswith("tls_"):
                self.assertEqual(without, figure.name.replace("tls_", "network_"))
                self.assertIn(without, self.figures_of("no-tls"))
                self.assertEqual(figure.counterpart("torch"), "")
            else:
                self.assertEqual(without, "")
                self.assertEqual(figure.counterpart("torch"), figure.name)

    def test_asks_ucx_for_what_its_script_measures(self) -> None:
        self.assertEqual(set(self.figures_of("ucx")), set(ucx_tensors.FIGURES))

    def test_times_fewer_of_the_large_ones(self) -> None:
        options = Options((), quick=False)
        counts = [tensor_figures.timed_transfers(options, size) for size in TENSOR_BYTES]
        self.assertEqual(counts, [10000, 10000, 2048, 128, 16, 3])


class UcxTest(ScriptTest):
    OUTPUT = (
        "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
        "   8,142083.074,inf,178533.018,0.00,716.95,0,6\n"
    )

    def test_reads_the_bandwidth_over_all_iterations_in_mebibytes(self) -> None:
        self.assertAlmostEqual(ucx_tensors.parse_gbps(self.OUTPUT), 716.95 * 1048576 / 1e9)

    def test_passes_over_what_stands_around_it(self) -> None:
        noise = "[1795311152.030219] UCX  WARN  something\n"
        self.assertAlmostEqual(
            ucx_tensors.parse_gbps(noise + self.OUTPUT + noise), 716.95 * 1048576 / 1e9
        )

    def test_says_what_was_printed_instead(self) -> None:
        header = self.OUTPUT.splitlines()[0]
        for output in ("", "connection refused", header, f"{header}\nnothing", f"{header}\n1,2"):
            with self.subTest(output=output):
                with self.assertRaisesRegex(ucx_tensors.PerftestError, "printed no bandwidth"):
                    ucx_tensors.parse_gbps(output)

    def perftest(self, client: str) -> mock._patch:
        """A stand-in: listens as the server, and does `client` where a host is named."""
        path = self.script(
            "perftest",
            f"""
            import os, socket, sys, time
            arguments = sys.argv[1:]
            port = int(arguments[arguments.index("-p") + 1])
            if arguments[0] != "127.0.0.1":
                listener = socket.socket()
                listener.bind(("127.0.0.1", port))
                listener.listen()
                time.sleep(600)
            {client}
            """,
        )
        return mock.patch.object(ucx_tensors, "PERFTEST", str(path))

    def test_runs_a_server_and_a_client_with_the_plane_and_test_of_the_figure(self) -> None:
        log = str(self.folder / "log")
        client = (
            f"print(' '.join([os.environ.get('UCX_TLS', 'any'), *arguments[3:]]), "
            f"file=open({log!r}, 'a')); print({self.OUTPUT!r})"
        )
        with self.perftest(client):
            value = ucx_tensors.run_perftest("network", "push", 4096, 20)
            ucx_tensors.run_perftest("same_host", "pull", 65536, 5)
        self.assertAlmostEqual(value, 716.95 * 1048576 / 1e9)
        self.assertEqual(
            self.log(),
            [
                "tcp -t tag_bw -s 4096 -n 20 -w 3 -f -v",
                "any -t ucp_get -s 65536 -n 5 -w 1 -f -v",
            ],
        )

    def test_quotes_a_client_that_failed(self) -> None:
        with self.perftest("sys.exit('no such transport')"):
            with self.assertRaisesRegex(ucx_tensors.PerftestError, "status 1: no such transport"):
                ucx_tensors.run_perftest("same_host", "push", 4096, 20)

    def test_does_not_wait_for_a_server_that_has_ended(self) -> None:
        path = self.script("ends", "import sys; sys.exit(7)")
        with mock.patch.object(ucx_tensors, "PERFTEST", str(path)):
            with self.assertRaisesRegex(ucx_tensors.PerftestError, "ended with status 7"):
                ucx_tensors.run_perftest("same_host", "push", 4096, 20)


class ChartTest(unittest.TestCase):
    SVG = "{http://www.w3.org/2000/svg}"

    def draw(self, curves: chart.Curves, panels: int = 1) -> ElementTree.Element:
        drawn = chart.draw([chart.Panel(f"panel {i}", curves) for i in range(panels)], "a <chart>")
        return ElementTree.fromstring(drawn)

    def points(self, svg: ElementTree.Element, system: int) -> list[tuple[float, float]]:
        """Of the first curve of a system, in pixels."""
        group = next(g for g in svg.iter(f"{self.SVG}g") if g.get("class") == f"s{system}")
        (line,) = group.findall(f"{self.SVG}polyline")
        return [
            (float(x), float(y))
            for x, y in (point.split(",") for point in line.get("points", "").split())
        ]

    def texts(self, svg: ElementTree.Element) -> list[str]:
        return [text.text or "" for text in svg.iter(f"{self.SVG}text")]

    def test_places_values_by_their_logarithms(self) -> None:
        svg = self.draw({"ours": [(4096, 0.1), (65536, 1), (1048576, 10)]})
        (x1, y1), (x2, y2), (x3, y3) = self.points(svg, 0)
        self.assertAlmostEqual(x2 - x1, x3 - x2, delta=0.2)
        self.assertAlmostEqual(y2 - y1, y3 - y2, delta=0.2)
        self.assertLess(x1, x2)
        self.assertGreater(y1, y2)  # pixels count downwards

    def test_sorts_the_points_of_a_curve(self) -> None:
        sorted_points = self.points(self.draw({"a": [(1024, 1), (2048, 2), (4096, 3)]}), 0)
        mixed_points = self.points(self.draw({"a": [(4096, 3), (1024, 1), (2048, 2)]}), 0)
        self.assertEqual(mixed_points, sorted_points)

    def test_uses_the_same_axes_in_all_panels(self) -> None:
        low = chart.Panel("low", {"a": [(1024, 0.1)]})
        high = chart.Panel("high", {"a": [(4096, 50)]})
        svg = ElementTree.fromstring(chart.draw([low, high], ""))
        self.assertEqual([text for text in self.texts(svg) if text == "0.1"], ["0.1", "0.1"])
        self.assertEqual([text for text in self.texts(svg) if text == "100"], ["100", "100"])

    def test_names_systems_once_and_sizes_and_titles_in_each_panel(self) -> None:
        texts = self.texts(self.draw({"ours": [(4096, 1)], "a<b": [(2**30, 2)]}, panels=2))
        self.assertEqual(texts.count("ours"), 1)
        self.assertEqual(texts.count("a<b"), 1)
        self.assertEqual(texts.count("4 KiB"), 2)
        self.assertEqual(texts.count("1 GiB"), 2)
        self.assertIn("panel 1", texts)

    def test_has_a_ground_and_colours_for_light_and_for_dark(self) -> None:
        svg = self.draw({"ours": [(4096, 1)], "torch": [(4096, 2)]})
        style = svg.find(f"{self.SVG}style")
        assert style is not None and style.text is not None
        light, dark = style.text.split("@media (prefers-color-scheme:dark)")
        for rule in ("text{fill:", ".ground{fill:", ".s0 .line{stroke:", ".s1 .dot{fill:"):
            self.assertIn(rule, light)
            self.assertIn(rule, dark)
        ground = svg.find(f"{self.SVG}rect")
        assert ground is not None
        for side in ("width", "height"):
            self.assertEqual(ground.get(side), svg.get(side))

    def test_draws_one_value_too(self) -> None:
        ((x, y),) = self.points(self.draw({"ours": [(4096, 1)]}), 0)
        self.assertTrue(math.isfinite(x) and math.isfinite(y))

    def test_refuses_what_has_no_logarithm(self) -> None:
        for point in ((0, 1), (1, 0), (1, -1), (1, math.nan), (1, math.inf)):
            with self.subTest(point=point), self.assertRaisesRegex(ValueError, "above 0"):
                self.draw({"ours": [point]})

    def test_refuses_to_draw_nothing(self) -> None:
        with self.assertRaisesRegex(ValueError, "no figures"):
            chart.draw([], "")

    def test_finds_the_powers_around_values(self) -> None:
        self.assertEqual(chart.powers_around(10, [0.02, 30]), (0.01, 100))
        self.assertEqual(chart.powers_around(10, [0.1, 10]), (0.1, 10))
        self.assertEqual(chart.powers_around(2, [4096]), (4096, 8192))


class TensorChartTest(unittest.TestCase):
    def row(self, figure: str, peer: str, ours: float, theirs: float) -> pairing.Row:
        (of_suite,) = [f for f in TENSORS.figures if f.name == figure]
        return pairing.Row(of_suite, ours, peer, theirs, ours / theirs)

    def test_has_a_panel_for_each_plane_and_direction_that_was_measured(self) -> None:
        panels = tensor_chart.panels_of(
            [
                self.row("same_host_push_4096_GBps", "torch", 3, 1),
                self.row("same_host_push_65536_GBps", "torch", 6, 2),
                self.row("network_pull_4096_GBps", "torch", 2, 1),
            ]
        )
        self.assertEqual(len(panels), 2)
        self.assertEqual(
            dict(panels[0].curves),
            {"Sinew": [(4096, 3), (65536, 6)], "torch": [(4096, 1), (65536, 2)]},
        )

    def test_draws_ours_once_at_the_median_of_what_was_measured_beside_each_peer(self) -> None:
        name = "same_host_push_4096_GBps"
        beside = {"torch": (3, 1), "grpc": (5, 1), "ucx": (4, 9)}
        rows = [self.row(name, peer, *values) for peer, values in beside.items()]
        (panel,) = tensor_chart.panels_of(rows)
        self.assertEqual(panel.curves["Sinew"], [(4096, 4)])
        self.assertEqual(panel.curves["UCX"], [(4096, 9)])

    def test_names_a_file_that_cannot_be_written(self) -> None:
        row = self.row("same_host_push_4096_GBps", "torch", 3, 1)
        with self.assertRaisesRegex(BenchError, "No such file .*absent"):
            tensor_chart.write([row], Path("/absent/tensors.svg"))

    def test_the_chart_of_the_readme_was_drawn_by_this(self) -> None:
        svg = ElementTree.parse(ROOT / TENSORS.chart).getroot()
        texts = {text.text for text in svg.iter(f"{ChartTest.SVG}text")}
        self.assertLessEqual({"Sinew", "torch", "gRPC", "kernel limit", "1 GiB"}, texts)
        self.assertIn(TENSORS.chart, (ROOT / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
