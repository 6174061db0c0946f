"""check_errors refuses what it is there to refuse, whichever compiler speaks.

  test_check_errors.py CHECK_ERRORS COMPILER...
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK_ERRORS = sys.argv.pop(1)
COMPILERS = sys.argv[1:]
del sys.argv[1:]

# As Sinew's headers refuse: in a template, in one that another calls, in one that others wait for to know its type, and in
# macros.
HEADER = """
template <class T>
int small() {
  static_assert(sizeof(T) < 3, "Tiny: too large");
  static_assert(sizeof(T) < 2, "Tiny: still too large");
  return T::kNothing;
}
template <class T>
int outer() { return small<T>(); }
template <class T>
auto eager() { return small<T>(); }
template <int N>
struct Noisy : Noisy<N - 1> { static_assert(N < 0, "Tiny: noise"); };
template <>
struct Noisy<-1> {};
#define TINY_NAME(name) TINY_NAME_(name)
#define TINY_NAME_(name) static_assert(sizeof(name) < 3, "Tiny: " #name " is too large"); int name##_too = name
"""


def check(compiler: str, source: str, header: str = HEADER) -> "tuple[int, str]":
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tiny.h").write_text(header)
        file = Path(folder) / "family.cc"
        file.write_text('#include "tiny.h"\n' + source)
        command = [sys.executable, CHECK_ERRORS, f"--compiler={compiler}", "--flags=-std=c++17", str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


class CheckErrorsTest(unittest.TestCase):
    # The source begins in line 2.
    def assert_refused(self, source: str, *texts: str, header: str = HEADER) -> None:
        for compiler in COMPILERS:
            with self.subTest(compiler):
                status, output = check(compiler, source, header)
                self.assertEqual(status, 1, output)
                for text in (*texts, ", 1 complaint\n"):
                    self.assertIn(text, output)

    def assert_passes(self, source: str) -> None:
        for compiler in COMPILERS:
            with self.subTest(compiler):
                status, output = check(compiler, source)
                self.assertEqual(status, 0, output)

    def test_error_of_the_line_itself(self) -> None:
        self.assert_passes("// error: nothing\nint a = nothing;\n")

    def test_error_in_a_template(self) -> None:
        self.assert_passes("// error: Tiny: too large\nint a = small<int>();\n")

    def test_error_in_a_template_that_another_calls(self) -> None:
        self.assert_passes("// error: Tiny: too large\nint a = outer<int>();\n")

    def test_error_in_a_template_whose_caller_clang_forgets(self) -> None:
        self.assert_passes(
            "// error: Tiny: too large\nint a = eager<int>();\nshort b = 0;\n"
            "// error: Tiny: too large\nint c = eager<long>();\n"
        )

    def test_error_in_a_macro(self) -> None:
        self.assert_passes("int a = 0;\n// error: Tiny: a is too large\nTINY_NAME(a);\n")

    def test_many(self) -> None:
        self.assert_passes(
            "// error: Tiny: still too large\nint a = outer<short>();\n\n"
            "// A comment.\n// error: Tiny: b\n// is too large\nstatic int b = 0; TINY_NAME(b);\n\n"
            "int f() {\n  // error: Tiny: too large\n  return small<long>();\n}\n"
            "int g() { return 1; }\n"
        )

    def test_no_error(self) -> None:
        self.assert_refused(
            "// error: Tiny: too large\nint a = small<int>();\n// error: Tiny: too large\nint b = 0;\n",
            "family.cc:5: no error\n  expected: Tiny: too large",
        )

    def test_mark_above_nothing(self) -> None:
        self.assert_refused("// error: nothing\n\nint a = 0;\n", "family.cc:3: no error", "expected: nothing")

    def test_another_error(self) -> None:
        for asked in ("small", "outer"):
            self.assert_refused(
                f"// error: Tiny: too small\nint a = {asked}<int>();\n",
                "family.cc:3: another error\n  expected: Tiny: too small\n  said: ",
                "Tiny: too large",
            )
        self.assert_refused(
            "int a = 0;\n// error: Tiny: b is too large\nTINY_NAME(a);\n",
            "family.cc:4: another error\n  expected: Tiny: b is too large\n  said: ",
            "Tiny: a is too large",
        )

    def test_first_error_counts(self) -> None:
        self.assert_refused(
            "// error: Tiny: still too large\nint a = small<int>();\n",
            "family.cc:3: another error\n  expected: Tiny: still too large",
            "Tiny: too large",
        )

    def test_error_of_another_line(self) -> None:
        marked = "// error: Tiny: too large\nint a = small<int>();\n"
        for line in ("int b = nothing;", "int b = small<long>();", "int b = outer<long>();", "TINY_NAME(a);"):
            self.assert_refused(marked + line + "\n", "family.cc:4: an error that is not expected\n  said: ")

    def test_error_whose_caller_clang_forgets_and_nobody_expects(self) -> None:
        self.assert_refused(
            "// error: Tiny: too large\nint a = small<int>();\nint b = eager<long>();\n",
            "an error that is not expected\n  said: ",
            "Tiny: too large",
        )

    def test_error_in_a_header(self) -> None:
        self.assert_refused(
            "// error: nothing\nint a = nothing;\n",
            "family.cc, no line of which is named: an error that is not expected",
            "missing",
            header="int a_header = missing;\n",
        )

    def test_too_much_is_said(self) -> None:
        self.assert_passes("// error: Tiny: noise\nNoisy<5> a;\n")
        self.assert_refused("// error: Tiny: noise\nNoisy<60> a;\n", "family.cc:3: ", " lines are said, 80 are")

    def test_no_marks(self) -> None:
        for compiler in COMPILERS:
            for source in ("int a = 0;\n", "int a = nothing;\n"):
                status, output = check(compiler, source)
                self.assertEqual(status, 1, output)
                self.assertIn("there is no line with a mistake", output)


if __name__ == "__main__":
    unittest.main()
