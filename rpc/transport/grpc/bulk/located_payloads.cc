#include "sinew/rpc/transport/grpc/bulk/located_payloads.h"

#include <utility>

namespace sinew::internal {

// What a payload refers to is freed where it is dropped, which may run code of LibTorch: never
// under the lock.

bool LocatedPayloads::add(std::uint64_t transfer, Payload payload) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  kept_bytes_.fetch_add(payload.bytes.size(), std::memory_order_relaxed);
  payloads_.emplace(transfer, std::move(payload));
  return true;
}

std::optional<LocatedPayloads::Payload> LocatedPayloads::take(std::uint64_t transfer) {
  std::optional<Payload> payload;
  {
    MutexLock lock(mutex_);
    const auto found = payloads_.find(transfer);
    if (found == payloads_.end()) return std::nullopt;
    payload = std::move(found->second);
    payloads_.erase(found);
  }
  kept_bytes_.fetch_sub(payload->bytes.size(), std::memory_order_relaxed);
  planes_.release(payload->location);
  return payload;
}

bool LocatedPayloads::release(const std::vector<std::uint64_t>& transfers) {
  for (const std::uint64_t transfer : transfers) {
    if (take(transfer).has_value()) continue;
    MutexLock lock(mutex_);
    return closed_;
  }
  return true;
}

void LocatedPayloads::close() {
  absl::flat_hash_map<std::uint64_t, Payload> dropped;
  MutexLock lock(mutex_);
  closed_ = true;
  dropped.swap(payloads_);
}

}  // namespace sinew::internal
