#include "sinew/groups/internal/staging.h"

#include <cstdint>
#include <string>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/overlap.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// To read another byte as a bool is undefined behaviour, and MIN and MAX of such bytes are no
// bools.
bool has_odd_bools(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kBool || tensor.numel() == 0) return false;
  return tensor.view(at::kByte).max().item<std::uint8_t>() > 1;
}

}  // namespace

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

void check_tensor(const at::Tensor& tensor, std::string_view what, TensorUse use,
                  std::optional<std::size_t> at) {
  const auto refuse = [&](const char* why) {
    const std::string number = at ? absl::StrCat("tensor ", *at, " of ") : std::string();
    throw RpcError(ErrorCode::kInvalidArgument, absl::StrCat(number, std::string(what), " ", why));
  };
  if (!tensor.defined()) refuse("is undefined");
  if (tensor.layout() != at::kStrided) {
    refuse("is sparse; groups take dense tensors: call to_dense()");
  }
  if (tensor.is_quantized()) refuse("is quantized; dequantize it");
  if (tensor.is_meta()) refuse("is on the device 'meta' and has no values");
  if (use != TensorUse::kRead && overlaps_itself(tensor)) {
    refuse(
        "is expanded or has windows that overlap: several of its elements share memory; pass a "
        "tensor of its own, clone() makes one");
  }
  if (use != TensorUse::kWritten && has_odd_bools(tensor)) {
    refuse(
        "is of bool and has bytes other than 0 and 1, which are no bools: pass "
        "tensor.view(at::kByte).ne(0)");
  }
}

void check_apart(const std::vector<at::Tensor>& outputs, std::string_view what) {
  const auto shared = first_that_share(outputs);
  if (!shared) return;
  throw RpcError(
      ErrorCode::kInvalidArgument,
      absl::StrCat("tensors ", shared->first, " and ", shared->second, " of ", std::string(what),
                   " share memory, and each rank's values need their own: make each by "
                   "itself, as at::empty_like() does"));
}

}  // namespace sinew::internal
