"""The messages of protos/, in a pool of their own: a program may have made modules of the same files."""

from __future__ import annotations

from typing import Any, Dict

from google.protobuf import any_pb2, descriptor_pool, message_factory

from sinew_client._descriptors import FILES

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
for _file in FILES:
    _POOL.AddSerializedFile(_file)


def _numbers(enum: str) -> Dict[str, int]:
    return {name: value.number for name, value in _POOL.FindEnumTypeByName(enum).values_by_name.items()}


def _message(name: str) -> Any:
    descriptor = _POOL.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    # Before protobuf 4.22.
    return message_factory.MessageFactory(_POOL).GetPrototype(descriptor)


Call = _message("sinew.proto.Call")
Error = _message("sinew.proto.Error")
Reply = _message("sinew.proto.Reply")
Tensor = _message("sinew.proto.Tensor")
Value = _message("sinew.proto.Value")
HealthCheckRequest = _message("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = _message("grpc.health.v1.HealthCheckResponse")
Status = _message("google.rpc.Status")

DTYPES = _numbers("sinew.proto.DType")
DID_NOT_RUN = _numbers("sinew.proto.ExecutionState")["DID_NOT_RUN"]
ORIGINS = _numbers("sinew.proto.ErrorOrigin")
