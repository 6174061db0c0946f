#pragma once

#include <cstddef>

#include "ATen/core/Tensor.h"
#include "sinew/rpc/wire/value_reader.h"

namespace sinew {

namespace proto {
class Tensor;
}

namespace internal {

class DecodeContext;
class EncodeContext;

/// Tensors of fewer bytes are copied into the message; from here on it refers to their memory.
constexpr std::size_t kMinAliasedBytes = 4096;

/// Describes `tensor` in `description`, which must be empty, and adds its elements to the context's
/// payloads: its own bytes only, however large the storage is. The elements of a tensor on a device
/// are copied to the host, unless the context's DeviceRoad takes them.
///
/// A payload of kMinAliasedBytes or more refers to the tensor's storage and keeps it alive, so the
/// elements must not change until the payload is gone. It is a copy where the storage does not own
/// its memory (from_blob without a deleter), or the elements have gaps, overlap or wait to be
/// conjugated or negated.
///
/// Throws RpcError kInvalidArgument for what does not travel: devices for which the DeviceRoad has
/// no target, quantized tensors, layouts other than strided and sparse COO, element types that the
/// format has no number for.
void encode_tensor(const at::Tensor& tensor, proto::Tensor& description, EncodeContext& context);
/// The same with a target that does not come from the DeviceRoad.
void encode_tensor_to(const at::Tensor& tensor, const c10::Device& target,
                      proto::Tensor& description, EncodeContext& context);

/// The tensor of a description, with memory of its own: the payload's, if that was received into a
/// block of the receive pool that has no other holder. Otherwise memory that the payload refers to
/// is free again when this returns. Takes the payload out of the context. A tensor for a device is
/// on its way there, ordered before later work of this thread's current stream.
///
/// Throws RpcError kInvalidArgument for a description that does not hold together, before anything
/// is allocated, or kResourceExhausted where it passes the context's limits or the machine's
/// memory.
at::Tensor decode_tensor(const proto::Tensor& description, DecodeContext& context,
                         const ValuePath& path);

/// Uninitialised memory for a tensor that is being received. `strides` are those of a dense tensor
/// of these sizes. From the receive pool when it is ReceivePool::kMinBytes or more. May throw
/// c10::Error or std::bad_alloc when there is no memory.
at::Tensor allocate_receive_tensor(at::IntArrayRef sizes, at::IntArrayRef strides,
                                   at::ScalarType type);

}  // namespace internal
}  // namespace sinew
