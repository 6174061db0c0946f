"""tools/sizes finds what it is there to find."""

import sys
import unittest

sys.dont_write_bytecode = True
import tree  # noqa: E402

SIZES = sys.argv.pop(1)


def check(files: dict) -> "tuple[int, str]":
    """With files of so many lines, or with that text."""
    texts = {name: content if isinstance(content, str) else "x\n" * content for name, content in files.items()}
    return tree.check(SIZES, texts)


class SizesTest(unittest.TestCase):
    def test_headers_and_sources_at_their_limits(self) -> None:
        status, output = check({"a.h": 300, "rpc/b.cc": 600, "tests/c.py": 600, "CMakeLists.txt": 600})
        self.assertEqual((status, output), (0, "sizes: 0 files that must not be as they are\n"))

    def test_files_beyond_them(self) -> None:
        for name, lines in (("a.h", 301), ("rpc/b.cc", 601), ("tests/c.py", 601), ("x/CMakeLists.txt", 601)):
            with self.subTest(name=name):
                status, output = check({name: lines})
                self.assertEqual(status, 1)
                self.assertIn(f"{name}: {lines} lines; split it along its subjects", output)

    def test_scripts_by_their_first_line(self) -> None:
        status, output = check({"tools/run": "#!/bin/sh\n" + "x\n" * 600})
        self.assertEqual(status, 1, output)
        self.assertIn("tools/run: 601 lines", output)

    def test_documents_data_and_what_is_built_may_be_long(self) -> None:
        status, output = check({"README.md": 900, "a.svg": 900, "build/dev/a.cc": 900, "LICENSE": 900})
        self.assertEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
