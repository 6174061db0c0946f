#!/usr/bin/python3
"""Calls registered C++ methods with nothing but protos/, as a client in any language would, and as none should.

usage: test_wire.py SERVER PROTOS [unittest arguments]

SERVER is the built interop_server, PROTOS the folder protos/ of the source tree. Needs protoc and
Debian's python3-grpcio and python3-protobuf; exits with 77 ("skipped") and a reason without them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any, Sequence

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import ports  # noqa: E402

SKIPPED = 77
TIMEOUT_S = 60.0

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
STANDARD = ("google/rpc/status", "grpc/health/v1/health", "grpc/reflection/v1alpha/reflection")
health_pb2: Any = None
reflection_pb2: Any = None
rpc_pb2: Any = None
status_pb2: Any = None
value_pb2: Any = None


def generate_stubs(protos: Path, folder: str) -> None:
    """Makes the message classes from the .proto files, and nothing else."""
    global health_pb2, reflection_pb2, rpc_pb2, status_pb2, value_pb2
    subprocess.run(
        ["protoc", f"--proto_path={protos}", f"--python_out={folder}", "sinew/rpc.proto", "sinew/plane.proto",
         "sinew/value.proto", *(f"sinew/standard/{name}.proto" for name in STANDARD)],
        check=True,
    )
    sys.path.insert(0, folder)
    rpc_pb2 = importlib.import_module("sinew.rpc_pb2")
    status_pb2, health_pb2, reflection_pb2 = (
        importlib.import_module(f"sinew.standard.{name.replace('/', '.')}_pb2") for name in STANDARD
    )
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


def error_in(failed: Any) -> Any:
    trailers = dict(failed.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert (status.code, status.message) == (failed.code().value[0], failed.details()), status
    (detail,) = status.details
    error = rpc_pb2.Error()
    assert detail.Unpack(error), detail
    assert error.code == status.code and not error.message, error
    error.message = status.message
    return error


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
        """The error in the status of a call that must fail, with the status's text."""
        with self.assertRaises(grpc.RpcError) as caught:
            self.send(request)
        return error_in(caught.exception)


class ResultsTest(ClientTest):
    """The rest is for the package in clients/python/."""

    def test_a_tensor_goes_there_and_comes_back(self) -> None:
        tensors = Payloads()
        given = tensors.tensor([1, 2, 3, 4, 5, 6], [2, 3])
        response = self.call("interop::scale", given, 2.5, payloads=tensors.payloads)
        tensor = response.reply.value.tensor
        self.assertEqual(tensor.dtype, value_pb2.FLOAT32)
        self.assertEqual(list(tensor.sizes), [2, 3])
        self.assertEqual(floats(response, tensor), [2.5, 5, 7.5, 10, 12.5, 15])

    def test_the_right_signature_is_taken(self) -> None:
        request = self.request("interop::add", 1, 2)
        request.call.signature = "(integer,integer)->integer"
        self.assertEqual(self.send(request).reply.value.integer, 3)


class StandardServicesTest(ClientTest):
    """Stubs from the files of protos/sinew/standard call services that a worker has."""

    def method(self, service: Any, name: str, make: Any) -> Any:
        """As generated stubs do: the path is made of the names that the file has."""
        method = service.methods_by_name[name]
        module = importlib.import_module(service.file.name[: -len(".proto")].replace("/", ".") + "_pb2")
        return make(
            f"/{service.full_name}/{name}",
            request_serializer=getattr(module, method.input_type.name).SerializeToString,
            response_deserializer=getattr(module, method.output_type.name).FromString,
        )

    def test_health(self) -> None:
        health = health_pb2.DESCRIPTOR.services_by_name["Health"]
        check = self.method(health, "Check", self.channel.unary_unary)
        watch = self.method(health, "Watch", self.channel.unary_stream)
        request = health_pb2.HealthCheckRequest(service="sinew.proto.Worker")
        self.assertEqual(check(request, timeout=TIMEOUT_S).status, health_pb2.HealthCheckResponse.SERVING)
        watching = watch(request, timeout=TIMEOUT_S)
        self.assertEqual(next(watching).status, health_pb2.HealthCheckResponse.SERVING)
        watching.cancel()

    def test_reflection(self) -> None:
        reflection = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
        info = self.method(reflection, "ServerReflectionInfo", self.channel.stream_stream)
        request = reflection_pb2.ServerReflectionRequest(list_services="*")
        (answer,) = info(iter([request]), timeout=TIMEOUT_S)
        services = {service.name for service in answer.list_services_response.service}
        for module in (rpc_pb2, health_pb2, reflection_pb2):
            for service in module.DESCRIPTOR.services_by_name.values():
                self.assertIn(service.full_name, services)


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

    def test_mistyped_method(self) -> None:
        error = self.refuse(self.request("interop::ad", 1, 2), grpc.StatusCode.UNIMPLEMENTED, "'interop::add', (")
        self.assertNotIn("built with", error.message)

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
        error = error_in(caught.exception)
        self.assertEqual(error.code, grpc.StatusCode.PERMISSION_DENIED.value[0])
        self.assertEqual(error.execution, rpc_pb2.DID_NOT_RUN)
        self.assertIn("only workers hold references", error.message)

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
        not_unicode = rpc_pb2.Call(method="interop::add").SerializeToString().replace(b"add", b"a\xffd")
        for garbage in (b"\xff\xff\xff\xff garbage", b"\x0a\x02\xff\xff", b"\x0a" + bytes([len(not_unicode)]) + not_unicode):
            with self.assertRaises(grpc.RpcError) as caught:
                call(garbage, timeout=TIMEOUT_S)
            error = error_in(caught.exception)
            self.assertEqual(error.code, grpc.StatusCode.INVALID_ARGUMENT.value[0])
            self.assertEqual(error.execution, rpc_pb2.DID_NOT_RUN)
            self.assertTrue(error.message)

    def test_an_empty_request(self) -> None:
        self.refuse(rpc_pb2.CallRequest(), grpc.StatusCode.UNIMPLEMENTED)


class TransportTest(ClientTest):
    """What gRPC's own libraries do not send."""

    def test_headers_that_no_library_sends(self) -> None:
        good = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/sinew.proto.Worker/Call"), (b":authority", b"a"),
                (b"te", b"trailers"), (b"content-type", b"application/grpc")]  # fmt: skip
        for change in (
            {b"content-type": b"text/html"}, {b"content-type": b""}, {b":path": b"/sinew.proto.Worker/\xff\xfe"}, {b":path": b""},
            {b":method": b"GET"}, {b"te": b"gzip"}, {b"bad key": b"x"}, {b"UPPER": b"x"}, {b"key": b"\xff\x01\x80"}, {b"key": b"\r\n"},
            {b"x-bin": b"!not base64!"}, {b"large": b"x" * 60_000}, {b"grpc-timeout": b"soon"}, {b"grpc-timeout": b"99999999999999H"},
            {b"grpc-encoding": b"gzip"}, {b"grpc-encoding": b"\xff"}, {b":path": b"/" + b"x" * 7000},
        ):  # fmt: skip
            with self.subTest(change):
                headers = [(name, change.get(name, value)) for name, value in good]
                headers += [item for item in change.items() if item[0] not in dict(good)]
                # An answer, or the end of the connection; and other clients are served (see tearDown).
                self.assertTrue(self.answer_to(headers), "neither an answer nor an end")

    def answer_to(self, headers: list[tuple[bytes, bytes]]) -> bool:
        host, port = self.server.address.rsplit(":", 1)
        request = self.request("interop::add", 2, 3).SerializeToString()
        block = b"".join(b"\0" + hpack_string(name) + hpack_string(value) for name, value in headers)
        message = b"\0" + struct.pack(">I", len(request)) + request
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
            for start in range(0, len(block), 16384):
                end_headers = 4 if start + 16384 >= len(block) else 0
                kind = HEADERS if start == 0 else CONTINUATION
                connection.sendall(frame(kind, end_headers, 1, block[start : start + 16384]))
            with contextlib.suppress(ConnectionError):
                connection.sendall(frame(DATA, 1, 1, message))
            return self.ends(connection)

    def ends(self, connection: socket.socket) -> bool:
        """Whether the stream, or the connection, is over before the time is."""
        connection.settimeout(TIMEOUT_S)
        try:
            with connection.makefile("rb") as incoming:
                while True:
                    head = incoming.read(9)
                    if len(head) < 9:
                        return True
                    kind, flags = head[3], head[4]
                    incoming.read(int.from_bytes(head[:3], "big"))
                    if kind in (RST_STREAM, GOAWAY) or kind in (DATA, HEADERS) and flags & 1:
                        return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False


DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, CONTINUATION = 0, 1, 3, 4, 7, 9


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def hpack_string(text: bytes) -> bytes:
    """As HTTP/2's headers have it: its size, and the bytes as they are."""
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    rest, head = size - 127, bytearray([127])
    while rest > 127:
        head.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*head, rest]) + text


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
