#pragma once

#include <optional>

#include "c10/core/Device.h"

namespace sinew {

namespace proto {
class Device;
}

namespace internal {

/// `device` is the CPU, or one of a kind that the format has a number for, with an index. Throws
/// RpcError kInvalidArgument for others.
void write_device(c10::Device device, proto::Device& out);
/// Nothing for a kind that is unknown and for an index that no device can have.
std::optional<c10::Device> read_device(const proto::Device& in);

}  // namespace internal
}  // namespace sinew
