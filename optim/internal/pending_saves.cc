#include "sinew/optim/internal/pending_saves.h"

#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxUnclaimed = 16;

}  // namespace

void PendingSaves::add(const CheckpointId& id, Future<void> written) {
  MutexLock lock(mutex_);
  // Those of trainers that were lost meanwhile.
  for (auto at = writing_.begin(); writing_.size() >= kMaxUnclaimed && at != writing_.end();) {
    at = at->second.done() ? writing_.erase(at) : std::next(at);
  }
  writing_[id] = std::move(written);
}

Future<void> PendingSaves::take(const CheckpointId& id) {
  MutexLock lock(mutex_);
  const auto found = writing_.find(id);
  if (found == writing_.end()) {
    throw RpcError(ErrorCode::kNotFound,
                   absl::StrFormat("no save of checkpoint %d has begun here", id.number));
  }
  Future<void> written = std::move(found->second);
  writing_.erase(found);
  return written;
}

}  // namespace sinew::internal
