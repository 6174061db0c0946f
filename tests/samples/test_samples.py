"""samples.py finds the samples, places them, and refuses what it is there to refuse.

  test_samples.py SAMPLES
"""

import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location("samples", SCRIPT)
assert spec and spec.loader
samples = importlib.util.module_from_spec(spec)
sys.modules["samples"] = samples
spec.loader.exec_module(samples)


def find(*comment: str) -> "list[tuple[int, list[str], bool]]":
    """Of a header with these comment lines: where samples begin, what they are, whether they are declarations."""
    found = samples.find_samples("a/b.h", "\n".join(f"  /// {line}".rstrip() for line in comment))
    return [(sample.line, [line.strip() for line in sample.code], sample.is_declaration()) for sample in found]


class FindTest(unittest.TestCase):
    def test_samples_behind_empty_lines_and_colons(self) -> None:
        text = ("Calls:", "    f();", "    g();", "and then", "", "    h();", "Afterwards.")
        self.assertEqual(find(*text), [(2, ["f();", "g();"], False), (6, ["h();"], False)])

    def test_lists_and_other_text(self) -> None:
        self.assertEqual(find("- one thing", "  and more", "    of it", "", "- another"), [])

    def test_the_code_keeps_its_columns(self) -> None:
        sample = samples.find_samples("a/b.h", "  ///\n  ///     f();")[0]
        self.assertEqual(sample.code, [" " * 10 + "f();"])

    def test_empty_lines_within_braces_and_omissions(self) -> None:
        self.assertEqual(find("", "    class A {", "", "    };"), [(2, ["class A {", "", "};"], True)])
        self.assertEqual(find("", "    f();", "    ...", "    g();"), [(2, ["f();", "", "g();"], False)])

    def test_declarations(self) -> None:
        for first in ("namespace app {", "struct A {};", "template <>", "SINEW_METHOD(app::f);", "void f(int a);",
                      "sinew::Future<double> f(const std::string& name) {"):
            with self.subTest(first=first):
                self.assertTrue(find("", "    " + first)[0][2])
        self.assertTrue(find("", "    A a;", "    void f() {}", "    SINEW_METHOD(f);")[0][2])

    def test_statements(self) -> None:
        for first in ("A a(b, c::D());", "for (A& a : b) f(a);", "auto a = b.call<&c::d>(e);", "const A<B> a(1.0 / b);"):
            with self.subTest(first=first):
                self.assertFalse(find("", "    " + first)[0][2])

    def test_fewer_spaces_are_refused(self) -> None:
        with self.assertRaisesRegex(samples.SampleError, "a/b.h:2: a sample has 5 spaces"):
            find("", "  f();")


class ExceptionsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "a.h").write_text("///\n///     f();\n///\n///     g();\n")
        self.found = samples.find_samples("a.h", (self.root / "a.h").read_text())

    def leave_out(self, header: str, first: str) -> "list[str]":
        return [sample.first for sample in samples.leave_out(self.found, {(header, first): "why"}, self.root)]

    def test_what_they_name_is_left_out(self) -> None:
        self.assertEqual(self.leave_out("a.h", "f();"), ["g();"])

    def test_an_unknown_file_is_refused(self) -> None:
        with self.assertRaisesRegex(samples.SampleError, "there is no b.h"):
            self.leave_out("b.h", "f();")

    def test_an_unknown_sample_is_refused(self) -> None:
        with self.assertRaisesRegex(samples.SampleError, r"a.h has no sample that begins with h\(\);"):
            self.leave_out("a.h", "h();")


class SourceTest(unittest.TestCase):
    def test_a_source_whose_lines_are_the_headers(self) -> None:
        found = samples.find_samples("rpc/a.h", "///\n///     struct A {};\n///\n///     A a;\n")
        source = samples.write_source(found, "p.h", Path("/root"))
        self.assertTrue(source.startswith('#include "sinew/rpc/a.h"\n#include "p.h"\n'), source)
        self.assertIn('#define app app_rpc_a\n#line 2 "/root/rpc/a.h"\n        struct A {};\n', source)
        self.assertIn('namespace samples::rpc { void rpc_a_4() {\n#line 4 "/root/rpc/a.h"\n        A a;\n}\n}\n', source)


if __name__ == "__main__":
    unittest.main()
