#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sinew/launch/ctl/stuck.h"

namespace sinew::internal {

/// Which call that is being served waits for which other one, over all workers: those that a call
/// has made, and the one that has the turn at its object. Pure.
class CallGraph {
 public:
  CallGraph(const JobView& job, std::chrono::microseconds patience);

  /// Each cycle once.
  std::vector<Finding> cycles() const;
  /// Calls without others that they wait for, for which others wait, or that are ten times as old
  /// as the patience.
  std::vector<Finding> roots() const;

 private:
  struct Node {
    const WorkerView* at = nullptr;
    const proto::ServedCall* call = nullptr;
    std::string method;
    std::vector<std::size_t> waits_for;
    /// It has called workers that have not told of it.
    std::vector<std::string> waits_for_unseen;
  };
  /// Who serves it, who has made it, its number there.
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

  void add_nodes(const WorkerView& view);
  void add_made(const WorkerView& view);
  void add_turns();
  bool is_old(const Node& node) const;
  void visit(std::size_t node, std::vector<std::size_t>& path, std::vector<int>& marks,
             std::vector<Finding>& found) const;
  std::size_t count_behind(std::size_t root) const;
  std::string text_of(const Node& node) const;

  const std::uint64_t patience_us_;
  std::vector<Node> nodes_;
  std::map<Key, std::size_t> by_key_;
};

}  // namespace sinew::internal
