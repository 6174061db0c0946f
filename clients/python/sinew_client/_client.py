"""Connections to workers, and calls."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import ipaddress
import math
import os
import re
import threading
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import grpc

from sinew_client import _protos
from sinew_client._credentials import Credentials, job_token
from sinew_client._errors import ErrorCode, Execution, Origin, RpcError, from_grpc, is_grpc_error
from sinew_client._streams import Stream
from sinew_client._values import Arguments, read_value
from sinew_client._wire import MalformedMessage, read_response, write_request

#: What is said in addition to a call, as gRPC has it. Values of keys that end in "-bin" are bytes.
Metadata = Union[Mapping[str, Union[str, bytes]], Iterable[Tuple[str, Union[str, bytes]]]]

DEFAULT_TIMEOUT_S = 60.0
DEFAULT_CONNECT_TIMEOUT_S = 10.0

_CALL_METHOD = "/sinew.proto.Worker/Call"
_HEALTH_METHOD = "/grpc.health.v1.Health/Check"
_LIST_METHOD = "sinew.methods"
_SERVICE = "sinew.proto.Worker"

# What a worker takes, and what HTTP/2 counts for each entry besides its characters.
_MAX_METADATA_BYTES = 8 << 10
_METADATA_OVERHEAD_BYTES = 32
# What gRPC takes for a key, and for the value of one that does not end in "-bin".
_METADATA_KEY = re.compile(r"[0-9a-z_.-]+")
_METADATA_VALUE = re.compile(r"[ -~]*")

# gRPC adds times to that of day, and what is too large comes out in the past. No caller waits for a century.
_LONGEST_TIMEOUT_S = 100.0 * 365 * 24 * 3600

_OPTIONS = (
    # The worker has its limits, and says them.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Whether a call may be repeated only its caller knows.
    ("grpc.enable_retries", 0),
    # Workers are reached directly, as they reach each other.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # Calls fail at once until the next attempt to connect: a worker that is started again must not look gone for minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A machine that is gone is noticed while calls wait for it. Workers take one ping in 30 s.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Large arrays are several times faster.
    ("grpc.http2.max_frame_size", 4 << 20),
    ("grpc.http2.lookahead_bytes", 16 << 20),
)


def connect(
    address: str,
    credentials: Optional[Credentials] = None,
    *,
    expected_name: str = "",
    token: Optional[str] = None,
    default_timeout: float = DEFAULT_TIMEOUT_S,
    connect_timeout: float = DEFAULT_CONNECT_TIMEOUT_S,
    interceptors: Sequence[Any] = (),
) -> Client:
    """Connects to the worker at `address` ("host:port"), waiting until it answers, also for one that is just starting.

    `credentials`: of the worker's kind; Credentials.insecure() if left out.
    `expected_name`: the name that the worker's certificate must cover, in place of the host; usually the worker's own.
    `token`: the job's, where it has one; left out: what SINEW_JOB_TOKEN says, or the file that SINEW_JOB_TOKEN_FILE names.
    `default_timeout`: seconds for each call that has no limit of its own; math.inf for none.
    `connect_timeout`: seconds until RpcError, whose text has the reason as far as gRPC knows it.
    `interceptors`: of grpc.intercept_channel(), for tracing and the like. They see serialised messages.

    Raises RpcError when the worker does not answer, and ValueError or TypeError for an argument that makes no sense.
    """
    client = Client(
        address,
        credentials,
        expected_name=expected_name,
        token=token,
        default_timeout=default_timeout,
        interceptors=interceptors,
    )
    try:
        client.wait_until_ready(connect_timeout)
    except BaseException:
        client.close()
        raise
    return client


class CallFuture(concurrent.futures.Future):
    """The result of a call that is under way: a concurrent.futures.Future, also for wait() and asyncio.wrap_future()."""

    def __init__(self) -> None:
        super().__init__()
        self._call: Optional[Any] = None
        self._lock = threading.Lock()
        self._is_told = False

    def cancel(self) -> bool:
        """Gives the call up: its worker is told, and result() raises CancelledError. False when it has ended already."""
        if not super().cancel():
            return False
        with self._lock:
            is_first, self._is_told = not self._is_told, True
        if is_first:
            # Nothing else runs it, so nothing else would tell those that wait().
            self.set_running_or_notify_cancel()
            if self._call is not None:
                self._call.cancel()
        return True


class Client:
    """Calls the methods of one worker. Thread-safe; of any number of threads. Not to be used in a forked child.

    connect() makes one that is known to reach its worker. Use it in a `with`, or close() it.
    """

    def __init__(
        self,
        address: str,
        credentials: Optional[Credentials] = None,
        *,
        expected_name: str = "",
        token: Optional[str] = None,
        default_timeout: float = DEFAULT_TIMEOUT_S,
        interceptors: Sequence[Any] = (),
    ) -> None:
        """As connect(), but without waiting: the first call connects."""
        host, port = _parse_address(address)
        self._address = address
        self._default_timeout = _checked_timeout(default_timeout, "default_timeout")
        token = job_token() if token is None else token
        self._authorization = (("authorization", f"Bearer {token}"),) if token else ()
        options: List[Tuple[str, Any]] = list(_OPTIONS)
        if expected_name:
            options.append(("grpc.ssl_target_name_override", expected_name))
        channel = (credentials or Credentials.insecure()).channel(host, _target(host, port), options)
        self._channel = grpc.intercept_channel(channel, *interceptors) if interceptors else channel
        self._closed = False
        self._process = os.getpid()
        # Without serialisers: gRPC gets the bytes, and gives them.
        self._unary = self._channel.unary_unary(_CALL_METHOD)

    @property
    def address(self) -> str:
        """ "host:port" of the worker."""
        return self._address

    def call(
        self,
        method: str,
        *arguments: Any,
        object: str = "",
        timeout: Optional[float] = None,
        metadata: Optional[Metadata] = None,
    ) -> Any:
        """Calls a registered method of the worker, and waits for its result.

        `method`: its name there, such as "app::scale".
        `arguments`: see the package's description for what becomes of which type.
        `object`: for a method of a class: the name under which the worker has published the object.
        `timeout`: seconds; left out: the default_timeout of connect().
        `metadata`: what the method finds in CallContext::metadata().

        Arrays in the result are read-only views of the message that brought them: array.copy() can be changed.

        Raises RpcError when the call fails, and TypeError or ValueError, which name the argument, for what cannot travel.
        """
        self._check_process(method)
        request = _request(method, arguments, object)
        pairs = self._pairs(metadata, method)
        try:
            response = self._unary(request, timeout=self._timeout(timeout), metadata=pairs)
        except Exception as error:
            raise self._error(error, method) from error
        return self._result(response, method)

    def call_async(
        self,
        method: str,
        *arguments: Any,
        object: str = "",
        timeout: Optional[float] = None,
        metadata: Optional[Metadata] = None,
    ) -> CallFuture:
        """As call(), without waiting. Arguments may be changed at once. Callbacks of the future run on a thread of gRPC."""
        self._check_process(method)
        request = _request(method, arguments, object)
        pairs = self._pairs(metadata, method)
        future = CallFuture()
        try:
            call = self._unary.future(request, timeout=self._timeout(timeout), metadata=pairs)
        except Exception as error:
            raise self._error(error, method) from error
        future._call = call
        call.add_done_callback(lambda ended: self._finish(future, ended, method))
        return future

    def stream(
        self,
        method: str,
        *arguments: Any,
        object: str = "",
        timeout: Optional[float] = None,
        metadata: Optional[Metadata] = None,
    ) -> Stream:
        """Calls a method that returns a stream, and reads that: an iterator over its items.

            with client.stream("app::count", 10) as numbers:
                for number in numbers:
                    print(number)

        `timeout`: seconds for the call and all of the stream; left out: the default_timeout of connect(). Otherwise as call().
        """
        seconds = self._timeout(timeout)
        identifier = self.call(method, *arguments, object=object, timeout=timeout, metadata=metadata)
        return Stream(self, identifier, method, seconds)

    def _check_process(self, method: str) -> None:
        # In a child gRPC has neither its threads nor, it may be, its connection.
        if os.getpid() != self._process:
            raise RpcError(
                ErrorCode.FAILED_PRECONDITION,
                "this client was made before a fork, by the parent: make one in the child, too",
                method=method,
                address=self._address,
            )

    def _pairs(self, metadata: Optional[Metadata], method: str) -> Tuple[Tuple[str, Union[str, bytes]], ...]:
        pairs = self._authorization + _checked_metadata(metadata or ())
        size = sum(len(key) + len(value) + _METADATA_OVERHEAD_BYTES for key, value in pairs)
        # A worker's gRPC may answer more than it takes by closing the connection, and with it the calls of others.
        if size > _MAX_METADATA_BYTES:
            raise RpcError(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"the metadata of a call of '{method}' has {size} bytes; a worker takes {_MAX_METADATA_BYTES} at most",
                method=method,
                address=self._address,
            )
        return pairs

    def methods(self, timeout: Optional[float] = None) -> Dict[str, str]:
        """The names of the worker's methods and their signatures: {"app::scale": "(tensor,real)->tensor"}.

        Methods of classes are among them, and constructors ("->kept"), which only workers can call. Raises RpcError
        PERMISSION_DENIED unless the worker was started with WorkerOptions::list_methods.
        """
        return dict(sorted(self.call(_LIST_METHOD, timeout=timeout).items()))

    def wait_until_ready(self, timeout: float) -> None:
        """Waits until the worker answers, at most so many seconds; then RpcError, with the reason as far as it is known."""
        self._check_process("")
        check = self._channel.unary_unary(_HEALTH_METHOD)
        request = _protos.HealthCheckRequest(service=_SERVICE).SerializeToString()
        try:
            check(request, timeout=self._timeout(timeout), wait_for_ready=True)
        except Exception as error:
            raise self._not_ready(error, timeout) from error

    def close(self) -> None:
        """Ends the connection. Calls that are under way fail with RpcError CANCELLED. Idempotent."""
        self._closed = True
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sinew_client.Client of {self._address}{', closed' if self._closed else ''}>"

    def _timeout(self, given: Optional[float]) -> Optional[float]:
        seconds = self._default_timeout if given is None else _checked_timeout(given, "timeout")
        return None if seconds > _LONGEST_TIMEOUT_S else seconds

    def _error(self, error: Exception, method: str) -> Exception:
        """What to raise for what gRPC has raised."""
        if is_grpc_error(error):
            return from_grpc(error, method, self._address)
        if self._closed:
            return RpcError(
                ErrorCode.FAILED_PRECONDITION, "this client is closed", method=method, address=self._address
            )
        return error

    def _not_ready(self, error: Exception, timeout: float) -> Exception:
        failed = self._error(error, "")
        if not isinstance(failed, RpcError):
            return failed
        if failed.code in (ErrorCode.UNIMPLEMENTED, ErrorCode.NOT_FOUND):
            text = f"what answers at {self._address} is no Sinew worker"
            return RpcError(ErrorCode.NOT_FOUND, text, origin=Origin.NETWORK, address=self._address)
        if failed.code is ErrorCode.DEADLINE_EXCEEDED:
            text = f"no worker answers at {self._address} within {timeout:g} s{self._reason()}"
            return RpcError(ErrorCode.UNAVAILABLE, text, origin=Origin.NETWORK, address=self._address)
        return failed

    def _reason(self) -> str:
        """Why there is no connection, for a text. Only a call that does not wait for one is told."""
        try:
            self._channel.unary_unary(_HEALTH_METHOD)(b"", timeout=1.0)
        except grpc.RpcError as error:
            return f" ({error.details()})"
        return ""

    def _finish(self, future: CallFuture, call: Any, method: str) -> None:
        """The call has ended. On a thread of gRPC."""
        try:
            if call.cancelled():
                future.cancel()
                return
            if call.code() is not ErrorCode.OK:
                raise from_grpc(call, method, self._address)
            end = functools.partial(future.set_result, self._result(call.result(), method))
        except Exception as error:  # The code that waits for the future must get it.
            end = functools.partial(future.set_exception, error)
        # It may be cancelled in this very moment.
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            end()

    def _result(self, response: bytes, method: str) -> Any:
        try:
            reply, payloads = read_response(response)
            if reply.WhichOneof("outcome") != "value":
                raise MalformedMessage("it has no value")
            return read_value(reply.value, payloads)
        except MalformedMessage as error:
            raise RpcError(
                ErrorCode.INTERNAL,
                f"the result of method '{method}' cannot be read: {error}",
                execution=Execution.MAY_HAVE_RUN,
                method=method,
                address=self._address,
            ) from error


def _request(method: str, arguments: Sequence[Any], published: str) -> bytes:
    if not isinstance(method, str):
        raise TypeError(f"a method's name is a str, this is a {type(method).__name__}")
    if not isinstance(published, str):
        raise TypeError(f"the name of an object is a str, this is a {type(published).__name__}")
    call = _protos.Call(method=method, object=published)
    written = Arguments()
    written.write(arguments, call.arguments)
    return write_request(call, written.payloads)


def _checked_timeout(seconds: float, name: str) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} is a number of seconds, not {seconds!r}")
    if not seconds > 0:
        raise ValueError(f"{name} must be more than 0 s, it is {seconds}")
    return float(seconds)


def _checked_metadata(metadata: Metadata) -> Tuple[Tuple[str, Union[str, bytes]], ...]:
    pairs = []
    for entry in metadata.items() if isinstance(metadata, Mapping) else metadata:
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise TypeError(f"metadata is a dict or has pairs of a key and a value, not {entry!r}")
        key, value = entry
        if not isinstance(key, str):
            raise TypeError(f"a key of metadata is a str, not {key!r}")
        if not _METADATA_KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key of metadata: it takes a-z, 0-9, '_', '-' and '.'")
        if not isinstance(value, (str, bytes)):
            raise TypeError(f"metadata {key!r} is a str, or bytes where the key ends in '-bin', not {value!r}")
        if key.endswith("-bin"):
            if not isinstance(value, bytes):
                raise TypeError(f"metadata {key!r} is bytes, since the key ends in '-bin', not {value!r}")
        elif not _METADATA_VALUE.fullmatch(value if isinstance(value, str) else value.decode("latin-1")):
            raise ValueError(f"metadata {key!r} is printable ASCII: {value!r} takes a key that ends in '-bin', and bytes")
        pairs.append((key, value))
    return tuple(pairs)


def _parse_address(address: str) -> Tuple[str, int]:
    if not isinstance(address, str):
        raise TypeError(f"an address is a str like 'host:port', not {address!r}")
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "/" in host:
        host = ""
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is no address: it takes 'host:port' or '[IPv6]:port', with a port of 1 to 65535")
    return host, int(port)


def _target(host: str, port: int) -> str:
    """As gRPC names it."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return f"dns:///{host}:{port}"
    return f"ipv4:{host}:{port}" if version == 4 else f"ipv6:[{host}]:{port}"
