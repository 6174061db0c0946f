"""Tests of what tools/churn plans, and of how it judges. No worker is started."""

from __future__ import annotations

import contextlib
import io
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from churnlib import cli, verdict  # noqa: E402
from churnlib.plan import DISTURBANCES, STOPS, Action, make_plan, start_order  # noqa: E402

A, B, C = "0:a:1f", "1:b:2f", "2:c:3f"


class PlanTest(unittest.TestCase):
    def test_follows_from_the_seed(self) -> None:
        self.assertEqual(make_plan(9, 60, 7, 4), make_plan(9, 60, 7, 4))
        self.assertNotEqual(make_plan(9, 60, 7, 4), make_plan(9, 60, 8, 4))
        self.assertEqual(start_order(9, 7), start_order(9, 7))

    def test_has_at_most_a_third_away_and_all_back_at_the_end(self) -> None:
        for seed in range(20):
            with self.subTest(seed=seed):
                away: set[int] = set()
                for event in make_plan(12, 60, seed, 4):
                    if event.action in DISTURBANCES:
                        self.assertNotIn(event.worker, away)
                        away.add(event.worker)
                        self.assertLessEqual(len(away), 4)
                    else:
                        away.remove(event.worker)
                self.assertEqual(away, set())

    def test_does_all_there_is_to_do(self) -> None:
        self.assertEqual({event.action for event in make_plan(64, 60, 1, 4)}, set(Action))

    def test_lets_stopped_ones_go_on_and_starts_the_others(self) -> None:
        last: dict[int, Action] = {}
        for event in make_plan(12, 120, 3, 4):
            before = last.get(event.worker)
            if event.action is Action.GO_ON:
                self.assertIn(before, STOPS)
            elif event.action is Action.START:
                self.assertIn(before, (Action.KILL, Action.LEAVE, Action.LEAVE_HARD))
            last[event.worker] = event.action

    def test_starts_all_within_a_second(self) -> None:
        order = start_order(64, 5)
        self.assertEqual(sorted(worker for _, worker in order), list(range(64)))
        self.assertLessEqual(order[-1][0], 1)


class ViewsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.selves = {"a": f"ok {A} member", "b": f"ok {B} member"}
        self.views = {"a": f"ok {A} {B}", "b": f"ok {A} {B}"}

    def failures(self) -> str:
        return "; ".join(verdict.views_failures(self.selves, self.views))

    def test_that_are_those_of_one_job_pass(self) -> None:
        self.assertEqual(self.failures(), "")

    def test_of_two_jobs_fail(self) -> None:
        self.views = {"a": f"ok {A}", "b": f"ok {B}"}
        self.assertEqual(self.failures(), f"a lacks: {B}; b lacks: {A}")

    def test_that_show_who_is_not_there_fail(self) -> None:
        self.views["b"] += f" {C}"
        self.assertEqual(self.failures(), f"b sees the dead: {C}")

    def test_of_an_earlier_life_fail(self) -> None:
        self.views["b"] = f"ok 0:a:ff {B}"
        self.assertEqual(self.failures(), f"b lacks: {A}; b sees the dead: 0:a:ff")

    def test_of_who_is_no_member_or_does_not_answer_fail(self) -> None:
        self.selves["b"] = f"ok {B} not running: evicted"
        self.views["a"] = "error: no answer within 20 s"
        self.assertEqual(
            self.failures(),
            "b is no member: not running: evicted; a shows no view: error: no answer within 20 s",
        )

    def test_with_a_rank_twice_fail(self) -> None:
        self.selves = {"a": f"ok {A} member", "b": "ok 0:b:2f member"}
        self.views = {"a": f"ok {A} 0:b:2f", "b": f"ok {A} 0:b:2f"}
        self.assertEqual(self.failures(), "rank 0 is there 2 times")


class VerdictTest(unittest.TestCase):
    def test_wants_counters_at_zero(self) -> None:
        self.assertEqual(verdict.counter_failures({"a": "ok ", "b": "ok"}), [])
        self.assertEqual(
            verdict.counter_failures({"a": "ok ", "b": "ok  rref.owned=2", "c": "error joining"}),
            ["b has rref.owned=2", "c has error joining"],
        )

    def test_wants_right_answers(self) -> None:
        self.assertEqual(verdict.call_failures({"a": "ok "}), [])
        self.assertEqual(verdict.call_failures({"a": "ok x"}), ["a calls in vain: x"])

    def test_finds_crashes_and_no_others(self) -> None:
        logged = [
            "a [sinew a] worker 'b' is lost: it has not answered for 4 s",
            "a [sinew a] the call was aborted",
            "b terminate called after throwing an instance",
            "b F1125 03:04:05 check",
        ]
        self.assertEqual(verdict.crash_lines(logged), logged[2:])

    def test_names_who_was_evicted_without_having_been_stopped(self) -> None:
        lines = [
            (1.0, "a", "joined 0:a:1f"),
            (2.0, "a", "is stopped for longer than the lease"),
            (9.0, "a", "evicted ABORTED text"),
            (10.0, "a", "joined 0:a:2f"),
            (11.0, "a", "evicted ABORTED text"),
        ]
        self.assertEqual(verdict.evicted_unstopped(lines), ["a@11.0"])

    def test_adds_tallies_up(self) -> None:
        total = verdict.sum_tallies({"a": "ok right=3 ABORTED=1", "b": "ok right=4"})
        self.assertEqual(total, {"right": 7, "ABORTED": 1})


class ArgumentsTest(unittest.TestCase):
    def test_name_what_is_wrong(self) -> None:
        for arguments, culprit in (
            (["--workers", "1"], "--workers: 1 workers"),
            (["--seconds", "0"], "--seconds: 0 is not more"),
            (["--worker", "/nowhere/churn_worker"], "/nowhere/churn_worker is no program"),
        ):
            with self.subTest(culprit), contextlib.redirect_stderr(io.StringIO()) as stderr:
                with self.assertRaises(SystemExit) as ended:
                    cli.parse_arguments(arguments)
                self.assertEqual(ended.exception.code, 2)
                self.assertIn(culprit, stderr.getvalue())


if __name__ == "__main__":
    unittest.main()
