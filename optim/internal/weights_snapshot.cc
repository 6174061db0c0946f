#include "sinew/optim/internal/weights_snapshot.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// Elements that are converted at once.
constexpr std::int64_t kConverted = std::int64_t{1} << 20;

absl::Status bad(const std::string& name, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("weights: tensor '", printable(name, 256), "' ", why));
}

bool is_converted(const at::Tensor& tensor, bool as_bf16) {
  return as_bf16 && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
}

/// Dense, on the CPU and row-major.
absl::StatusOr<at::Tensor> plain(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) return bad(name, "is undefined");
  if (tensor.is_meta()) return bad(name, "is on the meta device, and has no elements");
  if (tensor.is_quantized()) return bad(name, "is quantized: publish tensor.dequantize()");
  if (tensor.is_nested()) return bad(name, "is nested: publish the tensors of its unbind()");
  at::Tensor dense = tensor.detach();
  if (dense.layout() != at::kStrided) dense = dense.to_dense();
  return dense.cpu().resolve_conj().resolve_neg().contiguous();
}

absl::Status write_tensor(const at::Tensor& tensor, std::size_t offset, bool as_bf16,
                          const SharedBytes::Writer& writer) {
  if (!is_converted(tensor, as_bf16)) {
    return writer.write(offset, tensor.data_ptr(), tensor.nbytes());
  }
  const at::Tensor flat = tensor.view({-1});
  for (std::int64_t at = 0; at < flat.numel(); at += kConverted) {
    const at::Tensor piece =
        flat.slice(0, at, std::min(flat.numel(), at + kConverted)).to(at::kBFloat16);
    const absl::Status written = writer.write(offset, piece.data_ptr(), piece.nbytes());
    if (!written.ok()) return written;
    offset += piece.nbytes();
  }
  return absl::OkStatus();
}

at::Tensor bytes_tensor(std::string text) {
  const auto kept = std::make_shared<std::string>(std::move(text));
  return at::from_blob(
      kept->data(), {static_cast<std::int64_t>(kept->size())}, [kept](void*) {}, at::kByte);
}

}  // namespace

at::Tensor WeightsSnapshot::read(std::uint64_t offset, std::uint64_t count) const {
  const std::uint64_t size = content_.bytes->size();
  if (offset > size || count > size - offset || count > kMostRead) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("weights: %d bytes at %d were asked for, and the version has %d",
                                   count, offset, size));
  }
  // It is not written to: the message reads it, and then lets go of it.
  char* const data = const_cast<char*>(content_.bytes->data()) + offset;
  return at::from_blob(
      data, {static_cast<std::int64_t>(count)}, [kept = content_.bytes](void*) {}, at::kByte);
}

at::Tensor WeightsSnapshot::changes(const std::string& base) const {
  {
    MutexLock lock(mutex_);
    if (known_ && known_->base == base) return known_->bytes;
  }
  const auto found = std::find_if(bases_.begin(), bases_.end(), [&](const WeightsContent& each) {
    return each.digest == base && each.layout == content_.layout;
  });
  at::Tensor bytes = at::empty({0}, at::kByte);
  if (found != bases_.end()) {
    std::optional<std::string> encoded = encode_changes(
        content_.layout, found->bytes->data(), content_.bytes->data(), content_.bytes->size() / 2);
    if (encoded && !encoded->empty()) bytes = bytes_tensor(std::move(*encoded));
  }
  MutexLock lock(mutex_);
  known_ = WeightsChanges{base, bytes};
  return bytes;
}

absl::StatusOr<UnsealedWeights> copy_weights(const optim::StateDict& tensors, bool as_bf16) {
  std::vector<NamedShape> shapes;
  std::vector<at::Tensor> sources;
  for (const auto& [name, tensor] : tensors) {
    absl::StatusOr<at::Tensor> source = plain(name, tensor);
    if (!source.ok()) return source.status();
    const at::ScalarType type =
        is_converted(*source, as_bf16) ? at::kBFloat16 : source->scalar_type();
    shapes.push_back({name, static_cast<std::int32_t>(type), source->sizes().vec()});
    sources.push_back(std::move(*source));
  }
  absl::StatusOr<WeightsLayout> layout =
      WeightsLayout::make(std::move(shapes), std::numeric_limits<std::int64_t>::max());
  if (!layout.ok()) return layout.status();
  absl::StatusOr<SharedBytes::Writer> writer = SharedBytes::Writer::make(layout->bytes());
  if (!writer.ok()) return writer.status();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const absl::Status written =
        write_tensor(sources[i], layout->places()[i].offset, as_bf16, *writer);
    if (!written.ok()) return written;
  }
  return UnsealedWeights{std::move(*layout), std::move(*writer)};
}

absl::StatusOr<WeightsContent> seal_weights(UnsealedWeights weights) {
  auto bytes = std::move(weights.writer).seal();
  if (!bytes.ok()) return bytes.status();
  std::string digest = weights.layout.digest({(*bytes)->data(), (*bytes)->size()});
  return WeightsContent{std::move(weights.layout), std::move(*bytes), std::move(digest)};
}

absl::StatusOr<WeightsContent> change_weights(const WeightsContent& base,
                                              std::string_view changes) {
  absl::StatusOr<SharedBytes::Writer> writer = SharedBytes::Writer::make(base.bytes->size());
  if (!writer.ok()) return writer.status();
  const absl::Status copied = writer->write(0, base.bytes->data(), base.bytes->size());
  if (!copied.ok()) return copied;
  {
    const absl::StatusOr<std::shared_ptr<char>> memory = writer->map();
    if (!memory.ok()) return memory.status();
    const absl::Status changed = apply_changes(base.layout, changes, memory->get());
    if (!changed.ok()) return changed;
  }
  return seal_weights({base.layout, std::move(*writer)});
}

absl::StatusOr<optim::StateDict> tensors_of(const WeightsContent& content) {
  const absl::StatusOr<std::shared_ptr<char>> memory = content.bytes->map_private();
  if (!memory.ok()) return memory.status();
  optim::StateDict tensors;
  for (std::size_t i = 0; i < content.layout.tensors().size(); ++i) {
    const NamedShape& shape = content.layout.tensors()[i];
    tensors.emplace(shape.name,
                    at::from_blob(
                        memory->get() + content.layout.places()[i].offset, shape.sizes,
                        [kept = *memory](void*) {}, static_cast<at::ScalarType>(shape.type)));
  }
  return tensors;
}

}  // namespace sinew::internal
