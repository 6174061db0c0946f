"""CallRequest and CallResponse, written and read by hand: protobuf's own way copies each payload several times."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple, Union

from sinew_client import _protos

Buffer = Union[bytes, memoryview]

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_CALL = _REPLY = 1
_PAYLOADS = 15
# What one message of gRPC can have.
MAX_MESSAGE_BYTES = 2**31 - 1


class MalformedMessage(Exception):
    """These bytes are no message of the kind that was expected."""


def write_request(call: Any, payloads: Sequence[Buffer]) -> bytes:
    """A serialised CallRequest: the one copy of each payload on this side of gRPC. ValueError: it is too large for one."""
    written = call.SerializeToString()
    parts: List[Buffer] = [_head(_CALL, len(written)), written]
    for payload in payloads:
        parts += (_head(_PAYLOADS, len(payload)), payload)
    size = sum(map(len, parts))
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(f"the arguments have {size} bytes, and a message of gRPC at most {MAX_MESSAGE_BYTES}")
    return b"".join(parts)


def read_response(response: bytes) -> Tuple[Any, List[memoryview]]:
    """The Reply of a serialised CallResponse, and its payloads as views of it. MalformedMessage: it is none."""
    view = memoryview(response)
    reply = _protos.Reply()
    payloads: List[memoryview] = []
    position = 0
    while position < len(view):
        tag, position = _read_varint(view, position)
        field, wire_type = tag >> 3, tag & 7
        if wire_type != _LENGTH_DELIMITED:
            position = _skip(view, position, wire_type)
            continue
        size, position = _read_varint(view, position)
        end = position + size
        if end > len(view):
            raise MalformedMessage("a field ends behind its message")
        if field == _REPLY:
            try:
                read = reply.MergeFromString(bytes(view[position:end]))
            except Exception as error:  # What protobuf raises differs between its implementations.
                raise MalformedMessage(f"its reply cannot be read: {error}") from error
            if read not in (None, size):
                raise MalformedMessage("its reply goes on behind its end")
        elif field == _PAYLOADS:
            payloads.append(view[position:end])
        position = end
    return reply, payloads


def _head(field: int, size_bytes: int) -> bytes:
    head = bytearray([field << 3 | _LENGTH_DELIMITED])
    while size_bytes > 0x7F:
        head.append(size_bytes & 0x7F | 0x80)
        size_bytes >>= 7
    head.append(size_bytes)
    return bytes(head)


def _read_varint(view: memoryview, position: int) -> Tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if position == len(view):
            break
        byte = view[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise MalformedMessage("a number does not end")


def _skip(view: memoryview, position: int, wire_type: int) -> int:
    if wire_type == _VARINT:
        return _read_varint(view, position)[1]
    if wire_type == _FIXED64:
        return position + 8
    if wire_type == _FIXED32:
        return position + 4
    raise MalformedMessage(f"there is no wire type {wire_type}")
