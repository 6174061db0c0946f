#include "sinew/rpc/planes/nccl/internal/ordered_inbox.h"

#include <utility>

namespace sinew::internal::nccl {

void OrderedInbox::add(Numbered numbered) {
  if (numbered.sequence <= taken_ || numbered.sequence - taken_ > kWindow) return;
  held_.emplace(numbered.sequence, std::move(numbered.message));
}

std::optional<Message> OrderedInbox::take() {
  const auto next = held_.find(taken_ + 1);
  if (next == held_.end()) return std::nullopt;
  Message message = std::move(next->second);
  held_.erase(next);
  ++taken_;
  return message;
}

}  // namespace sinew::internal::nccl
