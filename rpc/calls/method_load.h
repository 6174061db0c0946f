#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// How much of one method is being served, against its limits. Thread-safe. Held by shared_ptr:
/// what was admitted may end after its worker.
class MethodLoad final : public std::enable_shared_from_this<MethodLoad> {
 public:
  MethodLoad(std::int64_t max_calls, std::int64_t max_bytes)
      : max_calls_(max_calls), max_bytes_(max_bytes) {}

  /// What one call takes of the limits, given back when this goes, at the latest.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept = default;
    Share& operator=(Share&& other) noexcept;
    ~Share() { give_back(); }
    void give_back();

   private:
    friend class MethodLoad;
    Share(std::shared_ptr<MethodLoad> load, std::int64_t bytes);

    std::shared_ptr<MethodLoad> load_;
    std::int64_t bytes_ = 0;
  };

  /// kResourceExhausted when a call with so many bytes would be over a limit; the text says which.
  absl::StatusOr<Share> admit(std::int64_t bytes);

  std::int64_t calls() const;
  std::int64_t bytes() const;

 private:
  void end(std::int64_t bytes);

  // Constant after construction.
  const std::int64_t max_calls_;
  const std::int64_t max_bytes_;

  mutable Mutex mutex_;
  std::int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sinew::internal
