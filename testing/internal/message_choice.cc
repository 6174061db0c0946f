#include "sinew/testing/internal/message_choice.h"

#include <utility>

namespace sinew::internal {

MessageChoice::MessageChoice(testing::Messages messages)
    : messages_(std::move(messages)), random_(messages_.seed()) {}

bool MessageChoice::choose(const testing::Message& message) {
  if (!messages_.includes(message)) return false;
  // Drawn for each, so that it depends on the count alone.
  const bool drawn = std::generate_canonical<double, 53>(random_) < messages_.probability();
  if (matched_++ < messages_.skipped()) return false;
  if (!drawn || chosen_ >= messages_.limit()) return false;
  ++chosen_;
  return true;
}

}  // namespace sinew::internal
