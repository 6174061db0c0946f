"""Prints the rows: a table for people, or a line of JSON each for programs."""

from __future__ import annotations

import json
from typing import Sequence

from benchlib.pairing import Row
from benchlib.figures import Better

_HEADINGS = ("figure", "better", "peer", "ours", "theirs", "ours/theirs", "target")


def to_json_line(row: Row) -> str:
    entry: dict[str, object] = {"figure": row.figure.name, "ours": row.ours}
    if row.peer:
        entry.update(peer=row.peer, theirs=row.theirs, ratio=row.ratio)
    return json.dumps(entry)


def format_value(value: float | None) -> str:
    """Four significant digits, and never an exponent."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def format_target(row: Row) -> str:
    if row.target is None:
        return "-"
    sign = "<=" if row.figure.better is Better.LOWER else ">="
    return f"{sign} {row.target:g} {'met' if row.target_met else 'MISSED'}"


def to_table(rows: Sequence[Row]) -> str:
    """A table with a column for each heading, and a sentence on the targets below it."""
    cells = [_HEADINGS] + [
        (
            row.figure.name,
            row.figure.better.value,
            row.peer or "-",
            format_value(row.ours),
            format_value(row.theirs),
            "-" if row.ratio is None else f"{row.ratio:.3f}",
            format_target(row),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    table = "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells
    )
    verdicts = [row.target_met for row in rows if row.target_met is not None]
    if not verdicts:
        return table
    return f"{table}\n\n{sum(verdicts)} of {len(verdicts)} targets met."
