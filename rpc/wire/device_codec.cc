#include "sinew/rpc/wire/device_codec.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/value.pb.h"

namespace sinew::internal {

void write_device(c10::Device device, proto::Device& out) {
  switch (device.type()) {
    case c10::DeviceType::CPU:
      return;
    case c10::DeviceType::CUDA:
      out.set_type(proto::Device::CUDA);
      break;
    case c10::DeviceType::PrivateUse1:
      out.set_type(proto::Device::PRIVATE);
      break;
    default:
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrCat("tensors on ", device.str(),
                                  " do not travel to devices; pass tensor.cpu()"));
  }
  out.set_index(static_cast<std::uint32_t>(device.index()));
}

std::optional<c10::Device> read_device(const proto::Device& in) {
  if (in.type() == proto::Device::CPU) return c10::Device(c10::kCPU);
  if (in.index() > std::uint32_t{std::numeric_limits<c10::DeviceIndex>::max()}) return std::nullopt;
  const auto index = static_cast<c10::DeviceIndex>(in.index());
  if (in.type() == proto::Device::CUDA) return c10::Device(c10::kCUDA, index);
  if (in.type() == proto::Device::PRIVATE) return c10::Device(c10::kPrivateUse1, index);
  return std::nullopt;
}

}  // namespace sinew::internal
