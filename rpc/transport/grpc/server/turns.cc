#include "sinew/rpc/transport/grpc/server/turns.h"

#include <algorithm>
#include <utility>

namespace sinew::internal {

std::uint64_t Turns::enter(const std::string& origin, Begin begin) {
  std::uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    number = next_++;
    Quota::Share share = Quota::take(at_a_time_, origin, 1);
    if (!share) {
      waiting_.push_back({number, origin, std::move(begin)});
      return number;
    }
    running_.emplace(number, std::move(share));
  }
  std::move(begin)();
  return number;
}

void Turns::leave(std::uint64_t number) {
  std::vector<Begin> next;
  {
    MutexLock lock(mutex_);
    if (running_.erase(number) == 0) {
      const auto found =
          std::find_if(waiting_.begin(), waiting_.end(),
                       [number](const Waiting& each) { return each.number == number; });
      if (found != waiting_.end()) waiting_.erase(found);
      return;
    }
    // The first one whose origin has room: others of it do not hold up everybody.
    for (auto each = waiting_.begin(); each != waiting_.end(); ++each) {
      Quota::Share share = Quota::take(at_a_time_, each->origin, 1);
      if (!share) continue;
      running_.emplace(each->number, std::move(share));
      next.push_back(std::move(each->begin));
      waiting_.erase(each);
      break;
    }
  }
  for (Begin& begin : next) std::move(begin)();
}

}  // namespace sinew::internal
