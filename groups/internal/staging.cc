#include "sinew/groups/internal/staging.h"

#include <string>

#include "ATen/ATen.h"
#include "ATen/MemoryOverlap.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

Staged::Staged(const at::Tensor& tensor)
    : tensor_(tensor.requires_grad() ? tensor.detach() : tensor) {
  // Microseconds count where a backend needs few.
  if (!tensor_.is_conj() && !tensor_.is_neg() && tensor_.is_contiguous()) {
    contiguous_ = tensor_;
  } else {
    // A conjugate or negative view has memory that says something else.
    contiguous_ = tensor_.resolve_conj().resolve_neg().contiguous();
  }
}

at::Tensor Staged::bytes() const { return contiguous_.view({contiguous_.numel()}).view(at::kByte); }

void Staged::write_back() const {
  if (!contiguous_.is_same(tensor_) && contiguous_.data_ptr() != tensor_.data_ptr()) {
    tensor_.copy_(contiguous_);
  }
}

void check_tensor(const at::Tensor& tensor, std::string_view what, TensorUse use) {
  const auto refuse = [&](const char* why) {
    throw RpcError(ErrorCode::kInvalidArgument, absl::StrCat(std::string(what), " ", why));
  };
  if (!tensor.defined()) refuse("is undefined");
  if (tensor.layout() != at::kStrided) {
    refuse("is sparse; groups take dense tensors: call to_dense()");
  }
  if (tensor.is_quantized()) refuse("is quantized; dequantize it");
  if (tensor.is_meta()) refuse("is on the device 'meta' and has no values");
  if (use == TensorUse::kWritten && at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    refuse(
        "is expanded: several of its elements share memory; pass a tensor of its own, clone() "
        "makes one");
  }
}

}  // namespace sinew::internal
