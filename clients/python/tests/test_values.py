"""Values that go to a worker and come back, and those that are refused."""

from __future__ import annotations

import dataclasses
import enum
import math
import random
import unittest
from typing import Any, Callable, NamedTuple

import numpy as np
from google.protobuf import any_pb2, wrappers_pb2

from sinew_client import BFloat16, SparseTensor, _protos
from sinew_client._values import Arguments, read_value
from sinew_client._wire import MalformedMessage, read_response, write_request
from tests.server import WorkerTest

TYPES = ("u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?", "c8", "c16")


@dataclasses.dataclass
class Point:
    x: float
    y: float
    label: str


class NamedPoint(NamedTuple):
    x: float
    y: float
    label: str


class Color(enum.Enum):
    RED = 1


def there_and_back(value: Any) -> Any:
    """`value` as whoever is sent it reads it."""
    written = Arguments()
    call = _protos.Call()
    written.write([value], call.arguments)
    reply = _protos.Reply(value=call.arguments[0])
    read, payloads = read_response(write_request(reply, written.payloads))
    return read_value(read.value, payloads)


def arrays(random_: np.random.Generator, dtype: str) -> Any:
    """Arrays of the type in every layout: contiguous, of either byte order, permuted, with gaps, backwards, expanded, empty."""
    for shape in ((), (1,), (7,), (2, 3), (3, 1, 2), (2, 3, 4, 5), (0,), (3, 0, 2), (1, 1, 1)):
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if dtype == "?":
            array = random_.integers(0, 2, shape).astype(bool)
        else:
            array = np.frombuffer(random_.bytes(size), dtype).reshape(shape)
        yield array
        yield array.astype(array.dtype.newbyteorder(">"))
        yield np.asfortranarray(array)
        yield array.transpose(random_.permutation(len(shape)))
        yield np.asarray(array[tuple(slice(None, None, 2) for _ in shape)])
        yield np.asarray(array[tuple(slice(None, None, -1) for _ in shape)])
        yield np.broadcast_to(array, (2, *shape))


class LocalTest(unittest.TestCase):
    """Of the package alone."""

    def test_values_come_back(self) -> None:
        for value in (
            None, True, False, 0, -(2**63), 2**63 - 1, 2**63, 2**64 - 1, 0.0, -0.0, math.inf, 5e-324, "", "h\u00e9\U0001f600\0",
            b"", b"\0\xff", [], [1], [1, 2**63], [1.5, -2.5], [1, 2.5], [True, 1], [[], [[]]], {}, {"a": 1, 2: [None], True: b""},
        ):  # fmt: skip
            with self.subTest(value):
                back = there_and_back(value)
                self.assertEqual((type(back), back), (type(value), value))
        self.assertTrue(math.isnan(there_and_back(math.nan)))

    def test_values_that_have_relatives(self) -> None:
        for value, expected in (
            ((1, "x"), [1, "x"]), ({7}, [7]), (frozenset([7]), [7]), (bytearray(b"ab"), b"ab"), (memoryview(b"abcd")[::2], b"ac"),
            (Color.RED, 1), (enum.IntEnum("Small", "ONE").ONE, 1), (Point(1.0, 2.0, "p"), [1.0, 2.0, "p"]),
            (NamedPoint(1.0, 2.0, "p"), [1.0, 2.0, "p"]), (np.int8(-3), -3), (np.uint64(2**64 - 1), 2**64 - 1),
            (np.float32(0.5), 0.5), (np.float64(0.1), 0.1), (np.bool_(True), True), (np.str_("x"), "x"), (np.bytes_(b"x"), b"x"),
        ):  # fmt: skip
            with self.subTest(value):
                back = there_and_back(value)
                self.assertEqual((type(back), back), (type(expected), expected))

    def test_random_values_come_back(self) -> None:
        seed = random.randrange(2**32)
        generator = random.Random(seed)

        def value(depth: int) -> Any:
            kind = generator.randrange(8 if depth < 4 else 6)
            if kind == 0:
                return generator.choice([None, True, False])
            if kind == 1:
                return generator.randint(-(2 ** generator.randint(1, 63)), 2 ** generator.randint(1, 64) - 1)
            if kind == 2:
                return generator.uniform(-1e9, 1e9)
            if kind == 3:
                return "".join(chr(generator.choice([0, 65, 0xE9, 0x1F600])) for _ in range(generator.randrange(9)))
            if kind == 4:
                return generator.randbytes(generator.randrange(9))
            if kind == 5:
                return [generator.randint(-9, 9) for _ in range(generator.randrange(9))]
            if kind == 6:
                return [value(depth + 1) for _ in range(generator.randrange(5))]
            return {generator.randbytes(8): value(depth + 1) for _ in range(generator.randrange(5))}

        for _ in range(300):
            given = value(0)
            self.assertEqual(there_and_back(given), given, f"seed {seed}")

    def test_arrays_come_back(self) -> None:
        seed = random.randrange(2**32)
        generator = np.random.default_rng(seed)
        for dtype in TYPES:
            for array in arrays(generator, dtype):
                with self.subTest(f"seed {seed}: {array.dtype} {array.shape} by {array.strides}"):
                    back = there_and_back(array)
                    self.assertEqual((back.dtype, back.shape), (np.dtype(f"<{dtype}" if dtype != "?" else "?"), array.shape))
                    self.assertEqual(back.tobytes(), array.astype(back.dtype).tobytes())
                    self.assertTrue(back.flags.aligned)
                    self.assertFalse(back.flags.writeable)

    def test_kinds_of_arrays(self) -> None:
        class Labelled(np.ndarray):
            pass

        plain = np.arange(6.0).reshape(2, 3)
        for array in (np.asmatrix(plain), np.asmatrix(plain).T, plain.view(Labelled), plain[:, ::-1].view(Labelled)):
            with self.subTest(type(array).__name__):
                back = there_and_back(array)
                self.assertIs(type(back), np.ndarray)
                self.assertTrue(np.array_equal(back, np.asarray(array)))

    def test_dense_arrays_are_not_copied_on_their_way_to_the_message(self) -> None:
        for array in (np.arange(6.0), np.zeros((2, 3)).T, np.zeros((2, 3, 4)).transpose(1, 2, 0), np.float64([1.0])[:]):
            written = Arguments()
            written.write([array], _protos.Call().arguments)
            self.assertTrue(np.shares_memory(np.frombuffer(written.payloads[0]), array), array.strides)

    def test_results_are_views_of_the_message(self) -> None:
        message = write_request(_protos.Reply(), [b"12345678"])
        _, payloads = read_response(message)
        self.assertIs(payloads[0].obj, message)
        aligned = memoryview(bytearray(b"\0" * 16))
        tensor = _protos.Tensor(dtype=_protos.DTYPES["FLOAT64"], sizes=[2], payload=0)
        back = read_value(_protos.Value(tensor=tensor), [aligned])
        self.assertTrue(np.shares_memory(back, np.frombuffer(aligned, np.uint8)))

    def test_bfloat16_is_rounded_to_even(self) -> None:
        # Written down by hand from the two neighbours of each number.
        for number, expected in (
            (1.0, 0x3F80), (-1.0, 0xBF80), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (1.005, 0x3F81), (3.4e38, 0x7F80),
            (math.inf, 0x7F80), (-math.inf, 0xFF80), (0.0, 0), (-0.0, 0x8000),
        ):  # fmt: skip
            self.assertEqual(int(BFloat16(number).bits), expected, number)
        quiet = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
        self.assertTrue(np.isnan(BFloat16(quiet).to_float32()).all())
        self.assertEqual(BFloat16([[1.5, -2.0]]).to_float32().tolist(), [[1.5, -2.0]])

    def test_messages_come_back(self) -> None:
        self.assertEqual(there_and_back(wrappers_pb2.StringValue(value="x")), wrappers_pb2.StringValue(value="x"))
        unknown = _protos.Value()
        unknown.message.type_url = "type.googleapis.com/nobody.Knows"
        unknown.message.value = b"x"
        back = read_value(unknown, [])
        self.assertIsInstance(back, any_pb2.Any)
        self.assertEqual((back.type_url, back.value), ("type.googleapis.com/nobody.Knows", b"x"))

    def refuse(self, kind: type, *words: str, value: Any) -> None:
        with self.assertRaises(kind) as caught:
            Arguments().write([1, value], _protos.Call().arguments)
        for word in ("argument 2", *words):
            self.assertIn(word, str(caught.exception))

    def test_what_cannot_travel_is_named(self) -> None:
        deep: Any = []
        for _ in range(50):
            deep = [deep]
        endless: Any = []
        endless.append(endless)
        self.refuse(TypeError, "builtins.function", "numpy arrays", value=lambda: 1)
        self.refuse(TypeError, "item 2", "item 'a'", "builtins.complex", value=[1, {"a": 1j}])
        self.refuse(TypeError, "field x", "builtins.object", value=Point(object(), 1.0, ""))  # type: ignore[arg-type]
        self.refuse(TypeError, "builtins.type", value=np.ndarray)
        self.refuse(ValueError, "64 bits", value=2**64)
        self.refuse(ValueError, "64 bits", value=[-(2**63) - 1])
        self.refuse(ValueError, "surrogates", value="\ud800")
        self.refuse(ValueError, "40 lists", value=deep)
        self.refuse(ValueError, "40 lists", value=endless)
        for dtype, advice in (
            ("u2", "numpy.int64"), ("u8", "numpy.int64"), ("g", "numpy.float64"), ("G", "numpy.complex128"), ("U3", "list of str"),
            ("S3", "list of bytes"), ("O", "list"), ("M8[s]", "int64"), ("m8[s]", "int64"), ("i4,f4", "fields"),
        ):  # fmt: skip
            self.refuse(ValueError, str(np.dtype(dtype)), advice, value=[np.zeros(2, dtype)])
        self.refuse(ValueError, ".filled()", value=np.ma.array([1, 2], mask=[0, 1]))
        self.refuse(ValueError, "indices", value=SparseTensor(np.zeros(2), np.zeros(2), (2,)))

        class OnADevice:
            def __array__(self, *_: Any) -> Any:
                raise RuntimeError("it lives elsewhere")

        self.refuse(TypeError, "it lives elsewhere", value=OnADevice())


class HostileResultsTest(unittest.TestCase):
    """Whatever a worker answers ends in a value or in MalformedMessage."""

    def test_bytes_that_are_no_response(self) -> None:
        for message in (b"\xff" * 20, b"\x0a", b"\x0a\x05abc", b"\x0a\x01\xff", b"\x7a\xff\xff\xff\xff\x0f", b"\x0b", b"\x08"):
            with self.subTest(message), self.assertRaises(MalformedMessage):
                read_response(message)
        # Fields that are not known yet.
        reply, payloads = read_response(b"\x10\x05" + b"\x19" + b"8bytes.." + b"\x25" + b"4..." + b"\x7a\x01x")
        self.assertEqual((reply, [bytes(payload) for payload in payloads]), (_protos.Reply(), [b"x"]))

    def test_random_damage(self) -> None:
        seed = random.randrange(2**32)
        generator = random.Random(seed)
        written = Arguments()
        call = _protos.Call()
        written.write([{"a": [np.arange(6).reshape(2, 3).T, 1.5]}], call.arguments)
        message = write_request(_protos.Reply(value=call.arguments[0]), written.payloads)
        for _ in range(3000):
            damaged = bytearray(message)
            for _ in range(generator.randrange(1, 4)):
                damaged[generator.randrange(len(damaged))] = generator.randrange(256)
            del damaged[generator.randrange(len(damaged) + 1) + len(damaged) // 2 :]
            try:
                reply, payloads = read_response(bytes(damaged))
                read_value(reply.value, payloads)
            except MalformedMessage:
                pass
            except Exception as error:
                raise AssertionError(f"seed {seed}: {bytes(damaged)!r}") from error

    def test_tensors_that_lie(self) -> None:
        float64 = _protos.DTYPES["FLOAT64"]
        for fields in (
            {"dtype": 0, "sizes": [2], "payload": 0}, {"dtype": 99, "sizes": [2], "payload": 0}, {"dtype": float64, "sizes": [2]},
            {"dtype": float64, "sizes": [2], "payload": 1}, {"dtype": float64, "sizes": [3], "payload": 0},
            {"dtype": float64, "sizes": [-1, -2], "payload": 0}, {"dtype": float64, "sizes": [2**40, 2**40], "payload": 0},
            {"dtype": float64, "sizes": [1, 2], "order": [0, 0], "payload": 0}, {"dtype": float64, "sizes": [2], "order": [5], "payload": 0},
            {"dtype": float64, "sizes": [2], "order": [0, 1], "payload": 0},
        ):  # fmt: skip
            with self.subTest(fields), self.assertRaises(MalformedMessage):
                read_value(_protos.Value(tensor=_protos.Tensor(**fields)), [memoryview(b"\0" * 16)])

    def test_sizes_that_numpy_does_not_take(self) -> None:
        float64 = _protos.DTYPES["FLOAT64"]
        for sizes in ([0, 2**62], [0, 2**40, 2**40], [0] * 33, [1] * 33):
            with self.subTest(sizes), self.assertRaises(MalformedMessage):
                payload = memoryview(b"\0" * (8 * math.prod(sizes)))
                read_value(_protos.Value(tensor=_protos.Tensor(dtype=float64, sizes=sizes, payload=0)), [payload])

    def test_sparse_tensors_that_lie(self) -> None:
        def read(change: Callable[[Any], object]) -> Any:
            written = Arguments()
            call = _protos.Call()
            good = SparseTensor(np.array([[0, 1], [2, 0]]), np.array([1.5, 2.5]), (2, 3))
            written.write([good], call.arguments)
            change(call.arguments[0].tensor)
            return read_value(call.arguments[0], [memoryview(bytes(payload)) for payload in written.payloads])

        self.assertEqual(read(lambda tensor: None).to_dense().tolist(), [[0, 0, 1.5], [2.5, 0, 0]])
        self.assertEqual(read(lambda tensor: tensor.sizes.__setitem__(1, 2**62)).shape, (2, 2**62))
        for change in (
            lambda tensor: tensor.sizes.__setitem__(0, 1),
            lambda tensor: tensor.sizes.__setitem__(1, 2),
            lambda tensor: tensor.sizes.append(1),
            lambda tensor: tensor.sizes.pop(),
            lambda tensor: tensor.sparse.indices.sizes.__setitem__(slice(0, 2), [1, 4]),
            lambda tensor: tensor.sparse.values.CopyFrom(tensor.sparse.indices),
            lambda tensor: setattr(tensor.sparse.indices, "dtype", _protos.DTYPES["FLOAT64"]),
            lambda tensor: setattr(tensor.sparse.values, "undefined", True),
            lambda tensor: tensor.sparse.indices.sparse.SetInParent(),
        ):
            with self.assertRaises(MalformedMessage):
                read(change)

    def test_maps_that_lie(self) -> None:
        for change in (
            lambda entries: entries.keys.add(text="a"),
            lambda entries: (entries.keys.add(text="a"), entries.keys.add(text="a"), entries.values.add(), entries.values.add()),
            lambda entries: (entries.keys.add().map.SetInParent(), entries.values.add()),
        ):
            value = _protos.Value()
            value.map.SetInParent()
            change(value.map)
            with self.assertRaises(MalformedMessage):
                read_value(value, [])

    def test_a_reference_is_for_workers(self) -> None:
        value = _protos.Value()
        value.reference.SetInParent()
        with self.assertRaisesRegex(MalformedMessage, "only workers"):
            read_value(value, [])


class WorkerValuesTest(WorkerTest):
    """As C++ sees them."""

    def test_arrays_of_all_types_and_layouts(self) -> None:
        seed = random.randrange(2**32)
        generator = np.random.default_rng(seed)
        for dtype in TYPES:
            for array in arrays(generator, dtype):
                with self.subTest(f"seed {seed}: {array.dtype} {array.shape} by {array.strides}"):
                    self.assert_same_array(self.client.call("interop::echo_tensor", array), array)

    def test_what_libtorch_sees(self) -> None:
        for value, expected in (
            (np.zeros((2, 3), np.float32), "Float [2,3] by [3,1]"),
            (np.zeros((2, 3), np.float32).T, "Float [3,2] by [1,3]"),
            (np.zeros((2, 3, 4), ">f8").transpose(2, 0, 1), "Double [4,2,3] by [1,12,4]"),
            (np.zeros((4, 6), np.uint8)[::2, ::3], "Byte [2,2] by [2,1]"),
            (np.array(1.0, np.float32), "Float [] by []"),
            (np.complex64(1j), "ComplexFloat [] by []"),
            (np.zeros((3, 0), bool), "Bool [3,0] by [1,1]"),
            (BFloat16(np.zeros((2, 3)).T), "BFloat16 [3,2] by [2,1]"),
            (SparseTensor(np.array([[0, 2]]), np.float32([1, 2]), (4,)), "sparse Float [4] by [1]"),
        ):
            with self.subTest(expected):
                self.assertEqual(self.client.call("interop::describe", value), expected)

    def test_types_that_numpy_has_not(self) -> None:
        numbers = np.float32([1.0, -2.5, math.inf])
        for name, dtype in (("Half", np.float16), ("BFloat16", np.float32), ("ComplexHalf", np.complex64)):
            result = self.client.call("interop::to_type", numbers, name)
            self.assertEqual(result.astype(np.complex64).tolist(), numbers.astype(np.complex64).tolist(), name)
            self.assertIn(result.dtype.name, (np.dtype(dtype).name, name.lower()))
        back = self.client.call("interop::echo_tensor", BFloat16(numbers))
        self.assertEqual(back.astype(np.float32).tolist(), numbers.tolist())

    def test_tensors_that_are_no_arrays(self) -> None:
        sparse = self.client.call("interop::to_type", np.float32([[0, 1], [2, 0]]), "Sparse")
        self.assertIsInstance(sparse, SparseTensor)
        self.assertEqual(sparse.to_dense().tolist(), [[0, 1], [2, 0]])
        again = self.client.call("interop::echo_tensor", sparse)
        self.assertEqual((again.to_dense().tolist(), again.coalesced), ([[0, 1], [2, 0]], True))
        self.assertIsNone(self.client.call("interop::to_type", np.zeros(1), "undefined"))

    def test_tensors_in_other_orders(self) -> None:
        result = self.client.call("interop::to_type", np.arange(6.0).reshape(2, 3), "Transposed")
        self.assertEqual(result.tolist(), [[0, 3], [1, 4], [2, 5]])
        self.assertTrue(result.flags.f_contiguous)

    def test_several_tensors(self) -> None:
        first, rest = self.client.call("interop::split", np.float32([[1, 2], [3, 4], [5, 6]]))
        self.assertEqual((first.tolist(), rest.tolist()), ([[1, 2]], [[3, 4], [5, 6]]))

    def test_containers(self) -> None:
        self.assertEqual(self.client.call("interop::sums", {"a": [1.0, 2.0], "b": []}), {"a": [3.0], "b": [0.0]})
        self.assertEqual(self.client.call("interop::sums", {"a": (1, 2.5), "b": [1, 2]}), {"a": [3.5], "b": [3.0]})
        self.assertEqual(self.client.call("interop::is_square", [2, 3]), {(2, 2): True, (3, 2): False})
        self.assertEqual(self.client.call("interop::sum", {1.5}), 1.5)

    def test_structs_enums_and_optionals(self) -> None:
        for point in ([1.0, -2.0, "p"], Point(1.0, -2.0, "p"), NamedPoint(1.0, -2.0, "p")):
            self.assertEqual(self.client.call("interop::mirror", point), [-1.0, 2.0, "p'"])
        self.assertEqual(self.client.call("interop::next_color", None), 1)
        self.assertEqual(self.client.call("interop::next_color", Color.RED), 2)
        self.assertIsNone(self.client.call("interop::next_color", 2))

    def test_scalars(self) -> None:
        self.assertEqual(self.client.call("interop::add", -(2**62), 5), 5 - 2**62)
        self.assertEqual(self.client.call("interop::echo_natural", 2**64 - 1), 2**64 - 1)
        self.assertEqual(self.client.call("interop::echo_text", "h\u00e9\0"), "h\u00e9\0")
        self.assertEqual(self.client.call("interop::reversed", b"\x00\xff\x10"), b"\x10\xff\x00")
        self.assertIsNone(self.client.call("interop::nothing"))
        self.assertEqual(
            self.client.call("interop::echo_message", wrappers_pb2.StringValue(value="x")), wrappers_pb2.StringValue(value="x")
        )
