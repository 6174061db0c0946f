#include "sinew/rpc/transport/quota.h"

#include <algorithm>

#include "sinew/rpc/transport/origin.h"

namespace sinew::internal {

Quota::Share& Quota::Share::operator=(Share&& other) noexcept {
  reset();
  quota_ = std::move(other.quota_);
  origin_ = std::move(other.origin_);
  amount_ = std::exchange(other.amount_, 0);
  return *this;
}

void Quota::Share::reset() {
  if (const auto quota = std::exchange(quota_, nullptr)) quota->give_back(origin_, amount_);
}

Quota::Share Quota::take(const std::shared_ptr<Quota>& quota, const std::string& origin,
                         std::size_t amount, IfAlone if_alone) {
  Share share;
  if (!quota->take(origin, amount, if_alone)) return share;
  share.quota_ = quota;
  share.origin_ = origin;
  share.amount_ = amount;
  return share;
}

bool Quota::take(const std::string& origin, std::size_t amount, IfAlone if_alone) {
  const std::size_t most = origin == kOwnUser ? in_all_ : std::min(per_origin_, in_all_);
  const auto fits = [amount](std::size_t used, std::size_t limit) {
    return used <= limit && amount <= limit - used;
  };
  MutexLock lock(mutex_);
  const auto entry = used_by_.find(origin);
  const std::size_t used_by_it = entry == used_by_.end() ? 0 : entry->second;
  const bool alone = if_alone == IfAlone::kFitsAlways && used_by_it == 0;
  if (!alone && !(fits(used_, in_all_) && fits(used_by_it, most))) return false;
  used_ += amount;
  if (amount > 0) used_by_[origin] = used_by_it + amount;
  return true;
}

void Quota::give_back(const std::string& origin, std::size_t amount) {
  if (amount == 0) return;
  MutexLock lock(mutex_);
  used_ -= amount;
  const auto entry = used_by_.find(origin);
  if ((entry->second -= amount) == 0) used_by_.erase(entry);
}

std::size_t Quota::used() const {
  MutexLock lock(mutex_);
  return used_;
}

}  // namespace sinew::internal
