#!/usr/bin/env python3
"""Makes a source of the samples in the comments of headers, for the compiler to check.

  samples.py --root DIR --prelude HEADER --output FILE HEADER...

A sample is a run of comment lines with five spaces or more between /// and the code, behind an empty comment line or one
that ends with a colon. A run that ends within braces goes on behind an empty comment line. Lines that are only ... count
for nothing.

Declarations stand at global scope, statements in a function. What both take for granted is in the prelude: `app` is
the program that they are part of. Each header has an `app` of its own above that one, app_FOLDER_HEADER, so that it can
declare what the prelude declares too.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from pathlib import Path

# By header and first line: why it is not compiled.
EXCEPTIONS = {
    ("rpc/wire/codec_traits.h", "static void encode(ValueWriter& writer, const T& value);"): "members without their class",
}

COMMENT = re.compile(r"\s*///( *)(.*)")
SPACES = 5
# How a sample that stands at global scope begins: also with a function that has a parameter.
DECLARATION = re.compile(r"(namespace|class|struct|template)\b|[\w:<>]+ \w+\([^()]*[\w>&*] \w+[^()]*\)( {|;)")
# What it has otherwise.
MACRO = re.compile(r"\s*SINEW_\w+\(")


class SampleError(Exception):
    """A header or the list of exceptions is not as it must be."""


@dataclasses.dataclass
class Sample:
    header: str
    # Of its first line in the header.
    line: int
    # With blanks in the place of the comment's signs, so that columns are those of the header.
    code: list[str]

    @property
    def first(self) -> str:
        return self.code[0].strip()

    def is_declaration(self) -> bool:
        return DECLARATION.match(self.first) is not None or any(MACRO.match(line) for line in self.code)

    def is_open(self) -> bool:
        text = "".join(self.code)
        return text.count("{") > text.count("}")


def find_samples(header: str, text: str) -> list[Sample]:
    samples: list[Sample] = []
    # Of the lines above: the sample that may go on, and whether one may begin.
    current: Sample | None = None
    behind_empty = behind_colon = False
    for number, line in enumerate(text.splitlines(), 1):
        comment = COMMENT.match(line)
        spaces, said = (len(comment[1]), comment[2]) if comment else (0, "")
        code = " " * (len(line) - len(said)) + said
        if comment and current and (spaces >= SPACES or (not said and current.is_open())):
            current.code.append("" if said == "..." else code)
        elif spaces >= SPACES and (behind_empty or behind_colon):
            current = Sample(header, number, [code])
            samples.append(current)
        elif spaces > 1 and behind_empty:
            raise SampleError(f"{header}:{number}: a sample has {SPACES} spaces before its code, other lines have one")
        else:
            current = None
        behind_empty = comment is not None and not said
        behind_colon = comment is not None and said.endswith(":")
    return samples


def leave_out(samples: list[Sample], exceptions: dict[tuple[str, str], str], root: Path) -> list[Sample]:
    """Those that are compiled. Refuses exceptions of files that are none, and those without a sample."""
    headers = {sample.header for sample in samples}
    for header, first in exceptions:
        if not (root / header).is_file():
            raise SampleError(f"EXCEPTIONS: there is no {header}")
        if header in headers and not any((sample.header, sample.first) == (header, first) for sample in samples):
            raise SampleError(f"EXCEPTIONS: {header} has no sample that begins with {first}")
    return [sample for sample in samples if (sample.header, sample.first) not in exceptions]


def name_of(header: str) -> str:
    return re.sub(r"\W", "_", header.removesuffix(".h"))


def write_source(samples: list[Sample], prelude: str, root: Path) -> str:
    by_header: dict[str, list[Sample]] = {}
    for sample in samples:
        by_header.setdefault(sample.header, []).append(sample)
    lines = [f'#include "sinew/{header}"' for header in by_header]
    lines.append(f'#include "{prelude}"')
    for header, of_header in by_header.items():
        own = f"app_{name_of(header)}"
        lines += ["", f"namespace {own} {{", "using namespace app;", "}", f"#define app {own}"]
        for sample in of_header:
            code = [f'#line {sample.line} "{root / header}"', *sample.code]
            if not sample.is_declaration():
                folder = Path(header).parts[0]
                before = f"namespace samples::{folder} {{ void {name_of(header)}_{sample.line}() {{"
                code = [before, *code, "}", "}"]
            lines += code
        lines.append("#undef app")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="of the source tree")
    parser.add_argument("--prelude", required=True, help="as sources include it")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("headers", nargs="+", type=Path)
    options = parser.parse_args()
    try:
        found: list[Sample] = []
        for header in sorted(options.headers):
            found += find_samples(header.relative_to(options.root).as_posix(), header.read_text(encoding="utf-8"))
        samples = leave_out(found, EXCEPTIONS, options.root)
    except SampleError as error:
        print(f"samples: {error}", file=sys.stderr)
        return 1
    options.output.write_text(write_source(samples, options.prelude, options.root), encoding="utf-8")
    print(f"samples: {len(samples)} samples, {len(found) - len(samples)} left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
