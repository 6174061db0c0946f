"""Streams that methods return."""

from __future__ import annotations

import time
import unittest

import sinew_client
from sinew_client import ErrorCode, Origin, RpcError
from tests.server import WorkerTest, eventually


class StreamsTest(WorkerTest):
    def test_items_come_in_their_order(self) -> None:
        with self.client.stream("interop::count", 5000, False) as numbers:
            self.assertEqual(list(numbers), list(range(5000)))
            self.assertEqual(list(numbers), [])

    def test_an_empty_one(self) -> None:
        self.assertEqual(list(self.client.stream("interop::count", 0, False)), [])

    def test_an_error_comes_behind_the_items(self) -> None:
        read = []
        with self.assertRaises(RpcError) as raised:
            for number in self.client.stream("interop::count", 100, True):
                read.append(number)
        self.assertEqual(read, list(range(100)))
        self.assertIs(raised.exception.code, ErrorCode.OUT_OF_RANGE)
        self.assertIs(raised.exception.origin, Origin.HANDLER)
        self.assertEqual(raised.exception.remote_message, "used up")
        self.assertEqual(raised.exception.type_name, "std::out_of_range")

    def test_who_stops_is_heard(self) -> None:
        before = self.client.call("interop::stopped_streams")
        with self.client.stream("interop::count_for_ever") as points:
            self.assertEqual(next(points), [0.0, 0.0, "here"])
            self.assertEqual(next(points), [1.0, -1.0, "here"])
        eventually(lambda: self.client.call("interop::stopped_streams") == before + 1, "the method hears of it")

    def test_tensors(self) -> None:
        for number, array in enumerate(self.client.stream("interop::tensors", 10)):
            self.assertEqual((array.shape, array[5]), ((1 << 18,), number))
        self.assertEqual(number, 9)

    def test_the_time_is_that_of_the_stream(self) -> None:
        begin = time.monotonic()
        before = self.client.call("interop::stopped_streams")
        with self.assertRaises(RpcError) as raised:
            for _ in self.client.stream("interop::count_for_ever", timeout=0.5):
                pass
        self.assertIs(raised.exception.code, ErrorCode.DEADLINE_EXCEEDED)
        self.assertLess(time.monotonic() - begin, 30)
        eventually(lambda: self.client.call("interop::stopped_streams") == before + 1, "the method hears of it")

    def test_what_is_no_stream(self) -> None:
        with self.assertRaises(RpcError) as raised:
            self.client.stream("interop::add", 1, 2)
        self.assertIn("returns no stream", str(raised.exception))

    def test_others_cannot_guess(self) -> None:
        with sinew_client.connect(self.client.address) as other, self.assertRaises(RpcError) as raised:
            other.call("sinew.stream.pull", b"0123456789abcdef", 1, 1)
        self.assertIs(raised.exception.code, ErrorCode.NOT_FOUND)


if __name__ == "__main__":
    unittest.main()
