"""tools/names finds what it is there to find."""

import sys
import unittest

sys.dont_write_bytecode = True
import tree  # noqa: E402

NAMES = sys.argv.pop(1)

INTERNAL = "namespace sinew::internal {\n%s\n}  // namespace sinew::internal\n"


class NamesTest(unittest.TestCase):
    def check_both(self, first: str, second: str, status: int) -> None:
        found, output = tree.check(NAMES, {"rpc/a.h": first, "autograd/b.h": second})
        self.assertEqual(found, status, output)

    def test_two_classes_of_one_name(self) -> None:
        files = {"rpc/a.h": INTERNAL % "class Strand {\n};", "autograd/b.h": INTERNAL % "class Strand final : public X {\n};"}
        status, output = tree.check(NAMES, files)
        self.assertEqual(status, 1)
        self.assertIn("sinew::internal::Strand: in autograd/b.h and in rpc/a.h; give one of them another name", output)

    def test_templates_and_what_comes_behind_a_short_namespace(self) -> None:
        first = "namespace sinew::optim {\nstruct Group;\n}\n" + INTERNAL % "template <class T>\nstruct Answer {\n};"
        self.check_both(first, INTERNAL % "struct Answer {\n};", 1)

    def test_sources_count_too(self) -> None:
        status, _ = tree.check(NAMES, {"rpc/a.cc": INTERNAL % "struct Answer {\n};", "optim/b.cc": INTERNAL % "struct Answer {\n};"})
        self.assertEqual(status, 1)

    def test_other_namespaces_and_what_nobody_else_sees(self) -> None:
        one = INTERNAL % "class Link {\n};"
        self.check_both(one, "namespace sinew::internal::nccl {\nclass Link {\n};\n}  // namespace sinew::internal::nccl\n", 0)
        self.check_both(one, INTERNAL % "namespace {\nclass Link {\n};\n}  // namespace", 0)

    def test_declarations_members_and_specialisations(self) -> None:
        one = INTERNAL % "class Link {\n};"
        for other in ("class Link;", "class Link::State {\n};", "class Runner {\n  class Link {\n  };\n};", "struct Link<int> {\n};"):
            with self.subTest(other=other):
                self.check_both(one, INTERNAL % other, 0)

    def test_tests_are_programs_of_their_own(self) -> None:
        status, _ = tree.check(NAMES, {"tests/a.h": INTERNAL % "class Link {\n};", "rpc/b.h": INTERNAL % "class Link {\n};"})
        self.assertEqual(status, 0)


if __name__ == "__main__":
    unittest.main()
