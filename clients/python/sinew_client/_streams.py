"""Streams that methods return."""

from __future__ import annotations

import collections
import concurrent.futures
import math
import time
from typing import TYPE_CHECKING, Any, Deque, Iterator, Optional

from google.protobuf.message import DecodeError

from sinew_client import _protos
from sinew_client._errors import ErrorCode, Execution, Origin, RpcError, from_detail

if TYPE_CHECKING:
    from sinew_client._client import Client

_PULL_METHOD = "sinew.stream.pull"
_STOP_METHOD = "sinew.stream.stop"
_ID_BYTES = 16
# What one pull asks for.
_ITEMS = 1024
_BYTES = 2 << 20
# Behind the items of an answer.
_OPEN, _ENDED, _FAILED = range(3)


class Stream(Iterator[Any]):
    """The items of a stream, in their order: an iterator, for one thread at a time. Client.stream() makes one.

    It asks for items while those before are read. What is not read holds the method up. Leave it by stop(), or use it in a `with`:
    a stream that is only dropped ends when its time is over.
    """

    def __init__(self, client: Client, identifier: Any, method: str, timeout: Optional[float]) -> None:
        if not isinstance(identifier, bytes) or len(identifier) != _ID_BYTES:
            raise RpcError(
                ErrorCode.INVALID_ARGUMENT,
                f"method '{method}' returns no stream",
                execution=Execution.MAY_HAVE_RUN,
                method=method,
                address=client.address,
            )
        self._client = client
        self._id = identifier
        self._method = method
        self._end_time = math.inf if timeout is None else time.monotonic() + timeout
        self._items: Deque[Any] = collections.deque()
        self._next = 0
        self._is_over = False
        self._error: Optional[RpcError] = None
        self._pull: Optional[concurrent.futures.Future] = None
        self._ask()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        """The next item. Raises StopIteration at the end, and RpcError where the stream ends with an error."""
        if not self._items:
            self._take_answer()
        if self._items:
            return self._items.popleft()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def stop(self) -> None:
        """Reads no more: the method is told, and its StreamWriter throws kCancelled. Idempotent."""
        if self._is_over:
            return
        self._is_over = True
        self._items.clear()
        if self._pull is not None:
            self._pull.cancel()
        try:
            self._client.call_async(_STOP_METHOD, self._id)
        except RpcError:
            pass  # The connection has ended, and so does the stream.

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _ask(self) -> None:
        left = self._end_time - time.monotonic()
        if left <= 0:
            self._fail(ErrorCode.DEADLINE_EXCEEDED, f"the time of method '{self._method}' is over", Origin.NETWORK)
            return
        self._pull = self._client.call_async(_PULL_METHOD, self._id, _ITEMS, _BYTES, timeout=left)

    def _take_answer(self) -> None:
        if self._is_over or self._pull is None:
            return
        try:
            first, items, state, error = self._pull.result()
            if first != self._next or not isinstance(items, (list, bytes)) or state not in (_OPEN, _ENDED, _FAILED):
                raise ValueError("it is not what comes next")
            if state == _FAILED:
                self._error = from_detail(_protos.Error.FromString(error), self._method, self._client.address)
        except RpcError as failed:
            self._is_over, self._error = True, failed
            return
        except (ValueError, TypeError, DecodeError) as wrong:
            self._fail(ErrorCode.INTERNAL, f"the stream of method '{self._method}' cannot be read: {wrong}", Origin.CALLER)
            return
        self._next += len(items)
        self._items.extend(items)
        self._is_over = state != _OPEN
        if not self._is_over:
            # The next ones come while these are read.
            self._ask()

    def _fail(self, code: ErrorCode, text: str, origin: Origin) -> None:
        self.stop()
        self._error = RpcError(
            code,
            text,
            execution=Execution.MAY_HAVE_RUN,
            origin=origin,
            method=self._method,
            address=self._client.address,
        )
