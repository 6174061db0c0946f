#include "sinew/groups/internal/mpi/mpi_pieces.h"

#include <cstdint>
#include <utility>

#include "ATen/ATen.h"

namespace sinew::internal {
namespace {

// Of one storage, so that there is a tensor of all of it.
bool lie_in_a_row(const std::vector<at::Tensor>& tensors) {
  std::int64_t place = tensors[0].storage_offset();
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_alias_of(tensors[0]) || tensor.storage_offset() != place) return false;
    place += tensor.numel();
  }
  return true;
}

std::int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  return elements;
}

}  // namespace

MpiPieces::MpiPieces(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  const at::NoGradGuard no_grad;
  const std::int64_t elements = elements_of(tensors_);
  is_copy_ = !lie_in_a_row(tensors_);
  memory_ = is_copy_
                ? at::empty({elements}, tensors_[0].options().requires_grad(false))
                : tensors_[0].detach().as_strided({elements}, {1}, tensors_[0].storage_offset());
}

void MpiPieces::copy_in() const {
  if (!is_copy_) return;
  const at::NoGradGuard no_grad;
  std::int64_t place = 0;
  for (const at::Tensor& tensor : tensors_) {
    memory_.narrow(0, place, tensor.numel()).copy_(tensor.view(-1));
    place += tensor.numel();
  }
}

void MpiPieces::copy_out() const {
  if (!is_copy_) return;
  const at::NoGradGuard no_grad;
  std::int64_t place = 0;
  for (const at::Tensor& tensor : tensors_) {
    tensor.view(-1).copy_(memory_.narrow(0, place, tensor.numel()));
    place += tensor.numel();
  }
}

}  // namespace sinew::internal
