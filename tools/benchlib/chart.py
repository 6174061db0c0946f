"""Draws measured curves as an SVG file: size against GB/s on log axes, a line for each system."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping, Sequence
from xml.sax.saxutils import escape

# System to its points (bytes, GB/s). Points of a system need not be sorted.
Curves = Mapping[str, Sequence[tuple[float, float]]]

PANEL_WIDTH, PANEL_HEIGHT = 430, 270
MARGIN_LEFT, MARGIN_TOP, MARGIN_RIGHT, MARGIN_BOTTOM = 58, 34, 16, 44
LEGEND_HEIGHT = 34
LEGEND_ENTRY_WIDTH = 125

# On light ground, on dark ground, and the dashes of the line, so that colour is not needed. Told
# apart by people who see no red or no green too (Okabe and Ito's palette, lightened for the dark).
_STYLES = (
    ("#0072b2", "#56b4e9", ""),
    ("#d55e00", "#ff9b57", "7 3"),
    ("#009e73", "#3ddbaa", "2 3"),
    ("#b0578d", "#e7a1ca", "9 3 2 3"),
    ("#8a6d00", "#e8c94a", "5 2 1 2 1 2"),
    ("#444444", "#c8c8c8", "1 2"),
)


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    curves: Curves


@dataclass(frozen=True)
class _Scale:
    """Maps a value to a position, by its logarithm."""

    low: float
    high: float
    at_low: float
    at_high: float

    def place(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.at_low + part * (self.at_high - self.at_low)


def format_bytes(size: float) -> str:
    """`4 KiB`, `1 MiB`: sizes here are powers of two."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):g} {unit}"
    return f"{size:g} B"


def powers_around(base: float, values: Sequence[float]) -> tuple[float, float]:
    """The next power of `base` below all values, and the next one above; never the same."""
    low = math.floor(math.log(min(values), base) + 1e-9)
    high = math.ceil(math.log(max(values), base) - 1e-9)
    return base**low, base ** max(high, low + 1)


def draw(panels: Sequence[Panel], caption: str) -> str:
    """The text of an SVG with the panels in two columns, all on the same axes, and one legend.

    Raises ValueError when there is nothing to draw, or a value that has no logarithm.
    """
    points = [point for panel in panels for curve in panel.curves.values() for point in curve]
    if not points:
        raise ValueError("there are no figures to draw")
    if any(not math.isfinite(v) or v <= 0 for point in points for v in point):
        raise ValueError("only values above 0 fit on a log axis")
    sizes = powers_around(2, [size for size, _ in points])
    speeds = powers_around(10, [speed for _, speed in points])
    systems = list(dict.fromkeys(name for panel in panels for name in panel.curves))

    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    width, height = columns * PANEL_WIDTH, rows * PANEL_HEIGHT + LEGEND_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(caption)}</title>",
        _style_sheet(len(systems)),
        f'<rect class="ground" width="{width}" height="{height}"/>',
    ]
    for place, panel in enumerate(panels):
        left = place % columns * PANEL_WIDTH
        top = place // columns * PANEL_HEIGHT
        lines += _draw_panel(panel, left, top, sizes, speeds, systems)
    lines += _draw_legend(systems, width, rows * PANEL_HEIGHT)
    return "\n".join([*lines, "</svg>", ""])


def _style_sheet(systems: int) -> str:
    # No CSS variables: viewers other than browsers don't know them.
    styles = [_STYLES[place % len(_STYLES)] for place in range(systems)]
    dashes = "".join(
        f".s{place} .line{{stroke-dasharray:{dash}}}"
        for place, (_, _, dash) in enumerate(styles)
        if dash
    )
    light = _colours("#1f2328", "#d8dee4", "#ffffff", [style[0] for style in styles])
    dark = _colours("#e6edf3", "#373e47", "#0d1117", [style[1] for style in styles])
    return (
        "<style>text{font:12px sans-serif}.title{font-weight:bold}.grid{stroke-width:1}"
        f".line{{fill:none;stroke-width:2}}{dashes}{light}"
        f"@media (prefers-color-scheme:dark){{{dark}}}</style>"
    )


def _colours(ink: str, faint: str, ground: str, systems: Sequence[str]) -> str:
    lines = "".join(
        f".s{place} .line{{stroke:{colour}}}.s{place} .dot{{fill:{colour}}}"
        for place, colour in enumerate(systems)
    )
    return f"text{{fill:{ink}}}.grid{{stroke:{faint}}}.ground{{fill:{ground}}}{lines}"


def _draw_panel(
    panel: Panel,
    left: float,
    top: float,
    sizes: tuple[float, float],
    speeds: tuple[float, float],
    systems: Sequence[str],
) -> list[str]:
    x_axis = _Scale(*sizes, left + MARGIN_LEFT, left + PANEL_WIDTH - MARGIN_RIGHT)
    y_axis = _Scale(*speeds, top + PANEL_HEIGHT - MARGIN_BOTTOM, top + MARGIN_TOP)
    lines = [
        _text(left + 6, top + 20, "GB/s", "start"),
        _text(x_axis.at_low, top + 20, panel.title, "start", "title"),
    ]

    speed = speeds[0]
    while speed <= speeds[1] * 1.001:
        y = y_axis.place(speed)
        lines.append(_grid(x_axis.at_low, y, x_axis.at_high, y))
        lines.append(_text(x_axis.at_low - 6, y + 4, f"{speed:g}", "end"))
        speed *= 10

    for size in dict.fromkeys(s for curve in panel.curves.values() for s, _ in sorted(curve)):
        x = x_axis.place(size)
        lines.append(_grid(x, y_axis.at_low, x, y_axis.at_high))
        lines.append(_text(x, y_axis.at_low + 18, format_bytes(size), "middle"))

    for name, curve in panel.curves.items():
        places = [(x_axis.place(size), y_axis.place(speed)) for size, speed in sorted(curve)]
        lines.append(f'<g class="s{systems.index(name)}">')
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        lines.append(f'<polyline class="line" points="{path}"/>')
        lines += [f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in places]
        lines.append("</g>")
    return lines


def _draw_legend(systems: Sequence[str], width: float, top: float) -> list[str]:
    step = min(LEGEND_ENTRY_WIDTH, width / max(len(systems), 1))
    left = (width - step * len(systems)) / 2
    lines = []
    for place, name in enumerate(systems):
        x, y = left + place * step + 10, top + LEGEND_HEIGHT / 2
        lines.append(f'<g class="s{place}">')
        lines.append(f'<polyline class="line" points="{x:.1f},{y:.1f} {x + 28:.1f},{y:.1f}"/>')
        lines.append(f'<circle class="dot" cx="{x + 14:.1f}" cy="{y:.1f}" r="2.5"/></g>')
        lines.append(_text(x + 34, y + 4, name, "start"))
    return lines


def _grid(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{of_kind}>{escape(text)}</text>'
