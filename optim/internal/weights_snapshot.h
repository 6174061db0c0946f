#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "sinew/optim/internal/shared_bytes.h"
#include "sinew/optim/internal/weights_layout.h"
#include "sinew/optim/state_dict.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// The bytes of one version, which never change, and what they mean.
struct WeightsContent {
  WeightsLayout layout;
  std::shared_ptr<const SharedBytes> bytes;
  std::string digest;
};

/// A difference between the version of that digest and a later one.
struct WeightsChanges {
  std::string base;
  at::Tensor bytes;
};

/// One version, at the writer or at a reader that has it: others take it from here by calls. Lives
/// as long as there is a reference to it, so a slow reader gets the version that it began with.
/// Thread-safe.
class WeightsSnapshot {
 public:
  /// The most that one read() gives: so receivers need little memory in addition to the version
  /// itself.
  static constexpr std::uint64_t kMostRead = std::uint64_t{16} << 20;

  /// `bases` are former versions whose changes it can tell; `known` are changes that it got itself.
  WeightsSnapshot(WeightsContent content, std::vector<WeightsContent> bases,
                  std::optional<WeightsChanges> known = std::nullopt)
      : content_(std::move(content)), bases_(std::move(bases)), known_(std::move(known)) {}

  const WeightsContent& content() const { return content_; }

  /// Bytes, without a copy. Throws RpcError kInvalidArgument for those that it does not have, and
  /// for more than kMostRead.
  at::Tensor read(std::uint64_t offset, std::uint64_t count) const;
  /// What makes this version of the one with that digest; empty where that is not known, or would
  /// be more than half of the whole.
  at::Tensor changes(const std::string& base) const;

 private:
  const WeightsContent content_;
  const std::vector<WeightsContent> bases_;
  mutable Mutex mutex_;
  // The last one that was asked for: mostly all ask for the same.
  mutable std::optional<WeightsChanges> known_ ABSL_GUARDED_BY(mutex_);
};

/// Tensors in memory of their own, which is not sealed yet.
struct UnsealedWeights {
  WeightsLayout layout;
  SharedBytes::Writer writer;
};
/// Copies the tensors, those of float and double as bfloat16 if `as_bf16`. kInvalidArgument, which
/// names the tensor, for what is no dense tensor of a type that travels.
absl::StatusOr<UnsealedWeights> copy_weights(const optim::StateDict& tensors, bool as_bf16);
/// Also finds out the digest.
absl::StatusOr<WeightsContent> seal_weights(UnsealedWeights weights);
/// `base`, which has the same layout, with these changes.
absl::StatusOr<WeightsContent> change_weights(const WeightsContent& base, std::string_view changes);
/// Views of the bytes, for users: see SharedBytes::map_private().
absl::StatusOr<optim::StateDict> tensors_of(const WeightsContent& content);

}  // namespace sinew::internal
