"""Python's values as those of protos/sinew/value.proto, and back."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
from google.protobuf import any_pb2, symbol_database
from google.protobuf.message import DecodeError, Message

from sinew_client import _protos, _tensors
from sinew_client._tensors import BFloat16, SparseTensor
from sinew_client._wire import Buffer, MalformedMessage

_INT64 = range(-(2**63), 2**63)
_UINT64 = range(0, 2**64)
# As workers have it: what is deeper they refuse.
_MAX_DEPTH = 40


class Arguments:
    """The arguments of one call: as values, with the elements of their tensors apart from them."""

    def __init__(self) -> None:
        self.payloads: List[Buffer] = []
        # Where the value stands that is being written, for texts.
        self._path: List[str] = []

    def write(self, arguments: Sequence[Any], values: Any) -> None:
        """Appends `arguments` to `values`. TypeError, ValueError: one of them cannot travel; the text names it."""
        for number, argument in enumerate(arguments, 1):
            self._write_at(f"argument {number}", argument, values.add())

    def _write_at(self, place: str, item: Any, value: Any) -> None:
        self._path.append(place)
        if len(self._path) > _MAX_DEPTH:
            raise ValueError(f"{self._path[0]} has more than {_MAX_DEPTH} lists or dicts within each other")
        writer = _WRITERS.get(type(item))
        if writer is not None:
            writer(self, item, value)
        else:
            self._write_relative(item, value)
        self._path.pop()

    def _refuse(self, kind: Callable[[str], Exception], text: str) -> Exception:
        return kind(f"{', '.join(self._path)}: {text}")

    def _write_none(self, _: None, value: Any) -> None:
        pass

    def _write_bool(self, item: Any, value: Any) -> None:
        value.boolean = bool(item)

    def _write_int(self, item: Any, value: Any) -> None:
        number = int(item)
        if number in _INT64:
            value.integer = number
        elif number in _UINT64:
            value.natural = number
        else:
            raise self._refuse(ValueError, f"{number} has more than 64 bits")

    def _write_float(self, item: Any, value: Any) -> None:
        value.real = float(item)

    def _write_str(self, item: str, value: Any) -> None:
        try:
            value.text = str(item)
        except (UnicodeEncodeError, ValueError) as error:
            raise self._refuse(ValueError, "the str has lone surrogates, which are no Unicode: pass bytes") from error

    def _write_bytes(self, item: Any, value: Any) -> None:
        value.binary = bytes(item)

    def _write_list(self, items: Any, value: Any) -> None:
        kinds = set(map(type, items))
        if kinds == {float}:
            value.reals.items.extend(items)
        elif kinds == {int} and min(items) in _INT64 and max(items) in _INT64:
            value.integers.items.extend(items)
        else:
            value.list.SetInParent()
            for number, item in enumerate(items, 1):
                self._write_at(f"item {number}", item, value.list.items.add())

    def _write_dict(self, items: Dict[Any, Any], value: Any) -> None:
        value.map.SetInParent()
        for number, (key, item) in enumerate(items.items(), 1):
            self._write_at(f"key {number}", key, value.map.keys.add())
            self._write_at(f"item {key!r}"[:64], item, value.map.values.add())

    def _write_array(self, array: np.ndarray, value: Any) -> None:
        self._write_tensor(_tensors.write_tensor, array, value)

    def _write_bfloat16(self, numbers: BFloat16, value: Any) -> None:
        self._write_tensor(_tensors.write_bfloat16, numbers, value)

    def _write_sparse(self, sparse: SparseTensor, value: Any) -> None:
        self._write_tensor(_tensors.write_sparse, sparse, value)

    def _write_tensor(self, write: Callable[..., None], item: Any, value: Any) -> None:
        try:
            write(item, value.tensor, self.payloads)
        except ValueError as error:
            raise self._refuse(ValueError, f"it {error}") from error

    def _write_message(self, message: Message, value: Any) -> None:
        value.message.type_url = f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
        value.message.value = message.SerializeToString()

    def _write_relative(self, item: Any, value: Any) -> None:
        """What is no value of exactly one of the types in _WRITERS."""
        for types, writer in _RELATIVES:
            if isinstance(item, types):
                return writer(self, item, value)
        if isinstance(item, enum.Enum):
            return self._write_at("its value", item.value, value)
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            return self._write_fields(item, value)
        if hasattr(item, "__array__") and not isinstance(item, type):
            # numpy's complex numbers too: they travel as tensors without dimensions.
            return self._write_array(self._as_array(item), value)
        raise self._refuse(
            TypeError,
            f"a {type(item).__module__}.{type(item).__qualname__} cannot travel: pass None, bool, int, float, str, bytes, "
            "lists, tuples, sets or dicts of such, dataclasses, enums, numpy arrays or protobuf messages",
        )

    def _as_array(self, item: Any) -> np.ndarray:
        try:
            return np.asarray(item)
        except Exception as error:  # Whatever another library raises, such as for a tensor on a GPU.
            raise self._refuse(TypeError, f"numpy cannot make an array of it: {error}") from error

    def _write_fields(self, item: Any, value: Any) -> None:
        """A struct is the list of its fields, in order."""
        value.list.SetInParent()
        for field in dataclasses.fields(item):
            self._write_at(f"field {field.name}", getattr(item, field.name), value.list.items.add())


_WRITERS: Dict[type, Callable[..., None]] = {
    type(None): Arguments._write_none,
    bool: Arguments._write_bool,
    int: Arguments._write_int,
    float: Arguments._write_float,
    str: Arguments._write_str,
    bytes: Arguments._write_bytes,
    list: Arguments._write_list,
    tuple: Arguments._write_list,
    dict: Arguments._write_dict,
    np.ndarray: Arguments._write_array,
    BFloat16: Arguments._write_bfloat16,
    SparseTensor: Arguments._write_sparse,
}

# In this order: numpy's bool is none of its numbers, and an IntEnum is an int.
_RELATIVES: Tuple[Tuple[Any, Callable[..., None]], ...] = (
    (np.ndarray, Arguments._write_array),
    (np.bool_, Arguments._write_bool),
    ((int, np.integer), Arguments._write_int),
    ((float, np.float16, np.float32), Arguments._write_float),
    (str, Arguments._write_str),
    ((bytes, bytearray, memoryview), Arguments._write_bytes),
    ((list, tuple, set, frozenset), Arguments._write_list),
    (dict, Arguments._write_dict),
    (Message, Arguments._write_message),
)


def read_value(value: Any, payloads: Sequence[memoryview]) -> Any:
    """A value as Python has it. MalformedMessage: it is none, or one that only workers can hold."""
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    if kind in ("boolean", "integer", "natural", "real", "text", "binary"):
        return getattr(value, kind)
    if kind in ("reals", "integers"):
        return list(getattr(value, kind).items)
    if kind == "list":
        return [read_value(item, payloads) for item in value.list.items]
    if kind == "map":
        return _read_map(value.map, payloads)
    if kind == "tensor":
        return _tensors.read_tensor(value.tensor, payloads)
    if kind == "message":
        return _read_message(value.message)
    raise MalformedMessage(f"it holds a {kind}, which only workers can have")


def _read_map(entries: Any, payloads: Sequence[memoryview]) -> Dict[Any, Any]:
    keys = [_hashable(read_value(key, payloads)) for key in entries.keys]
    values = [read_value(value, payloads) for value in entries.values]
    read = dict(zip(keys, values))
    if len(values) != len(keys) or len(read) != len(keys):
        raise MalformedMessage(f"a map has {len(values)} values for {len(keys)} keys, {len(read)} of them different ones")
    return read


def _hashable(key: Any) -> Any:
    if isinstance(key, list):
        return tuple(map(_hashable, key))
    if isinstance(key, (dict, np.ndarray, SparseTensor, Message)):
        raise MalformedMessage(f"a map has a {type(key).__name__} as its key, which no dict can have")
    return key


def _read_message(message: Any) -> Any:
    """One of the type that this program has made a module for, or an Any."""
    name = message.type_url.rpartition("/")[2]
    try:
        return symbol_database.Default().GetSymbol(name).FromString(message.value)
    except KeyError:
        return any_pb2.Any(type_url=message.type_url, value=message.value)
    except DecodeError as error:
        raise MalformedMessage(f"a message of type {name} cannot be read") from error
