#!/usr/bin/python3
"""Calls registered C++ methods from Python with nothing but protos/: gRPC, Protocol Buffers, no Sinew.

usage: test_python_client.py SERVER PROTOS [unittest arguments]

SERVER is the built interop_server, PROTOS the folder protos/ of the source tree. Needs protoc and
Debian's python3-grpcio and python3-protobuf; exits with 77 ("skipped") and a reason without them.
"""

from __future__ import annotations

import importlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any, Sequence

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import ports  # noqa: E402

SKIPPED = 77
TIMEOUT_S = 20.0

try:
    import google.protobuf  # noqa: F401
    import grpc
except ImportError as missing:
    print(f"skipped: {missing}; install python3-grpcio and python3-protobuf")
    sys.exit(SKIPPED)
if shutil.which("protoc") is None:
    print("skipped: there is no protoc; install protobuf-compiler")
    sys.exit(SKIPPED)

SERVER = ""  # set by main()
rpc_pb2: Any = None
value_pb2: Any = None


def generate_stubs(protos: Path, folder: str) -> None:
    """Makes the message classes from the .proto files, and nothing else."""
    global rpc_pb2, value_pb2
    subprocess.run(
        ["protoc", f"--proto_path={protos}", f"--python_out={folder}", "sinew/rpc.proto",
         "sinew/plane.proto", "sinew/value.proto"],
        check=True,
    )
    sys.path.insert(0, folder)
    rpc_pb2 = importlib.import_module("sinew.rpc_pb2")
    value_pb2 = importlib.import_module("sinew.value_pb2")


class Server:
    """The C++ worker as a process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [SERVER, str(ports.free_port())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        killer = threading.Timer(TIMEOUT_S, self.process.kill)
        killer.start()
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        killer.cancel()
        if not self.address:
            raise RuntimeError(f"the server ended with status {self.process.wait()}")

    def stop(self) -> int:
        """Ends it in an orderly way. Returns its exit status."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            status = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        return status


def to_value(item: Any) -> Any:
    """A Python value as a Value message. Tensors are made by Payloads.tensor()."""
    value = value_pb2.Value()
    if item is None:
        pass
    elif isinstance(item, value_pb2.Tensor):
        value.tensor.CopyFrom(item)
    elif isinstance(item, bool):
        value.boolean = item
    elif isinstance(item, int):
        value.integer = item
    elif isinstance(item, float):
        value.real = item
    elif isinstance(item, str):
        value.text = item
    elif isinstance(item, bytes):
        value.binary = item
    elif isinstance(item, list):
        value.list.SetInParent()
        value.list.items.extend(to_value(part) for part in item)
    elif isinstance(item, dict):
        value.map.SetInParent()
        value.map.keys.extend(to_value(key) for key in item)
        value.map.values.extend(to_value(part) for part in item.values())
    else:
        raise TypeError(type(item))
    return value


class Payloads:
    """The tensors of one message."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def tensor(self, numbers: Sequence[float], sizes: Sequence[int]) -> Any:
        """A tensor of FLOAT32."""
        description = value_pb2.Tensor(
            dtype=value_pb2.FLOAT32, sizes=sizes, payload=len(self.payloads)
        )
        self.payloads.append(struct.pack(f"<{len(numbers)}f", *numbers))
        return description


def floats(response: Any, tensor: Any) -> list[float]:
    payload = response.payloads[tensor.payload]
    return list(struct.unpack(f"<{len(payload) // 4}f", payload))


class ClientTest(unittest.TestCase):
    server: Server
    channel: Any

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server()
        cls.channel = grpc.insecure_channel(cls.server.address)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.channel.close()
        status = cls.server.stop()
        assert status == 0, f"the server ended with status {status}"

    def tearDown(self) -> None:
        # Whatever a test has sent, the worker lives and answers.
        self.assertEqual(self.result_of("interop::add", 2, 3).integer, 5)

    def send(self, request: Any, timeout: float | None = TIMEOUT_S) -> Any:
        call = self.channel.unary_unary(
            "/sinew.proto.Worker/Call",
            request_serializer=rpc_pb2.CallRequest.SerializeToString,
            response_deserializer=rpc_pb2.CallResponse.FromString,
        )
        return call(request, timeout=timeout)

    def request(self, method: str, *arguments: Any, payloads: Sequence[bytes] = ()) -> Any:
        request = rpc_pb2.CallRequest(payloads=payloads)
        request.call.method = method
        request.call.arguments.extend(to_value(argument) for argument in arguments)
        return request

    def call(self, method: str, *arguments: Any, payloads: Sequence[bytes] = ()) -> Any:
        """The response of a call that must succeed."""
        response = self.send(self.request(method, *arguments, payloads=payloads))
        self.assertEqual(response.reply.WhichOneof("outcome"), "value", response.reply)
        return response

    def result_of(self, method: str, *arguments: Any) -> Any:
        return self.call(method, *arguments).reply.value

    def error_of(self, request: Any) -> Any:
        response = self.send(request)
        self.assertEqual(response.reply.WhichOneof("outcome"), "error", response.reply)
        return response.reply.error


class ResultsTest(ClientTest):
    def test_a_tensor_goes_there_and_comes_back(self) -> None:
        tensors = Payloads()
        given = tensors.tensor([1, 2, 3, 4, 5, 6], [2, 3])
        response = self.call("interop::scale", given, 2.5, payloads=tensors.payloads)
        tensor = response.reply.value.tensor
        self.assertEqual(tensor.dtype, value_pb2.FLOAT32)
        self.assertEqual(list(tensor.sizes), [2, 3])
        self.assertEqual(floats(response, tensor), [2.5, 5, 7.5, 10, 12.5, 15])

    def test_a_megabyte_of_tensor(self) -> None:
        tensors = Payloads()
        numbers = [float(i % 1000) for i in range(1 << 18)]
        given = tensors.tensor(numbers, [512, 512])
        response = self.call("interop::scale", given, 2.0, payloads=tensors.payloads)
        self.assertEqual(floats(response, response.reply.value.tensor), [2 * n for n in numbers])

    def test_several_tensors(self) -> None:
        tensors = Payloads()
        given = tensors.tensor([1, 2, 3, 4, 5, 6], [3, 2])
        response = self.call("interop::split", given, payloads=tensors.payloads)
        first, rest = (item.tensor for item in response.reply.value.list.items)
        self.assertEqual((list(first.sizes), floats(response, first)), ([1, 2], [1, 2]))
        self.assertEqual((list(rest.sizes), floats(response, rest)), ([2, 2], [3, 4, 5, 6]))

    def test_an_empty_tensor_and_one_without_dimensions(self) -> None:
        for numbers, sizes in (([], [0, 3]), ([4.0], [])):
            tensors = Payloads()
            given = tensors.tensor(numbers, sizes)
            response = self.call("interop::scale", given, 2.0, payloads=tensors.payloads)
            tensor = response.reply.value.tensor
            self.assertEqual(list(tensor.sizes), sizes)
            self.assertEqual(floats(response, tensor), [2 * n for n in numbers])

    def test_integers(self) -> None:
        self.assertEqual(self.result_of("interop::add", -(2**62), 5).integer, 5 - 2**62)

    def test_a_method_that_returns_nothing_returns_null(self) -> None:
        self.assertIsNone(self.result_of("interop::nothing").WhichOneof("kind"))

    def test_a_map_of_lists(self) -> None:
        result = self.result_of("interop::sums", {"a": [1.0, 2.0], "b": []}).map
        sums = {
            key.text: list(value.reals.items) or [item.real for item in value.list.items]
            for key, value in zip(result.keys, result.values)
        }
        self.assertEqual(sums, {"a": [3.0], "b": [0.0]})

    def test_packed_reals_are_a_list_too(self) -> None:
        request = self.request("interop::sums", {"a": None})
        request.call.arguments[0].map.values[0].reals.items.extend([1.5, 2.5])
        result = self.send(request).reply.value.map
        self.assertEqual(list(result.values[0].reals.items), [4.0])

    def test_a_struct_is_the_list_of_its_fields(self) -> None:
        fields = self.result_of("interop::mirror", [1.0, -2.0, "p"]).list.items
        self.assertEqual([fields[0].real, fields[1].real, fields[2].text], [-1.0, 2.0, "p'"])

    def test_an_optional_enum_is_an_integer_or_null(self) -> None:
        self.assertEqual(self.result_of("interop::next_color", None).integer, 1)
        self.assertEqual(self.result_of("interop::next_color", 1).integer, 2)
        self.assertIsNone(self.result_of("interop::next_color", 2).WhichOneof("kind"))

    def test_bytes(self) -> None:
        self.assertEqual(self.result_of("interop::reversed", b"\x00\xff\x10").binary, b"\x10\xff\x00")

    def test_many_calls_at_once(self) -> None:
        sums: list[int] = []
        threads = [
            threading.Thread(target=lambda n=n: sums.append(self.result_of("interop::add", n, n).integer))
            for n in range(32)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(sums), [2 * n for n in range(32)])


class MistakesTest(ClientTest):
    """What a client does wrong ends in an error that says what, and the method does not run."""

    def refuse(self, request: Any, code: grpc.StatusCode, *words: str) -> Any:
        error = self.error_of(request)
        self.assertEqual(error.code, code.value[0], error)
        self.assertEqual(error.execution, rpc_pb2.DID_NOT_RUN, error)
        for word in words:
            self.assertIn(word, error.message)
        return error

    def test_unknown_method(self) -> None:
        self.refuse(
            self.request("interop::missing", 1),
            grpc.StatusCode.UNIMPLEMENTED, "interop::missing", "server",
        )

    def test_no_method(self) -> None:
        self.refuse(self.request(""), grpc.StatusCode.UNIMPLEMENTED)

    def test_too_few_arguments(self) -> None:
        self.refuse(
            self.request("interop::add", 1),
            grpc.StatusCode.INVALID_ARGUMENT, "interop::add", "2", "1",
        )

    def test_too_many_arguments(self) -> None:
        self.refuse(
            self.request("interop::add", 1, 2, 3),
            grpc.StatusCode.INVALID_ARGUMENT, "interop::add", "2", "3",
        )

    def test_wrong_type(self) -> None:
        self.refuse(
            self.request("interop::add", 1, "two"), grpc.StatusCode.INVALID_ARGUMENT,
            "integer", "text",
        )

    def test_a_number_where_a_tensor_belongs(self) -> None:
        self.refuse(
            self.request("interop::scale", 1.0, 2.0), grpc.StatusCode.INVALID_ARGUMENT, "tensor"
        )

    def test_an_integer_out_of_range(self) -> None:
        self.refuse(self.request("interop::narrow", 128), grpc.StatusCode.INVALID_ARGUMENT, "128")

    def test_a_wrong_signature(self) -> None:
        request = self.request("interop::add", 1, 2)
        request.call.signature = "(text)->text"
        self.refuse(request, grpc.StatusCode.INVALID_ARGUMENT, "(integer,integer)->integer", "(text)->text")

    def test_the_right_signature_is_taken(self) -> None:
        request = self.request("interop::add", 1, 2)
        request.call.signature = "(integer,integer)->integer"
        self.assertEqual(self.send(request).reply.value.integer, 3)

    def test_a_repeated_key(self) -> None:
        request = self.request("interop::sums", {"a": [1.0], "b": [2.0]})
        request.call.arguments[0].map.keys[1].text = "a"
        self.refuse(request, grpc.StatusCode.INVALID_ARGUMENT)

    def test_a_struct_with_a_field_missing(self) -> None:
        self.refuse(self.request("interop::mirror", [1.0, 2.0]), grpc.StatusCode.INVALID_ARGUMENT, "3", "2")

    def test_a_payload_of_the_wrong_size(self) -> None:
        tensors = Payloads()
        given = tensors.tensor([1, 2, 3], [4])
        self.refuse(
            self.request("interop::scale", given, 2.0, payloads=tensors.payloads),
            grpc.StatusCode.INVALID_ARGUMENT, "16", "12",
        )

    def test_a_tensor_of_absurd_size(self) -> None:
        tensors = Payloads()
        given = tensors.tensor([1, 2, 3, 4], [2**40, 2**40])
        self.refuse(
            self.request("interop::scale", given, 2.0, payloads=tensors.payloads),
            grpc.StatusCode.INVALID_ARGUMENT,
        )

    def test_a_payload_that_is_not_there(self) -> None:
        given = Payloads().tensor([1], [1])
        self.refuse(self.request("interop::scale", given, 2.0), grpc.StatusCode.INVALID_ARGUMENT, "payload")

    def test_a_member_function_without_an_object(self) -> None:
        error = self.error_of(self.request("interop::Counter::add", 1))
        self.assertIn(error.code, (grpc.StatusCode.INVALID_ARGUMENT.value[0],
                                   grpc.StatusCode.FAILED_PRECONDITION.value[0]))
        self.assertIn("interop::Counter::add", error.message)

    def refuse_reference(self, request: Any) -> None:
        with self.assertRaises(grpc.RpcError) as caught:
            self.send(request)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.PERMISSION_DENIED)
        self.assertIn("only workers hold references", caught.exception.details())

    def test_a_forged_object(self) -> None:
        request = self.request("interop::Counter::add", 1)
        request.call.target.rref.creator = 1
        request.call.target.rref.serial = 1
        request.call.target.fork.creator = 1
        self.refuse_reference(request)

    def test_only_workers_can_keep_references(self) -> None:
        request = self.request("interop::Counter")
        request.call.disposition = rpc_pb2.RETAIN
        request.call.retain.rref.serial = 1
        request.call.retain.fork.serial = 1
        self.refuse_reference(request)

    def test_garbage(self) -> None:
        call = self.channel.unary_unary("/sinew.proto.Worker/Call")
        with self.assertRaises(grpc.RpcError) as caught:
            call(b"\xff\xff\xff\xff garbage", timeout=TIMEOUT_S)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertTrue(caught.exception.details())

    def test_an_empty_request(self) -> None:
        call = self.channel.unary_unary(
            "/sinew.proto.Worker/Call", response_deserializer=rpc_pb2.CallResponse.FromString
        )
        self.assertEqual(call(b"", timeout=TIMEOUT_S).reply.WhichOneof("outcome"), "error")


class FailuresTest(ClientTest):
    def test_an_exception_of_the_method(self) -> None:
        error = self.error_of(self.request("interop::fail", "first line\nsecond line"))
        self.assertEqual(error.code, grpc.StatusCode.OUT_OF_RANGE.value[0])
        self.assertEqual(error.execution, rpc_pb2.MAY_HAVE_RUN)
        self.assertEqual(error.type_name, "std::out_of_range")
        self.assertEqual(error.remote_message, "first line\nsecond line")
        self.assertEqual(error.message, "method 'interop::fail': std::out_of_range: first line\nsecond line")

    def test_the_deadline_of_grpc_ends_the_call_and_reaches_the_method(self) -> None:
        before = self.result_of("interop::cancelled_calls").integer
        start = time.monotonic()
        try:
            response = self.send(self.request("interop::never"), timeout=0.3)
            code = response.reply.error.code
        except grpc.RpcError as error:
            code = error.code().value[0]
        self.assertEqual(code, grpc.StatusCode.DEADLINE_EXCEEDED.value[0])
        self.assertLess(time.monotonic() - start, TIMEOUT_S / 2)
        self.wait_until_it_counts("interop::cancelled_calls", before + 1)

    def test_cancellation_of_grpc_reaches_the_method(self) -> None:
        started = self.result_of("interop::started_calls").integer
        cancelled = self.result_of("interop::cancelled_calls").integer
        call = self.channel.unary_unary(
            "/sinew.proto.Worker/Call",
            request_serializer=rpc_pb2.CallRequest.SerializeToString,
            response_deserializer=rpc_pb2.CallResponse.FromString,
        )
        pending = call.future(self.request("interop::never"), timeout=TIMEOUT_S)
        self.wait_until_it_counts("interop::started_calls", started + 1)
        pending.cancel()
        self.wait_until_it_counts("interop::cancelled_calls", cancelled + 1)

    def wait_until_it_counts(self, method: str, wanted: int) -> None:
        end = time.monotonic() + TIMEOUT_S
        while self.result_of(method).integer < wanted:
            self.assertLess(time.monotonic(), end, f"{method} stays below {wanted}")
            time.sleep(0.01)


def main() -> None:
    global SERVER
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    SERVER = os.path.abspath(sys.argv.pop(1))
    protos = Path(sys.argv.pop(1))
    with tempfile.TemporaryDirectory() as folder:
        generate_stubs(protos, folder)
        unittest.main()


if __name__ == "__main__":
    main()
