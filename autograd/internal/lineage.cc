#include "sinew/autograd/internal/lineage.h"

#include <algorithm>

namespace sinew::internal {
namespace {

// Far more than a program sends in one context; a peer must not fill the memory.
constexpr std::size_t kMaxFacts = std::size_t{1} << 20;

}  // namespace

bool Lineage::add(const EdgeId& edge, Behind behind, Incarnation from) {
  if (facts_.contains(edge)) return true;
  if (facts_.size() >= kMaxFacts) return false;
  facts_.emplace(edge, std::move(behind));
  log_.push_back({edge, from});
  return true;
}

const Behind* Lineage::find(const EdgeId& edge) const {
  const auto found = facts_.find(edge);
  return found == facts_.end() ? nullptr : &found->second;
}

std::vector<Lineage::Fact> Lineage::news_for(Incarnation peer, std::size_t limit) {
  std::vector<Fact> news;
  std::size_t& next = told_[peer];
  while (next < log_.size() && news.size() < limit) {
    const Entry& entry = log_[next++];
    if (entry.from == peer || entry.edge.sender == peer) continue;
    news.emplace_back(entry.edge, facts_.at(entry.edge));
  }
  return news;
}

void LiveEdges::start(const Behind& roots) { visit(roots, self_); }

void LiveEdges::visit(const Behind& behind, Incarnation receiver) {
  for (const EdgeId& edge : behind.received) {
    live_.insert(edge);
    if (receiver != self_) from_others_.insert(edge.sender);
    if (seen_.insert(edge).second) open_.push_back(edge);
  }
  for (const EdgeId& edge : behind.as) {
    if (seen_.insert(edge).second) open_.push_back(edge);
  }
}

std::map<Incarnation, std::vector<EdgeId>> LiveEdges::follow(const Lineage& lineage) {
  std::map<Incarnation, std::vector<EdgeId>> unknown;
  std::vector<EdgeId> waiting;
  while (!open_.empty()) {
    const EdgeId edge = open_.back();
    open_.pop_back();
    if (const Behind* behind = lineage.find(edge)) {
      visit(*behind, edge.sender);
    } else {
      unknown[edge.sender].push_back(edge);
      waiting.push_back(edge);
    }
  }
  open_ = std::move(waiting);
  return unknown;
}

std::map<Incarnation, std::vector<MessageEdges>> LiveEdges::by_sender() const {
  std::map<Incarnation, std::map<std::uint64_t, std::vector<std::uint32_t>>> sorted;
  for (const EdgeId& edge : live_) sorted[edge.sender][edge.message].push_back(edge.index);
  std::map<Incarnation, std::vector<MessageEdges>> result;
  for (auto& [sender, messages] : sorted) {
    for (auto& [message, indexes] : messages) {
      std::sort(indexes.begin(), indexes.end());
      result[sender].push_back({message, std::move(indexes)});
    }
  }
  return result;
}

}  // namespace sinew::internal
