#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// So much of something that strangers may use up, in all and from one origin (see origin.h), so
/// that one of them can exhaust its own share only. Processes of this user (kOwnUser) share
/// whatever there is in all. Thread-safe.
class Quota {
 public:
  Quota(std::size_t in_all, std::size_t per_origin) : in_all_(in_all), per_origin_(per_origin) {}

  /// A part of a quota, which goes back when this is destroyed.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept;
    ~Share() { reset(); }
    void reset();
    explicit operator bool() const { return quota_ != nullptr; }

   private:
    friend class Quota;
    std::shared_ptr<Quota> quota_;
    std::string origin_;
    std::size_t amount_ = 0;
  };

  /// Whether an origin that has nothing yet may take more than there is.
  enum class IfAlone { kMustFit, kFitsAlways };
  /// An empty share when there is no room.
  static Share take(const std::shared_ptr<Quota>& quota, const std::string& origin,
                    std::size_t amount, IfAlone if_alone = IfAlone::kMustFit);

  std::size_t in_all() const { return in_all_; }
  std::size_t per_origin() const { return per_origin_; }
  /// What is taken at the moment.
  std::size_t used() const;

 private:
  bool take(const std::string& origin, std::size_t amount, IfAlone if_alone);
  void give_back(const std::string& origin, std::size_t amount);

  const std::size_t in_all_;
  const std::size_t per_origin_;
  mutable Mutex mutex_;
  std::size_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Without those that have nothing.
  absl::flat_hash_map<std::string, std::size_t> used_by_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
