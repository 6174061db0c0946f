#include "sinew/rpc/calls/arrival_order.h"

namespace sinew::internal {

ArrivalOrder::Numbers ArrivalOrder::on_frame(std::uint64_t number) {
  arrived_.add(number, FrameNumbers::Report::kLater);
  return advance();
}

void ArrivalOrder::on_call(std::uint64_t number) {
  arrived_.add(number, FrameNumbers::Report::kLater);
  calls_.emplace(number, false);
}

ArrivalOrder::Numbers ArrivalOrder::pass(std::uint64_t number) {
  calls_.erase(number);
  return advance();
}

ArrivalOrder::Numbers ArrivalOrder::ready(std::uint64_t number) {
  calls_[number] = true;
  return advance();
}

// All before a number have arrived when the numbers from 1 to it have.
ArrivalOrder::Numbers ArrivalOrder::advance() {
  Numbers next;
  const std::uint64_t first_missing = arrived_.first_missing();
  while (!calls_.empty()) {
    const auto first = calls_.begin();
    if (!first->second || first->first >= first_missing) break;
    next.push_back(first->first);
    calls_.erase(first);
  }
  return next;
}

}  // namespace sinew::internal
