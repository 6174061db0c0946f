#include "sinew/autograd/internal/ended_contexts.h"

#include <algorithm>

namespace sinew::internal {

void EndedContexts::add(Incarnation teller, const autograd::ContextId& id,
                        std::uint64_t live_from) {
  Word& word = by_teller_[teller];
  const bool is_new = !word.by_creator.contains(id.creator);
  if (is_new && word.by_creator.size() >= kMaxCreatorsPerTeller) return;
  Ended& ended = word.by_creator[id.creator];
  word.contexts -= ended.contexts.size();
  ended.live_from = std::max(ended.live_from, live_from);
  if (id.serial >= ended.live_from) ended.contexts.emplace(id.serial, id.secret);
  ended.contexts.erase(ended.contexts.begin(), ended.contexts.lower_bound({ended.live_from, 0}));
  if (word.contexts + ended.contexts.size() > kMaxPerTeller) {
    ended.contexts.erase(ended.contexts.begin());
  }
  word.contexts += ended.contexts.size();
}

bool EndedContexts::has_said(Incarnation teller, const autograd::ContextId& id) const {
  const auto word = by_teller_.find(teller);
  if (word == by_teller_.end()) return false;
  const auto ended = word->second.by_creator.find(id.creator);
  return ended != word->second.by_creator.end() &&
         (id.serial < ended->second.live_from ||
          ended->second.contexts.count({id.serial, id.secret}) > 0);
}

bool EndedContexts::contains(const autograd::ContextId& id, Incarnation caller) const {
  return has_said(id.creator, id) || has_said(caller, id);
}

std::uint64_t EndedContexts::live_from(Incarnation creator) const {
  const auto word = by_teller_.find(creator);
  if (word == by_teller_.end()) return 0;
  const auto ended = word->second.by_creator.find(creator);
  return ended == word->second.by_creator.end() ? 0 : ended->second.live_from;
}

void EndedContexts::forget(Incarnation worker) {
  by_teller_.erase(worker);
  for (auto& [teller, word] : by_teller_) {
    const auto ended = word.by_creator.find(worker);
    if (ended == word.by_creator.end()) continue;
    word.contexts -= ended->second.contexts.size();
    word.by_creator.erase(ended);
  }
}

std::size_t EndedContexts::size() const {
  std::size_t size = 0;
  for (const auto& [teller, word] : by_teller_) size += word.contexts;
  return size;
}

}  // namespace sinew::internal
