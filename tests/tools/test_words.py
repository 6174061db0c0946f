"""tools/words finds what it is there to find."""

import sys
import unittest

sys.dont_write_bytecode = True
import tree  # noqa: E402

WORDS = sys.argv.pop(1)


def check(files: dict) -> "tuple[int, list[str]]":
    status, output = tree.check(WORDS, files)
    return status, output.splitlines()[:-1]


class WordsTest(unittest.TestCase):
    def check_lines(self, files: dict, expected: "list[str]") -> None:
        """`expected`: how the lines begin, up to the word."""
        status, lines = check(files)
        self.assertEqual([line.partition(": say ")[0] for line in lines], expected)
        self.assertEqual(status, 1 if expected else 0)

    def test_says_where_what_and_what_instead(self) -> None:
        status, lines = check({"rpc/a.h": "int a;\n/// Nobody waits.\nint b;\n"})
        self.assertEqual(status, 1)
        self.assertEqual(lines, ["rpc/a.h:2: 'nobody': say no worker, no process, no thread, or 'is not' instead"])

    def test_each_word(self) -> None:
        words = ["whoever", "nobody", "somebody", "beside", "for ever", "has come", "have come", "is let in", "word of", "has a say"]
        for word in words:
            with self.subTest(word=word):
                self.check_lines({"docs/a.md": f"It says {word}: so.\n"}, [f"docs/a.md:1: '{word}'"])

    def test_whole_words_alone_in_any_case(self) -> None:
        self.check_lines({"docs/a.md": "besides, for everybody, and the password of a\n"}, [])
        self.check_lines({"docs/a.md": "WHOEVER; that is nobody's\n"}, ["docs/a.md:1: 'nobody'", "docs/a.md:1: 'whoever'"])

    def test_over_the_ends_of_lines(self) -> None:
        self.check_lines({"rpc/a.h": "  /// It is lost for\n  /// ever.\n"}, ["rpc/a.h:1: 'for ever'"])
        self.check_lines({"rpc/a.cc": 'f("it has "\n  "come");\n'}, ["rpc/a.cc:1: 'has come'"])
        self.check_lines({"docs/a.md": "which have\ncome\n"}, ["docs/a.md:1: 'have come'"])

    def test_comments_and_strings_but_no_code(self) -> None:
        self.check_lines({"rpc/a.cc": "int nobody = beside(kNobody);\n"}, [])
        self.check_lines({"rpc/a.cc": "int a = 0;  // nobody\n"}, ["rpc/a.cc:1: 'nobody'"])
        self.check_lines({"rpc/a.cc": "/* a\n   nobody */\n"}, ["rpc/a.cc:2: 'nobody'"])
        self.check_lines({"rpc/a.cc": 'f("a \\"nobody\\"");\n'}, ["rpc/a.cc:1: 'nobody'"])
        self.check_lines({"rpc/a.cc": 'f(R"(\nnobody)");\n'}, ["rpc/a.cc:2: 'nobody'"])
        # One text ends where code begins.
        self.check_lines({"rpc/a.cc": "// It is for\nint a;\n// ever.\n"}, [])

    def test_quotes_within_comments_and_characters(self) -> None:
        self.check_lines({"rpc/a.cc": "int a = 1'000;  // it's nobody\n"}, ["rpc/a.cc:1: 'nobody'"])
        self.check_lines({"rpc/a.cc": "f('\"', nobody, '\\'', \"//\", nobody);\n"}, [])

    def test_the_folders_that_are_looked_at(self) -> None:
        for name in ["sinew.h", "protos/sinew/a.proto", "optim/internal/a.cc", "README.md", "docs/adr/a.md", "tests/docker/README.md"]:
            with self.subTest(name=name):
                self.check_lines({name: "// nobody\n"}, [f"{name}:1: 'nobody'"])
        for name in ["tests/a.cc", "examples/a.cc", "rpc/CMakeLists.txt", "benchmarks/README.md"]:
            with self.subTest(name=name):
                self.check_lines({name: "// nobody\n"}, [])

    def test_comments_that_the_formatter_has_broken(self) -> None:
        self.check_lines({"rpc/a.h": "int a;\n  /// /// A text.\n"}, ["rpc/a.h:2: '/// ///'"])
        self.check_lines({"rpc/a.cc": "// // A text.\n"}, ["rpc/a.cc:1: '// //'"])
        # An example of code in a comment has comments of its own.
        self.check_lines({"rpc/a.h": "///     // so it goes\n///     f();  // or so\n/// https://a\n"}, [])

    def test_long_lines_of_documents(self) -> None:
        long = "a " * 71
        status, lines = check({"docs/a.md": f"short\n{long}\n"})
        self.assertEqual(status, 1)
        self.assertIn("docs/a.md:2: ", lines[0])
        self.assertIn("142", lines[0])
        self.check_lines({"docs/a.md": "a " * 70 + "\n"}, [])
        self.check_lines({"docs/a.md": f"| {long} |\n\n```\n{long}\n```\n\n~~~~ cpp\n{long}\n~~~\n{long}\n~~~~\n"}, [])
        self.check_lines({"rpc/a.h": f"// {long}\n"}, [])
        self.assertEqual(check({"docs/a.md": f"```\n```\n{long}\n"})[0], 1)


if __name__ == "__main__":
    unittest.main()
