"""numpy arrays as tensors, and tensors as numpy arrays."""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from sinew_client import _protos
from sinew_client._wire import Buffer, MalformedMessage

_UNSIGNED16 = np.dtype("<u2")
_HALF = np.dtype("<f2")
_FLOAT = np.dtype("<f4")

# By numpy's kind and size. What is left out: bfloat16 and complex numbers of halves, for which numpy has no type.
_NAMES = {
    ("u", 1): "UINT8",
    ("i", 1): "INT8",
    ("i", 2): "INT16",
    ("i", 4): "INT32",
    ("i", 8): "INT64",
    ("f", 2): "FLOAT16",
    ("f", 4): "FLOAT32",
    ("f", 8): "FLOAT64",
    ("b", 1): "BOOL",
    ("c", 8): "COMPLEX64",
    ("c", 16): "COMPLEX128",
}
_NUMBERS = {key: _protos.DTYPES[name] for key, name in _NAMES.items()}
_TYPES = {_protos.DTYPES[name]: np.dtype(f"<{kind}{size}") for (kind, size), name in _NAMES.items()}
_BFLOAT16 = _protos.DTYPES["BFLOAT16"]
_COMPLEX32 = _protos.DTYPES["COMPLEX32"]

# numpy 2 takes 64.
_MAX_DIMENSIONS = 32

# What to do about arrays of other types, by their kind.
_ADVICE = {
    "u": "convert it with .astype(numpy.int64)",
    "f": "convert it with .astype(numpy.float64)",
    "c": "convert it with .astype(numpy.complex128)",
    "U": "pass a list of str",
    "S": "pass a list of bytes",
    "O": "pass a list, or an array of numbers",
    "M": "pass .astype('int64') and say in which unit",
    "m": "pass .astype('int64') and say in which unit",
    "V": "pass its fields as arrays of their own",
}


class BFloat16:
    """Numbers of type bfloat16, for which numpy has no type.

    Pass one where a method takes a tensor of that type. With the package ml_dtypes its arrays are taken as well, and results
    are such arrays; without it a result of that type is an array of float32, which has the same numbers.
    """

    def __init__(self, numbers: Any) -> None:
        """Rounds `numbers` (anything that numpy.asarray takes) to the nearest ones of bfloat16, ties to even."""
        rounded_once = np.asarray(numbers, dtype=_FLOAT)
        bits = rounded_once.reshape(-1).view(np.uint32)
        is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        # A NaN keeps its sign, and must not become an infinity.
        nearest = np.where(is_nan, bits >> 16 | 0x40, rounded)
        self.bits: np.ndarray = nearest.astype(_UNSIGNED16).reshape(rounded_once.shape)

    def to_float32(self) -> np.ndarray:
        """The same numbers."""
        return _widened(self.bits)


@dataclasses.dataclass(frozen=True, eq=False)
class SparseTensor:
    """A sparse tensor in coordinate format, as torch.sparse_coo_tensor makes it. Goes both ways."""

    #: int64, of shape (number of sparse dimensions, number of elements).
    indices: np.ndarray
    #: Of shape (number of elements, dense dimensions...).
    values: np.ndarray
    shape: Tuple[int, ...]
    #: Indices are sorted, and none comes twice.
    coalesced: bool = False

    def to_dense(self) -> np.ndarray:
        """An array of its own. Elements of the same index are added up."""
        dense = np.zeros(self.shape, self.values.dtype)
        np.add.at(dense, tuple(self.indices), self.values)
        return dense


def write_tensor(array: np.ndarray, tensor: Any, payloads: List[Buffer]) -> None:
    """Describes `array` in `tensor`, and appends its elements to `payloads`, without a copy where they are dense.

    ValueError: it cannot travel, with a text that goes on from its name.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise ValueError("is a masked array, and a mask does not travel: pass .filled()")
    # A numpy.matrix keeps two dimensions whatever is done to it.
    array = np.asarray(array)
    if array.dtype.name == "bfloat16":
        number = _BFLOAT16
    else:
        number = _NUMBERS.get((array.dtype.kind, array.dtype.itemsize), 0)
        if not number:
            advice = _ADVICE.get(array.dtype.kind, "convert it with .astype()")
            raise ValueError(f"is an array of {array.dtype}, which no tensor can hold: {advice}")
    memory, order = _dense(array)
    if sys.byteorder == "big" or array.dtype.byteorder == ">":
        memory = memory.astype(memory.dtype.newbyteorder("<"))
    _write(memory, number, array.shape, order, tensor, payloads)


def write_bfloat16(numbers: BFloat16, tensor: Any, payloads: List[Buffer]) -> None:
    """As write_tensor()."""
    memory, order = _dense(numbers.bits)
    _write(memory, _BFLOAT16, numbers.bits.shape, order, tensor, payloads)


def write_sparse(sparse: SparseTensor, tensor: Any, payloads: List[Buffer]) -> None:
    """As write_tensor()."""
    indices = np.asarray(sparse.indices)
    if indices.ndim != 2 or indices.dtype.kind != "i":
        raise ValueError("is a SparseTensor whose indices are no array of int64 with two dimensions")
    write_tensor(np.asarray(sparse.values), tensor.sparse.values, payloads)
    write_tensor(indices.astype(np.int64, copy=False), tensor.sparse.indices, payloads)
    tensor.dtype = tensor.sparse.values.dtype
    tensor.sizes.extend(sparse.shape)
    tensor.sparse.coalesced = sparse.coalesced


def read_tensor(tensor: Any, payloads: Sequence[memoryview]) -> Any:
    """An array, or a SparseTensor of two; None for an undefined tensor. MalformedMessage: it is no tensor."""
    if tensor.undefined:
        return None
    if tensor.HasField("sparse"):
        return _read_sparse(tensor, payloads)
    stored = _stored_type(tensor.dtype)
    sizes = _read_sizes(tensor)
    # numpy counts elements in 63 bits, without those of size 0; 16 bytes are the largest element.
    if math.prod(size for size in sizes if size > 0) > sys.maxsize // 16:
        raise MalformedMessage(f"a tensor has sizes {sizes}")
    order = list(tensor.order) or list(range(len(sizes)))
    if sorted(order) != list(range(len(sizes))):
        raise MalformedMessage(f"a tensor has sizes {sizes} in the order {order}")
    if not tensor.HasField("payload") or tensor.payload >= len(payloads):
        raise MalformedMessage("a tensor has no payload")
    payload = payloads[tensor.payload]
    if math.prod(sizes) * stored.itemsize != len(payload):
        raise MalformedMessage(f"a tensor of sizes {sizes} has {len(payload)} bytes")
    elements = np.frombuffer(payload, stored) if len(payload) else np.empty(0, stored)
    if not elements.flags.aligned:
        elements = elements.copy()
    array = _as_numpy_knows_it(elements, tensor.dtype)
    array = array.reshape([sizes[d] for d in order]).transpose(np.argsort(order))
    array.flags.writeable = False
    return array


def _read_sparse(tensor: Any, payloads: Sequence[memoryview]) -> SparseTensor:
    parts = (tensor.sparse.indices, tensor.sparse.values)
    if any(part.undefined or part.HasField("sparse") for part in parts):
        raise MalformedMessage("a sparse tensor lacks its indices or its values")
    indices, values = (read_tensor(part, payloads) for part in parts)
    sizes = _read_sizes(tensor)
    fits = (
        indices.ndim == 2
        and indices.dtype == np.int64
        and values.ndim >= 1
        and values.shape[0] == indices.shape[1]
        and tuple(sizes[len(indices) :]) == values.shape[1:]
        and len(sizes) == len(indices) + values.ndim - 1
    )
    if not fits:
        raise MalformedMessage(
            f"a sparse tensor of sizes {sizes} has indices of shape {list(indices.shape)} ({indices.dtype}) and values of "
            f"shape {list(values.shape)}"
        )
    bounds = np.array(sizes[: len(indices)], np.int64).reshape(-1, 1)
    if ((indices < 0) | (indices >= bounds)).any():
        raise MalformedMessage(f"a sparse tensor of sizes {sizes} has indices beyond them")
    return SparseTensor(indices, values, tuple(sizes), tensor.sparse.coalesced)


def _read_sizes(tensor: Any) -> List[int]:
    sizes = list(tensor.sizes)
    if len(sizes) > _MAX_DIMENSIONS:
        raise MalformedMessage(f"a tensor has {len(sizes)} dimensions, and numpy takes {_MAX_DIMENSIONS}")
    if any(size < 0 for size in sizes):
        raise MalformedMessage(f"a tensor has sizes {sizes}")
    return sizes


def _dense(array: np.ndarray) -> Tuple[np.ndarray, List[int]]:
    """The array's elements in the order of its memory, and the dimensions from the slowest to the fastest there; those are left
    out where that is their own order."""
    if array.flags.c_contiguous:
        return array, []
    order = sorted(range(array.ndim), key=lambda dimension: -array.strides[dimension])
    permuted = array.transpose(order)
    if permuted.flags.c_contiguous:
        return permuted, order
    return np.ascontiguousarray(array), []


def _write(
    memory: np.ndarray, number: int, shape: Sequence[int], order: Sequence[int], tensor: Any, payloads: List[Buffer]
) -> None:
    tensor.dtype = number
    tensor.sizes.extend(shape)
    tensor.order.extend(order)
    tensor.payload = len(payloads)
    payloads.append(memory.reshape(-1).view(np.uint8).data if memory.size else b"")


def _stored_type(number: int) -> np.dtype:
    if number == _BFLOAT16:
        return _UNSIGNED16
    if number == _COMPLEX32:
        return np.dtype("<u4")
    stored = _TYPES.get(number)
    if stored is None:
        raise MalformedMessage(f"a tensor has elements of type {number}, which this client does not know")
    return stored


def _as_numpy_knows_it(elements: np.ndarray, number: int) -> np.ndarray:
    if number == _BFLOAT16:
        extended = _ml_dtypes()
        return elements.view(extended.bfloat16) if extended is not None else _widened(elements)
    if number == _COMPLEX32:
        return elements.view(_HALF).astype(_FLOAT).view(np.complex64)
    return elements


def _widened(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(_FLOAT)


def _ml_dtypes() -> Optional[Any]:
    try:
        return importlib.import_module("ml_dtypes")
    except ImportError:
        return None
