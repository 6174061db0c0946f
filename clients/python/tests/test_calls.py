"""Calls: how they fail, end, wait and are given up."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

import grpc
import numpy as np

import ports
import sinew_client
from sinew_client import ErrorCode, Execution, FailedCall, Origin, RpcError
from tests.server import PATIENCE_S, Server, WorkerTest, eventually


class CallsTest(WorkerTest):
    def test_many_threads_share_a_client(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            sums = list(pool.map(lambda n: self.client.call("interop::add", n, n), range(200)))
        self.assertEqual(sums, [2 * n for n in range(200)])

    def test_futures(self) -> None:
        futures = [self.client.call_async("interop::add", n, 1) for n in range(50)]
        done, pending = concurrent.futures.wait(futures, PATIENCE_S)
        self.assertFalse(pending)
        self.assertEqual([future.result() for future in futures], list(range(1, 51)))
        self.assertFalse(futures[0].cancel())

        async def ask() -> int:
            return await asyncio.wrap_future(self.client.call_async("interop::add", 1, 2))

        self.assertEqual(asyncio.run(ask()), 3)

    def test_arguments_may_change_once_a_call_was_made(self) -> None:
        array = np.ones(1 << 20, np.float32)
        future = self.client.call_async("interop::scale", array, 2.0)
        array[:] = 7
        self.assertEqual(set(future.result(PATIENCE_S).tolist()), {2.0})

    def test_large_arrays(self) -> None:
        array = np.arange(16 << 20, dtype=np.float32)
        result = self.client.call("interop::echo_tensor", array)
        self.assertTrue(np.array_equal(result, array))

    def test_results_are_not_copied(self) -> None:
        for array in (np.zeros(1000), np.zeros((300, 20), np.complex128).T):
            owner = self.client.call("interop::echo_tensor", array)
            while isinstance(owner, np.ndarray):
                self.assertFalse(owner.flags.owndata)
                owner = owner.base
            self.assertIsInstance(owner, memoryview)

    def test_a_request_beyond_the_limit_of_the_worker(self) -> None:
        error = self.error_of(self.client.call, "interop::echo_tensor", np.zeros(81 << 20, np.uint8))
        self.assertEqual((error.code, error.did_not_run, error.origin), (ErrorCode.RESOURCE_EXHAUSTED, True, Origin.CALLEE), error)
        self.assertIn("larger than", error.message)

    def test_listing(self) -> None:
        methods = self.client.methods()
        self.assertEqual(methods["interop::scale"], "(tensor,real)->tensor")
        self.assertEqual(methods["interop::mirror"], "(tuple<real,real,text>)->tuple<real,real,text>")
        self.assertEqual(list(methods), sorted(methods))

    def test_metadata(self) -> None:
        said = self.client.call("interop::metadata", metadata={"trace": "7", "key-bin": b"\0\xff"})
        self.assertEqual(said, b"key-bin=\0\xff trace=7")
        self.assertEqual(self.client.call("interop::metadata", metadata=[("a", "1"), ("a", "2")]), b"a=1 a=2")
        self.assertEqual(self.client.call_async("interop::metadata", metadata={"a": "1"}).result(), b"a=1")
        for call in (self.client.call, self.client.call_async):
            error = self.error_of(call, "interop::metadata", metadata={"large": "x" * 20_000})
            self.assertEqual((error.code, error.did_not_run), (ErrorCode.RESOURCE_EXHAUSTED, True))
            self.assertIn("interop::metadata", error.message)

    def test_metadata_that_makes_no_sense(self) -> None:
        for metadata, kind, word in (
            ({"Trace": "7"}, ValueError, "'Trace'"), ({"": "7"}, ValueError, "''"), ({":path": "/"}, ValueError, "':path'"),
            ({"a": "\u00fc"}, ValueError, "'a'"), ({"a": "x\n"}, ValueError, "'a'"), ({"a": 5}, TypeError, "'a'"),
            ({"a-bin": "x"}, TypeError, "'a-bin'"), ({7: "x"}, TypeError, "7"), ("no", TypeError, "'n'"), ([("a",)], TypeError, "a"),
        ):  # fmt: skip
            for call in (self.client.call, self.client.call_async):
                with self.subTest(metadata), self.assertRaisesRegex(kind, f"metadata.*{word}|{word}.*metadata"):
                    call("interop::metadata", metadata=metadata)

    def test_interceptors_see_calls(self) -> None:
        seen = []

        class Sees(grpc.UnaryUnaryClientInterceptor):
            def intercept_unary_unary(self, continuation, details, request):
                seen.append(details.method)
                return continuation(details, request)

        with sinew_client.connect(self.server.address, interceptors=[Sees()]) as client:
            self.assertEqual(client.call("interop::add", 1, 2), 3)
            self.assertEqual(client.call_async("interop::add", 1, 2).result(PATIENCE_S), 3)
            error = self.error_of(client.call, "interop::fail", "x")
            self.assertEqual((error.code, error.remote_message), (ErrorCode.OUT_OF_RANGE, "x"))
        self.assertEqual(seen.count("/sinew.proto.Worker/Call"), 3)


class ObjectsTest(WorkerTest):
    def test_methods_of_a_published_object(self) -> None:
        before = self.client.call("interop::Counter::add", 0, object="counter")
        self.assertEqual(self.client.call("interop::Counter::add", 5, object="counter"), before + 5)
        futures = [self.client.call_async("interop::Counter::add", 1, object="counter") for _ in range(50)]
        self.assertEqual({future.result() for future in futures}, set(range(before + 6, before + 56)))
        with self.client.stream("interop::Counter::up_to", 3, object="counter") as numbers:
            self.assertEqual(list(numbers), [0, 1, 2])

    def test_an_object_that_is_called_by_one_at_a_time(self) -> None:
        futures = [self.client.call_async("interop::Shelf::put", object="shelf") for _ in range(20)]
        self.assertEqual({future.result() for future in futures}, set(range(1, 21)))

    def test_objects_that_are_none(self) -> None:
        for name, code, text in (
            ("countr", ErrorCode.NOT_FOUND, "nothing is published as 'countr'; published: 'counter', 'shelf'"),
            ("", ErrorCode.INVALID_ARGUMENT, "by the name under which it is published"),
            ("shelf", ErrorCode.INVALID_ARGUMENT, "belongs to interop::Counter, but"),
            ("a/b", ErrorCode.INVALID_ARGUMENT, "'a/b'"),
            ("x" * 5000, ErrorCode.INVALID_ARGUMENT, "128"),
        ):
            with self.assertRaises(sinew_client.RpcError) as caught:
                self.client.call("interop::Counter::add", 1, object=name)
            self.assertEqual(caught.exception.code, code, caught.exception)
            self.assertIn(text, str(caught.exception))
            self.assertTrue(caught.exception.did_not_run, caught.exception)
        with self.assertRaises(sinew_client.RpcError) as caught:
            self.client.call("sinew.fetch", object="counter")
        self.assertEqual((caught.exception.code, caught.exception.did_not_run), (ErrorCode.PERMISSION_DENIED, True))
        with self.assertRaisesRegex(TypeError, "the name of an object is a str, this is a int"):
            self.client.call("interop::Counter::add", 1, object=7)


class FailuresTest(WorkerTest):
    def test_an_exception_of_the_method(self) -> None:
        for call in (self.client.call, lambda *a: self.client.call_async(*a).result(PATIENCE_S)):
            error = self.error_of(call, "interop::fail", "first line\nsecond line")
            self.assertEqual(error.code, ErrorCode.OUT_OF_RANGE)
            self.assertEqual((error.execution, error.did_not_run), (Execution.MAY_HAVE_RUN, False))
            self.assertEqual((error.origin, error.causes), (Origin.HANDLER, ()))
            self.assertEqual(error.type_name, "std::out_of_range")
            self.assertEqual(error.remote_message, "first line\nsecond line")
            self.assertIn("interop::fail", error.message)
            self.assertEqual((error.method, error.address), ("interop::fail", self.server.address))
            self.assertIn("OUT_OF_RANGE", str(error))

    def test_an_error_of_a_call_that_the_method_made(self) -> None:
        error = self.error_of(self.client.call, "interop::nested_fail", "deep")
        self.assertEqual((error.code, error.origin, error.did_not_run), (ErrorCode.OUT_OF_RANGE, Origin.NESTED_CALL, False))
        self.assertEqual(error.causes, (FailedCall("server", "interop::fail", Origin.HANDLER),))

    def test_errors_survive_pickling(self) -> None:
        error = self.error_of(self.client.call, "interop::fail", "text")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((vars(again), str(again), type(again)), (vars(error), str(error), RpcError))

    def test_what_is_refused_did_not_run(self) -> None:
        for code, arguments in (
            (ErrorCode.UNIMPLEMENTED, ("interop::missing",)),
            (ErrorCode.UNIMPLEMENTED, ("",)),
            (ErrorCode.INVALID_ARGUMENT, ("interop::add", 1)),
            (ErrorCode.INVALID_ARGUMENT, ("interop::add", 1, "two")),
            (ErrorCode.INVALID_ARGUMENT, ("interop::narrow", 128)),
            (ErrorCode.INVALID_ARGUMENT, ("interop::scale", 1.0, 2.0)),
        ):
            error = self.error_of(self.client.call, *arguments)
            self.assertEqual((error.code, error.did_not_run, error.origin), (code, True, Origin.CALLEE), error)
            self.assertEqual((error.type_name, error.remote_message), ("", ""))

    def test_the_time_of_a_call(self) -> None:
        before = self.client.call("interop::cancelled_calls")
        for call in (self.client.call, lambda *a, **o: self.client.call_async(*a, **o).result(PATIENCE_S)):
            error = self.error_of(call, "interop::never", timeout=2.0)
            self.assertEqual((error.code, error.origin), (ErrorCode.DEADLINE_EXCEEDED, Origin.NETWORK))
            self.assertFalse(error.did_not_run)
            # gRPC says nothing but that the time is over.
            self.assertIn("interop::never", error.message)
            self.assertIn(self.server.address, error.message)
        self.wait_for_count("interop::cancelled_calls", before + 2)

    def test_the_time_of_calls_that_have_none(self) -> None:
        with sinew_client.connect(self.server.address, default_timeout=0.2, connect_timeout=PATIENCE_S) as client:
            begun = time.monotonic()
            self.assertEqual(self.error_of(client.call, "interop::never").code, ErrorCode.DEADLINE_EXCEEDED)
            # Not the time that it would have by default.
            self.assertLess(time.monotonic() - begun, 30.0)
            for timeout in (1e8, 1e10, 1e12, 1e300, float("inf")):
                self.assertEqual(client.call("interop::add", 1, 2, timeout=timeout), 3)
        with sinew_client.connect(self.server.address, connect_timeout=float("inf")) as client:
            self.assertEqual(client.call("interop::add", 1, 2), 3)

    def test_cancelling_tells_the_method(self) -> None:
        started, cancelled = (self.client.call(f"interop::{name}_calls") for name in ("started", "cancelled"))
        future = self.client.call_async("interop::never")
        called = threading.Event()
        future.add_done_callback(lambda _: called.set())
        self.wait_for_count("interop::started_calls", started + 1)
        self.assertFalse(future.done())
        self.assertTrue(future.cancel())
        self.assertTrue(future.cancel())
        self.assertTrue(called.is_set())
        self.assertEqual(concurrent.futures.wait([future], PATIENCE_S).not_done, set())
        with self.assertRaises(concurrent.futures.CancelledError):
            future.result()
        self.wait_for_count("interop::cancelled_calls", cancelled + 1)

    def test_futures_that_nobody_reads(self) -> None:
        for method in ("interop::add", "interop::fail"):
            for _ in range(20):
                self.client.call_async(method, 1, 2)

    def test_closing_ends_calls(self) -> None:
        started = self.client.call("interop::started_calls")
        client = sinew_client.connect(self.server.address)
        future = client.call_async("interop::never")
        errors = []
        waiting = threading.Thread(target=lambda: errors.append(self.error_of(client.call, "interop::never")))
        waiting.start()
        self.wait_for_count("interop::started_calls", started + 2)
        client.close()
        client.close()
        waiting.join(PATIENCE_S)
        self.assertEqual([error.code for error in errors], [ErrorCode.CANCELLED])
        self.assertEqual(self.error_of(future.result, PATIENCE_S).code, ErrorCode.CANCELLED)
        for call in (client.call, client.call_async):
            error = self.error_of(call, "interop::add", 1, 2)
            self.assertEqual((error.code, error.did_not_run), (ErrorCode.FAILED_PRECONDITION, True))
        self.assertIn("closed", repr(client))

    def test_a_client_that_is_killed(self) -> None:
        started, cancelled = (self.client.call(f"interop::{name}_calls") for name in ("started", "cancelled"))
        program = "import sys, sinew_client; sinew_client.connect(sys.argv[1]).call('interop::never')"
        folder = str(Path(sinew_client.__file__).parents[1])
        client = subprocess.Popen(
            [sys.executable, "-B", "-c", program, self.server.address], env={**os.environ, "PYTHONPATH": folder}
        )
        try:
            self.wait_for_count("interop::started_calls", started + 1)
        finally:
            client.send_signal(signal.SIGKILL)
            client.wait(PATIENCE_S)
        self.wait_for_count("interop::cancelled_calls", cancelled + 1)

    def test_a_forked_child_is_told(self) -> None:
        # Only forked, as in multiprocessing: with this client, and gRPC's threads in the parent.
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            for use in (
                lambda: self.client.call("interop::add", 1, 2),
                lambda: self.client.call_async("interop::add", 1, 2),
                lambda: self.client.wait_until_ready(1.0),
            ):
                try:
                    use()
                    said.append("nothing")
                except BaseException as error:
                    said.append(str(error))
            os.write(writer, "\n".join(said).encode())
            os._exit(0)
        os.close(writer)
        with open(reader) as pipe:
            said = pipe.read().splitlines()
        os.waitpid(child, 0)
        self.assertEqual(len(said), 3, said)
        for text in said:
            self.assertRegex(text, "FAILED_PRECONDITION.*before a fork")
        self.assertEqual(self.client.call("interop::add", 1, 2), 3)

    def test_times_and_names_that_make_no_sense(self) -> None:
        for timeout, kind in ((0, ValueError), (-1, ValueError), (float("nan"), ValueError), ("1", TypeError), (True, TypeError)):
            with self.assertRaises(kind, msg=repr(timeout)):
                self.client.call("interop::add", 1, 2, timeout=timeout)
        with self.assertRaisesRegex(TypeError, "method's name"):
            self.client.call(7)  # type: ignore[arg-type]
        with self.assertRaises(ValueError):
            self.client.call("interop::\ud800")
        with self.assertRaisesRegex(TypeError, "argument 1"):
            self.client.call_async("interop::add", object())


class LostWorkerTest(unittest.TestCase):
    def test_a_worker_that_is_killed_fails_its_calls(self) -> None:
        server = Server()
        self.addCleanup(server.kill)
        with sinew_client.connect(server.address, connect_timeout=PATIENCE_S) as client:
            future = client.call_async("interop::never")
            eventually(lambda: client.call("interop::started_calls") == 1, "the call has come")
            server.kill()
            with self.assertRaises(RpcError) as caught:
                future.result(PATIENCE_S)
            self.assertEqual((caught.exception.code, caught.exception.did_not_run), (ErrorCode.UNAVAILABLE, False))
            with self.assertRaises(RpcError) as caught:
                client.call("interop::add", 1, 2)
            self.assertEqual((caught.exception.code, caught.exception.did_not_run), (ErrorCode.UNAVAILABLE, True))

    def test_a_worker_that_is_stopped_does_not_hold_its_callers(self) -> None:
        server = Server()
        self.addCleanup(server.kill)
        with sinew_client.connect(server.address, connect_timeout=PATIENCE_S) as client:
            server.process.send_signal(signal.SIGSTOP)
            # Its threads run until they come to it.
            os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)
            try:
                with self.assertRaises(RpcError) as caught:
                    client.call("interop::add", 1, 2, timeout=0.2)
                self.assertEqual(caught.exception.code, ErrorCode.DEADLINE_EXCEEDED)
            finally:
                server.process.send_signal(signal.SIGCONT)
            self.assertEqual(client.call("interop::add", 1, 2), 3)

    def test_a_worker_that_comes_late_is_waited_for(self) -> None:
        # Nobody listens there until the server is asked to, on the port that it takes for itself.
        servers = []
        starting = threading.Thread(target=lambda: servers.append(Server()))
        port = ports.free_port()
        real_port, ports.free_port = ports.free_port, lambda: port
        self.addCleanup(setattr, ports, "free_port", real_port)
        self.addCleanup(lambda: servers[0].kill())
        starting.start()
        with sinew_client.connect(f"127.0.0.1:{port}", connect_timeout=PATIENCE_S) as client:
            self.assertEqual(client.call("interop::add", 1, 2), 3)
        starting.join(PATIENCE_S)


    def test_a_worker_that_was_away_for_long_is_found_again(self) -> None:
        # Somebody who takes connections and drops them: each is one attempt, and a client that waits twice as long before each
        # further one makes ten of them in two minutes.
        attempts = []
        over = threading.Event()

        def drop(listener: socket.socket) -> None:
            while not over.is_set():
                try:
                    listener.accept()[0].close()
                    attempts.append(1)
                except OSError:
                    return

        with socket.create_server(("127.0.0.1", 0)) as listener:
            dropping = threading.Thread(target=drop, args=(listener,))
            dropping.start()
            client = sinew_client.Client(f"127.0.0.1:{listener.getsockname()[1]}")
            with client:
                def has_tried() -> bool:
                    with contextlib.suppress(RpcError):
                        client.call("interop::add", 1, 2, timeout=PATIENCE_S)
                    return len(attempts) >= 10

                try:
                    eventually(has_tried, "the client tries again and again")
                finally:
                    over.set()
                    listener.shutdown(socket.SHUT_RDWR)
                    dropping.join(PATIENCE_S)


class TokenTest(unittest.TestCase):
    TOKEN = "0123456789abcdef"

    def test_a_job_with_a_token_takes_calls_with_it(self) -> None:
        server = Server(SINEW_JOB_TOKEN=self.TOKEN)
        self.addCleanup(server.kill)
        for wrong in ("", self.TOKEN + "0"):
            with sinew_client.connect(server.address, token=wrong, connect_timeout=PATIENCE_S) as client:
                with self.assertRaisesRegex(RpcError, "authorization: Bearer TOKEN") as raised:
                    client.call("interop::add", 2, 3)
                self.assertEqual(raised.exception.code, ErrorCode.UNAUTHENTICATED)
                self.assertTrue(raised.exception.did_not_run)
        with sinew_client.connect(server.address, token=self.TOKEN, connect_timeout=PATIENCE_S) as client:
            self.assertEqual(client.call("interop::add", 2, 3), 5)
            self.assertEqual(client.call_async("interop::add", 2, 3, metadata={"trace": "7"}).result(), 5)
        # By default that of the environment.
        with unittest.mock.patch.dict(os.environ, SINEW_JOB_TOKEN=self.TOKEN):
            with sinew_client.connect(server.address, connect_timeout=PATIENCE_S) as client:
                self.assertEqual(client.call("interop::add", 2, 3), 5)
        with tempfile.NamedTemporaryFile("w") as file, unittest.mock.patch.dict(
            os.environ, SINEW_JOB_TOKEN_FILE=file.name
        ):
            print(self.TOKEN, file=file, flush=True)
            with sinew_client.connect(server.address, connect_timeout=PATIENCE_S) as client:
                self.assertEqual(client.call("interop::add", 2, 3), 5)


class ConnectTest(unittest.TestCase):
    def error_of(self, address: str, timeout: float = 3.0) -> RpcError:
        with self.assertRaises(RpcError) as caught:
            sinew_client.connect(address, connect_timeout=timeout)
        return caught.exception

    def test_nobody_there(self) -> None:
        address = f"127.0.0.1:{ports.free_port()}"
        error = self.error_of(address)
        self.assertEqual((error.code, error.did_not_run, error.origin), (ErrorCode.UNAVAILABLE, True, Origin.NETWORK))
        self.assertIn(address, error.message)
        self.assertIn("refused", error.message)

    def test_a_host_that_is_none(self) -> None:
        client = sinew_client.Client("nobody.invalid:1", sinew_client.Credentials.insecure_on_any_network())
        with client, self.assertRaises(RpcError) as caught:
            client.call("interop::add", 1, 2, timeout=PATIENCE_S)
        self.assertEqual((caught.exception.code, caught.exception.did_not_run), (ErrorCode.UNAVAILABLE, True))

    def test_somebody_who_does_not_answer(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            error = self.error_of(f"127.0.0.1:{listener.getsockname()[1]}")
        self.assertEqual(error.code, ErrorCode.UNAVAILABLE)

    def test_another_server_of_grpc(self) -> None:
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait(PATIENCE_S))
        error = self.error_of(f"127.0.0.1:{port}", PATIENCE_S)
        self.assertEqual(error.code, ErrorCode.NOT_FOUND)
        self.assertIn("no Sinew worker", error.message)

    def test_addresses_that_are_none(self) -> None:
        for address in ("", "localhost", "localhost:", ":1", "tcp://localhost:1", "::1:5", "[::1]", "a:0", "a:65536", "a:-1", "a:\u0661"):
            with self.assertRaisesRegex(ValueError, "host:port", msg=address):
                sinew_client.connect(address)
        with self.assertRaises(TypeError):
            sinew_client.connect(8080)  # type: ignore[arg-type]

    def test_insecure_credentials_stay_on_this_machine(self) -> None:
        for address in ("192.0.2.1:1", "worker.example:1", "[2001:db8::1]:1"):
            with self.assertRaisesRegex(ValueError, "mutual_tls"):
                sinew_client.connect(address)
        for address in ("127.8.9.1:1", "localhost:1", "[::1]:1"):
            sinew_client.Client(address).close()
