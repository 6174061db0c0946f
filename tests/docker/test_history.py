#!/usr/bin/python3
"""The checker of histories, by one that is right and by those with one fault each."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from lab import history  # noqa: E402

Line = dict[str, Any]


def increment(id_: str, result: str, target: str = "b:1") -> list[Line]:
    asked = {"id": id_, "worker": "a", "kind": "increment", "target": target, "result": "unknown"}
    return [asked] if result == "unknown" else [asked, {**asked, "result": result}]


def applied(id_: str, target: str = "b:1") -> Line:
    return {"id": id_, "worker": "b", "kind": "applied", "target": target}


def step(id_: str, number: int, run: int, versions: tuple[int, int] | None, result: str = "ok") -> Line:
    line = {"id": id_, "worker": "t", "kind": "step", "target": "model", "result": result, "run": run, "step": number}
    return line if versions is None else {**line, "versions": {"p": versions[0], "q": versions[1]}}


def load(id_: str, run: int, version: int) -> Line:
    versions = {"p": version, "q": version}
    return {"id": id_, "worker": "t", "kind": "load", "target": "model", "result": "ok", "run": run, "versions": versions}


def read(*ids: str) -> Line:
    of_both = {"p": list(ids), "q": list(ids)}
    versions = {"p": len(ids), "q": len(ids)}
    return {"worker": "t", "kind": "read", "target": "model", "applied": of_both, "versions": versions}


def found(lines: list[Line]) -> str:
    return "\n".join(history.check([history.parse(json.dumps(line), f"line {i}") for i, line in enumerate(lines, 1)]))


class IncrementsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.lines = [
            *increment("one", "ok"), applied("one"),
            *increment("two", "unknown"), applied("two"),
            *increment("three", "unknown"),
            *increment("four", "did_not_run"),
            *increment("five", "ok", "b:2"), applied("five", "b:2"),
        ]  # fmt: skip

    def test_right(self) -> None:
        self.assertEqual(found(self.lines), "")

    def test_an_acknowledged_one_is_lost(self) -> None:
        self.lines.remove(applied("one"))
        self.assertRegex(found(self.lines), "increment one .*was acknowledged, and is not in b:1's state")

    def test_all_are_lost(self) -> None:
        self.lines.remove(applied("five", "b:2"))
        self.assertRegex(found(self.lines), "increment five .*was acknowledged, and is not")

    def test_an_acknowledged_one_is_there_twice(self) -> None:
        self.lines.append(applied("one"))
        self.assertRegex(found(self.lines), r"increment one .*\(ok\) is in b:1's state 2 times")

    def test_an_unknown_one_is_there_twice(self) -> None:
        self.lines.append(applied("two"))
        self.assertRegex(found(self.lines), r"increment two .*\(unknown\) is in b:1's state 2 times")

    def test_one_that_did_not_run_is_there(self) -> None:
        self.lines.append(applied("four"))
        self.assertRegex(found(self.lines), "increment four .*did_not_run, and is in")

    def test_one_is_at_another_object(self) -> None:
        self.lines.append(applied("one", "b:2"))
        self.assertIn("b:2 has one, which nobody has asked for", found(self.lines))

    def test_order_is_that_of_asking(self) -> None:
        target = "ordered b:1"
        asked = increment("one", "ok", target) + increment("two", "unknown", target) + increment("three", "ok", target)
        self.assertEqual(found([*asked, *(applied(id_, target) for id_ in ("one", "two", "three"))]), "")
        self.assertEqual(found([*asked, *(applied(id_, target) for id_ in ("one", "three"))]), "")
        self.assertRegex(
            found([*asked, *(applied(id_, target) for id_ in ("three", "one"))]),
            "^increment one .* was applied after increment three .*, and was asked for before$",
        )

    def test_a_result_is_said_twice(self) -> None:
        self.lines += increment("four", "ok")
        self.assertIn("had its result before: did_not_run", found(self.lines))


class StepsTest(unittest.TestCase):
    def setUp(self) -> None:
        # Step 2 is lost by the load; of step 3's first attempt nobody knows, and the load takes it back.
        self.lines = [
            step("s1", 1, 0, (1, 1)),
            step("s2", 2, 0, (2, 2)),
            step("s3", 3, 0, None, "unknown"),
            load("l1", 1, 1),
            step("s2b", 2, 1, (2, 2)),
            step("s4", 4, 1, None, "did_not_run"),
            step("s3b", 3, 1, (3, 3)),
            read("s1", "s2b", "s3b"),
        ]

    def change(self, id_: str, **fields: object) -> None:
        next(line for line in self.lines if line.get("id") == id_).update(fields)

    def test_right(self) -> None:
        self.assertEqual(found(self.lines), "")
        self.assertEqual(found(self.lines[:-1]), "")

    def test_what_a_load_has_lost_is_not_made_again(self) -> None:
        self.lines = [*self.lines[:4], read("s1")]
        self.assertRegex(found(self.lines), "step s2 .*lost by a load, and never made again")

    def test_an_acknowledged_one_is_lost_though_nothing_was_loaded(self) -> None:
        self.lines[-1] = read("s1", "s3b")
        self.assertRegex(found(self.lines), "step s2b .*was acknowledged, and is not in p's state")

    def test_one_is_lost_at_one_owner(self) -> None:
        self.lines[-1]["applied"]["q"] = ["s1", "s2b"]
        self.assertRegex(found(self.lines), "step s3b .*is not in q's state")
        self.assertIn("q says version 3 of model and has 2 steps", found(self.lines))

    def test_an_unknown_attempt_is_there_beside_the_next_one(self) -> None:
        self.lines[-1] = read("s1", "s2b", "s3", "s3b")
        self.assertIn("step 3 of model is in p's state 2 times", found(self.lines))

    def test_an_unknown_one_is_there_twice(self) -> None:
        self.lines[-1] = read("s1", "s2b", "s3", "s3")
        self.assertRegex(found(self.lines), r"step s3 .*\(unknown\) is in p's state 2 times")

    def test_an_attempt_before_the_load_is_there_again(self) -> None:
        self.lines[-1] = read("s1", "s2", "s2b", "s3b")
        self.assertIn("step 2 of model is in p's state 2 times", found(self.lines))

    def test_one_that_did_not_run_is_there(self) -> None:
        self.lines[-1] = read("s1", "s2b", "s4", "s3b")
        self.assertRegex(found(self.lines), "step s4 .*did_not_run, and is in p's state")

    def test_a_version_goes_back(self) -> None:
        self.change("s3b", versions={"p": 2, "q": 3})
        self.assertRegex(found(self.lines), "step s3b .*p's version is 2, and was 2 before")

    def test_a_version_is_below_what_was_loaded(self) -> None:
        self.change("s2b", versions={"p": 1, "q": 2})
        self.assertRegex(found(self.lines), "step s2b .*p's version is 1, and was 1 before")

    def test_two_workers_make_one_version(self) -> None:
        self.lines.insert(-1, {**step("u1", 5, 1, (3, 4)), "worker": "u"})
        self.assertRegex(found(self.lines), "step u1 .*and step s3b .*both made version 3 at p")

    def test_a_version_in_the_end_is_below_one_that_was_said(self) -> None:
        self.lines[-1]["versions"]["p"] = 2
        self.assertIn("p has version 2 of model in the end, and said 3 before", found(self.lines))

    def test_versions_that_nobody_has_made(self) -> None:
        del self.lines[-1]
        self.change("s3b", versions={"p": 5, "q": 3})
        self.assertIn("p has made 2 versions of model that nobody knows of, and only 1 steps are unknown", found(self.lines))

    def test_what_was_made_before_the_first_run_needs_no_history(self) -> None:
        self.assertEqual(found([load("l0", 0, 40), step("s", 1, 0, (41, 41))]), "")


class FilesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.file = Path(self.enterContext(tempfile.TemporaryDirectory())) / "a.history"

    def run_on(self, text: str) -> tuple[int, str]:
        self.file.write_text(text)
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return history.main([str(self.file)]), said.getvalue()

    def test_says_what_there_is(self) -> None:
        text = "".join(json.dumps(line) + "\n" for line in [*increment("one", "ok"), applied("one"), *increment("2", "unknown")])
        self.assertEqual(self.run_on(text), (0, "increment: 1 ok, 1 unknown\n"))
        self.assertEqual(self.run_on(text + json.dumps(applied("one")) + "\n")[0], 1)

    def test_the_last_line_may_be_cut_off_and_no_other(self) -> None:
        whole = json.dumps(step("s", 1, 0, (1, 1))) + "\n"
        self.assertEqual(self.run_on(whole + whole[:30])[0], 0)
        self.assertEqual(self.run_on(whole + whole.rstrip())[0], 1, "the end of the line alone is missing")
        status, said = self.run_on(whole[:30] + "\n" + whole)
        self.assertEqual(status, 2)
        self.assertIn("a.history:1: no JSON", said)

    def test_names_what_is_wrong_with_a_line(self) -> None:
        good = step("s", 1, 0, (1, 1))
        for field, value, why in (
            ("kind", "stop", "'kind' is one of"),
            ("result", None, "'result' is one of"),
            ("worker", 3, "'worker' is a name"),
            ("versions", [1, 1], "'versions' is by owner"),
            ("versions", {"p": "1"}, "the version of 'p' is a number"),
            ("run", True, "'run' is a number"),
        ):
            status, said = self.run_on(json.dumps({**good, field: value}) + "\n")
            self.assertEqual(status, 2, field)
            self.assertIn("a.history:1: " + why, said)

    def test_a_file_that_is_not_there(self) -> None:
        self.assertEqual(history.main([str(self.file) + "x"]), 2)


if __name__ == "__main__":
    unittest.main()
