"""How calls fail."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Optional, Tuple

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode as ErrorCode

from sinew_client import _protos

_DETAILS_KEY = "grpc-status-details-bin"
_ERROR_TYPE = "type.googleapis.com/sinew.proto.Error"
# What gRPC says where no request has left this process.
_NOT_SENT = ("failed to connect to all addresses", "DNS resolution failed", "empty address list")

# What the worker's gRPC says of a request beyond its limit, which it does not read. Results have no limit here.
_TOO_LARGE = "Received message larger than max"


class Execution(enum.Enum):
    """What is known about the method of a call that failed."""

    #: It was not started and never will be: repeating the call is safe.
    DID_NOT_RUN = "did not run"
    #: It may have been started, may be running still or may have finished.
    MAY_HAVE_RUN = "may have run"


class Origin(enum.Enum):
    """Where a failure arose, as seen from who made the call."""

    #: The client: it is closed, or could not read a value.
    CALLER = "the caller"
    #: Between the two: the network, the loss of the worker, time that passed without an answer.
    NETWORK = "the network"
    #: The worker, but not the method: it has no such method, or has refused the call or its arguments.
    CALLEE = "the worker"
    #: The method: what it threw, or failed its future with.
    HANDLER = "the method"
    #: A call that the method made to another worker.
    NESTED_CALL = "a call of the method"


@dataclasses.dataclass(frozen=True)
class FailedCall:
    """A call on the way of an error; what is not known of it is empty."""

    #: Name of the worker that was called.
    worker: str
    method: str
    #: As seen from the worker that made the call.
    origin: Origin


class RpcError(Exception):
    """A call that failed, at whatever place. What gRPC itself said of it is the `__cause__`, where there is any."""

    #: A code of gRPC, which means what it means in C++.
    code: ErrorCode
    #: The whole text.
    message: str
    execution: Execution
    origin: Origin
    #: With Origin.NESTED_CALL: the calls that failed one for the other, from that of the method to the one where the error arose.
    causes: Tuple[FailedCall, ...]
    #: The method that was called; "" where the failure concerns none.
    method: str
    #: "host:port" of the worker.
    address: str
    #: Where the method itself failed: the C++ type of what it threw; else "".
    type_name: str
    #: Where the method itself failed: the exception's own text; else "".
    remote_message: str

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        execution: Execution = Execution.DID_NOT_RUN,
        origin: Origin = Origin.CALLER,
        causes: Tuple[FailedCall, ...] = (),
        method: str = "",
        address: str = "",
        type_name: str = "",
        remote_message: str = "",
    ) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.execution = execution
        self.origin = origin
        self.causes = causes
        self.method = method
        self.address = address
        self.type_name = type_name
        self.remote_message = remote_message

    @property
    def did_not_run(self) -> bool:
        """Whether it is safe to repeat the call."""
        return self.execution is Execution.DID_NOT_RUN

    def __reduce__(self) -> Tuple[Any, ...]:
        # Exceptions are pickled by their positional arguments, of which the fields are none.
        return (_restored, (self.code, self.message, {key: value for key, value in vars(self).items()}))


# Of what a worker says about itself only these make sense; what it may know besides counts as its own.
_OF_A_WORKER = {
    _protos.ORIGINS["ORIGIN_HANDLER"]: Origin.HANDLER,
    _protos.ORIGINS["ORIGIN_NESTED_CALL"]: Origin.NESTED_CALL,
}
_OF_A_CALL = {
    **_OF_A_WORKER,
    _protos.ORIGINS["ORIGIN_CALLER"]: Origin.CALLER,
    _protos.ORIGINS["ORIGIN_NETWORK"]: Origin.NETWORK,
}


def _restored(code: ErrorCode, message: str, fields: Any) -> RpcError:
    error = RpcError(code, message)
    vars(error).update(fields)
    return error


def from_grpc(error: Any, method: str, address: str) -> RpcError:
    """What gRPC raised, or what a call of it ended with, as an RpcError."""
    code = error.code() or ErrorCode.UNKNOWN
    text = error.details() or "gRPC said nothing of it"
    detail = _detail(error.trailing_metadata())
    if detail is None:
        is_too_large = code is ErrorCode.RESOURCE_EXHAUSTED and _TOO_LARGE in text
        did_not_run = is_too_large or code is ErrorCode.UNAVAILABLE and any(says in text for says in _NOT_SENT)
        origin = Origin.CALLEE if is_too_large else Origin.NETWORK
        # A worker's texts name what they concern, and gRPC's own do not.
        place = f"method '{method}' at {address}" if method else address
        return RpcError(
            code,
            f"{place}: {text}",
            execution=_execution(did_not_run),
            origin=Origin.CALLER if code is ErrorCode.CANCELLED else origin,
            method=method,
            address=address,
        )
    return _of_a_worker(code, text, detail, method, address)


def from_detail(detail: Any, method: str, address: str) -> RpcError:
    """A sinew.proto.Error that came within a result, as an RpcError."""
    codes = {code.value[0]: code for code in ErrorCode}
    code = codes.get(detail.code, ErrorCode.UNKNOWN)
    return _of_a_worker(ErrorCode.UNKNOWN if code is ErrorCode.OK else code, detail.message, detail, method, address)


def _of_a_worker(code: ErrorCode, text: str, detail: Any, method: str, address: str) -> RpcError:
    return RpcError(
        code,
        text,
        execution=_execution(detail.execution == _protos.DID_NOT_RUN),
        origin=_OF_A_WORKER.get(detail.origin, Origin.CALLEE),
        causes=tuple(
            FailedCall(cause.worker, cause.method, _OF_A_CALL.get(cause.origin, Origin.CALLEE)) for cause in detail.causes
        ),
        method=method,
        address=address,
        type_name=detail.type_name,
        remote_message=detail.remote_message,
    )


def _execution(did_not_run: bool) -> Execution:
    return Execution.DID_NOT_RUN if did_not_run else Execution.MAY_HAVE_RUN


def _detail(trailers: Any) -> Optional[Any]:
    """The sinew.proto.Error of a call's trailers; None: gRPC, or something in between, failed it."""
    for key, value in trailers or ():
        if key != _DETAILS_KEY:
            continue
        try:
            for detail in _protos.Status.FromString(value).details:
                if detail.type_url == _ERROR_TYPE:
                    return _protos.Error.FromString(detail.value)
        except (DecodeError, TypeError):
            return None
    return None


def is_grpc_error(error: BaseException) -> bool:
    """Whether gRPC raised it for a call that it had begun."""
    return isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call)
