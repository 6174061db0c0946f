"""The manual pages say what the programs' --help does. Arguments: the folder of the pages, the programs, `--`, then those of
unittest.

Every flag, command and default of --help must stand in the page, and every flag of the page in --help.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

PAGES = Path(sys.argv[1])
END = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
PROGRAMS = [Path(program) for program in sys.argv[2:END]]
del sys.argv[1 : END + 1]

# A line of --help: names, what the value is, and its default.
FLAG = re.compile(r"^  (-[\w-]+(?:,-[\w-]+)*)(?: +[A-Z]+(?::.*?\])?=(\S+))?", re.MULTILINE)
COMMAND = re.compile(r"^  ([a-z][\w-]*)  ", re.MULTILINE)


def helps_of(program: Path, *commands: str) -> dict[tuple[str, ...], str]:
    """What it says to --help, and its commands do; by their words."""
    ended = subprocess.run([program, *commands, "--help"], capture_output=True, text=True, timeout=120, check=True)
    found = {commands: ended.stdout}
    for name in COMMAND.findall(ended.stdout.partition("Subcommands:\n")[2]):
        found.update(helps_of(program, *commands, name))
    return found


def flags_in(help_text: str) -> list[tuple[list[str], str]]:
    """Each with all of its names, and its default, if it has one."""
    return [(names.split(","), default) for names, default in FLAG.findall(help_text)]


def flags_of(mdoc: str) -> set[str]:
    return {f"-{name}" for name in re.findall(r"\bFl (-?\w[\w-]*)", mdoc)}


def entries_of(page: str, section: str) -> list[str]:
    """Those of the lists of a section: each begins with its tag."""
    text = page.partition(f".Sh {section}\n")[2].partition("\n.Sh ")[0]
    return re.split(r"^\.It ", re.sub(r"^\.El\n", ".It ", text, flags=re.MULTILINE), flags=re.MULTILINE)[1:]


class Manual(unittest.TestCase):
    def check_flags(self, page: str, words: tuple[str, ...], help_text: str) -> None:
        entries = entries_of(page, "OPTIONS")
        for names, default in flags_in(help_text):
            with self.subTest(words=words, flag=names[-1]):
                said = [entry for entry in entries if set(names) <= flags_of(entry.partition("\n")[0])]
                self.assertTrue(said, f"the page has no entry of {', '.join(names)}")
                if default:
                    words_of = [re.split(r"[\s;,]+", entry) for entry in said]
                    self.assertTrue(any(default in each for each in words_of), f"the page lacks the default {default}")

    def test_pages_and_help_say_the_same(self) -> None:
        for program in PROGRAMS:
            page = (PAGES / f"{program.name}.1").read_text(encoding="utf-8")
            helps = helps_of(program)
            for words, text in helps.items():
                self.assertTrue(flags_in(text))
                self.check_flags(page, words, text)
                if words:
                    with self.subTest(command=words):
                        # Those that only have commands of their own need no entry.
                        has_commands = any(other[:-1] == words for other in helps)
                        tags = [entry.removeprefix("Xo\n.") for entry in entries_of(page, "DESCRIPTION")]
                        self.assertTrue(has_commands or any(re.match(rf"Cm {' '.join(words)}\b(?!-)", tag) for tag in tags))
            known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", "\n".join(helps.values())))
            self.assertEqual(flags_of(page) - known, set(), f"{program.name} does not know these")

    def test_pages_tell_of_no_other_commands(self) -> None:
        for program in PROGRAMS:
            page = (PAGES / f"{program.name}.1").read_text(encoding="utf-8")
            known = {" ".join(words) for words in helps_of(program)}
            for entry in entries_of(page, "DESCRIPTION"):
                words = re.match(r"(?:Xo\n\.)?Cm ((?:[a-z][\w-]* ?)+)", entry)
                with self.subTest(program=program.name, entry=entry.partition("\n")[0]):
                    self.assertTrue(words and words[1].strip() in known)

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not here")
    def test_mandoc_finds_nothing(self) -> None:
        for program in PROGRAMS:
            ended = subprocess.run(["mandoc", "-Tlint", "-Wwarning", PAGES / f"{program.name}.1"],
                                   capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual((ended.returncode, ended.stdout + ended.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
