"""docs/tutorials.md names files and headings that are there, and flags that their programs take.

usage: test_tutorials.py SOURCE_TREE [unittest arguments]
"""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

TREE = Path(sys.argv.pop(1)).absolute()
PAGE = TREE / "docs" / "tutorials.md"

# Where a program says which flags it has.
OPTIONS = {
    name: TREE / file
    for name, file in {
        "sinew-run": "launch/run/run_options.cc",
        "rl_agent": "examples/rl/options.cc",
        "rl_observer": "examples/rl/observer_main.cc",
        "rl_spawn": "examples/rl/spawn_main.cc",
        **{
            name: f"examples/{name}/options.cc"
            for name in ("basics", "batch_ps", "ddp_rpc", "image_classifier", "mnist_sgd", "pipeline", "ps_rnn")
        },
    }.items()
}
# Flags that several programs share come by these functions of examples/common.
SHARED = {
    "add_seed(": "flags.h",
    "add_device_flag(": "device_flag.h",
    "add_rank_flags(": "rank_options.h",
}
# PyTorch's own flags, which stand in the left column, are not checked.
RIGHT_CELL = re.compile(r"^\|.*?\|(.*)\|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)]+)\)")


def flags_of(program: str) -> set[str]:
    source = OPTIONS[program].read_text()
    texts = [source] + [(TREE / "examples/common" / file).read_text() for call, file in SHARED.items() if call in source]
    flags = {flag for text in texts for quoted in re.findall(r'"(-[^" ]*)"', text) for flag in quoted.split(",")}
    return flags | ({"--config"} if "add_yaml_config(" in source else set())


def commands_in(page: str) -> list[tuple[str, str]]:
    """Each flag with the program that it is listed with, the last one before it in its piece of code; '' if there is none."""
    found = []
    for cell in RIGHT_CELL.findall(page):
        for code in CODE.findall(cell):
            program = ""
            for word in code.split():
                if word in OPTIONS:
                    program = word
                elif word.startswith("--"):
                    found.append((program, word.split("=")[0]))
    return found


def headings_of(file: Path) -> set[str]:
    """As links name them."""
    lines = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


class TutorialsTest(unittest.TestCase):
    def test_files_and_headings_are_there(self) -> None:
        links = LINK.findall(PAGE.read_text())
        self.assertGreater(len(links), 40)
        for link in links:
            with self.subTest(link=link):
                name, _, heading = link.partition("#")
                file = (PAGE.parent / name).resolve()
                self.assertTrue(file.is_file())
                if heading:
                    self.assertIn(heading, headings_of(file))

    def test_programs_take_the_flags(self) -> None:
        commands = commands_in(PAGE.read_text())
        self.assertGreater(len(commands), 40)
        for program, flag in commands:
            with self.subTest(program=program, flag=flag):
                self.assertIn(program, OPTIONS)
                self.assertIn(flag, flags_of(program))

    def test_it_finds_what_is_wrong(self) -> None:
        page = "| `--theirs` | `sinew-run --nproc 2 mnist_sgd --lr 1 --width=3` and `--lonely` |\n"
        self.assertEqual(
            commands_in(page),
            [("sinew-run", "--nproc"), ("mnist_sgd", "--lr"), ("mnist_sgd", "--width"), ("", "--lonely")],
        )
        self.assertNotIn("--width", flags_of("mnist_sgd"))
        self.assertLessEqual({"--lr", "--device", "--nproc", "--seed"}, flags_of("mnist_sgd"))
        self.assertNotIn("--device", flags_of("basics"))


if __name__ == "__main__":
    unittest.main()
