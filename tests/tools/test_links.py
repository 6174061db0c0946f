"""tools/links finds what it is there to find."""

import sys
import unittest

sys.dont_write_bytecode = True
import tree  # noqa: E402

LINKS = sys.argv.pop(1)


class LinksTest(unittest.TestCase):
    def check_page(self, text: str, problem: "str | None") -> None:
        files = {"docs/a.md": text, "docs/b.md": "# Title\n\n## One, two: `three()`\n\n## Twice\n\n## Twice\n",
                 "rpc/c.h": "", "LICENSE": ""}
        status, output = tree.check(LINKS, files)
        expected = f"docs/a.md:1: {problem}\nlinks: 1 that lead nowhere\n" if problem else "links: 0 that lead nowhere\n"
        self.assertEqual((status, output), (1 if problem else 0, expected))

    def test_files_and_folders(self) -> None:
        for link in ("b.md", "../rpc/c.h", "../rpc", "../rpc/", "../LICENSE", "https://example.org/x.md", "mailto:x@example.org"):
            with self.subTest(link=link):
                self.check_page(f"[it]({link})", None)
        self.check_page("see [it](c.md) there", "c.md: there is no such file")
        self.check_page("<img src=\"picture.svg\">", "picture.svg: there is no such file")
        self.check_page("[it](../../passwd)", "../../passwd: leads out of the sources")

    def test_headings(self) -> None:
        for link in ("b.md#title", "b.md#one-two-three", "b.md#twice", "b.md#twice-1"):
            with self.subTest(link=link):
                self.check_page(f"[it]({link})", None)
        self.check_page("[it](b.md#four)", "b.md#four: docs/b.md has no such heading")
        self.check_page("[it](b.md#twice-2)", "b.md#twice-2: docs/b.md has no such heading")
        self.check_page("[it](#own)\n\n# Own\n", None)
        self.check_page("[it](#other)\n\n# Own\n", "#other: docs/a.md has no such heading")
        self.check_page("[it](../rpc/c.h#L3)", "../rpc/c.h#L3: only pages have headings")

    def test_headings_with_links_and_marks(self) -> None:
        self.check_page("[it](#see-b-and-max_wait)\n\n# See [b](b.md), and `max_wait`\n", None)

    def test_code_has_no_links_and_no_headings(self) -> None:
        self.check_page("`[&](c.md)` and ``[`](c.md)``", None)
        self.check_page("[it](#own)\n\n```\n# Own\n```\n", "#own: docs/a.md has no such heading")
        self.check_page("```\n[&](c.md)\n```\n", None)

    def test_pages_that_sources_name(self) -> None:
        page = {"docs/a.md": "# Own\n"}
        for text in ("// docs/a.md.\n", "# docs/a.md#own, say\n", "// otherdocs/c.md\n"):
            with self.subTest(text=text):
                self.assertEqual(tree.check(LINKS, {**page, "rpc/x.h": text})[0], 0)
        for name in ("rpc/x.h", "rpc/x.cc", "tools/x", "CMakeLists.txt"):
            with self.subTest(name=name):
                status, output = tree.check(LINKS, {**page, name: "\n// docs/a.md#other\n// docs/c.md\n"})
                self.assertEqual(status, 1)
                self.assertIn(f"{name}:2: docs/a.md#other: docs/a.md has no such heading\n", output)
                self.assertIn(f"{name}:3: docs/c.md: there is no such file\n", output)

    def test_what_is_built_and_tests_of_tools_are_left_out(self) -> None:
        for name, text in (("build/dev/a.md", "[it](b.md)"), ("build-asan/a.md", "[it](b.md)"), ("tests/tools/x.py", "# docs/c.md")):
            with self.subTest(name=name):
                self.assertEqual(tree.check(LINKS, {name: text})[0], 0)


if __name__ == "__main__":
    unittest.main()
