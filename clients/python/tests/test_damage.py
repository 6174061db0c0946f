"""Damaged responses of a worker, the same ones in every run."""

from __future__ import annotations

import random
import unittest

import numpy as np

from sinew_client import SparseTensor, _protos
from sinew_client._values import Arguments, read_value
from sinew_client._wire import MalformedMessage, read_response, write_request

RUNS = 20_000
# Without texts: protobuf writes to stderr where one is no UTF-8.
VALUES = (
    [1, -2, 3.5, b"bytes", None, True],
    {5: [np.arange(6, dtype=np.float32).reshape(2, 3)], 3: {}},
    SparseTensor(np.array([[0, 1], [1, 0]]), np.array([1.0, 2.0]), (2, 2)),
)
# Numbers at their bounds, as varints.
NUMBERS = (b"\xff" * 8 + b"\x7f", b"\xff" * 9 + b"\x01", b"\x80\x80\x80\x80\x10", b"\xff" * 11)


def response(value: object) -> bytes:
    written = Arguments()
    call = _protos.Call()
    written.write([value], call.arguments)
    return write_request(_protos.Reply(value=call.arguments[0]), written.payloads)


def damaged(seeds: list[bytes], chance: random.Random) -> bytes:
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        end = chance.randint(at, len(data))
        how = chance.randrange(6)
        if how == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            data[at:at] = bytes([chance.randrange(256)])
        elif how == 2:
            del data[at:end]
        elif how == 3:
            data[at:at] = data[at:end]
        elif how == 4:
            data[at : at + 1] = chance.choice(NUMBERS)
        else:
            other = chance.choice(seeds)
            data[at:end] = other[chance.randint(0, len(other)) :]
    return bytes(data)


class Damage(unittest.TestCase):
    def test_is_an_error_of_ours_or_a_value(self) -> None:
        seeds = [response(value) for value in VALUES]
        chance = random.Random(1)
        taken = 0
        for _ in range(RUNS):
            data = damaged(seeds, chance)
            try:
                reply, payloads = read_response(data)
                read_value(reply.value, payloads)
                taken += 1
            except MalformedMessage:
                pass
            except Exception as error:
                raise AssertionError(f"{data!r} raises {error!r}") from error
        # Both ways are taken.
        self.assertTrue(0 < taken < RUNS, taken)


if __name__ == "__main__":
    unittest.main()
