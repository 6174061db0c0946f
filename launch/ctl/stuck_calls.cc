#include "sinew/launch/ctl/stuck_calls.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/launch/ctl/columns.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

constexpr std::uint64_t kVeryOld = 10;

}  // namespace

CallGraph::CallGraph(const JobView& job, std::chrono::microseconds patience)
    : patience_us_(static_cast<std::uint64_t>(patience.count())) {
  for (const WorkerView& view : job) add_nodes(view);
  for (const WorkerView& view : job) add_made(view);
  add_turns();
}

void CallGraph::add_nodes(const WorkerView& view) {
  for (const proto::ServedCall& call : view.state.served_calls()) {
    Node node;
    node.at = &view;
    node.call = &call;
    node.method = call.method();
    // Clients choose their numbers themselves.
    if (!call.caller().name().empty()) {
      by_key_[{view.state.worker().incarnation(), call.caller().incarnation(), call.id()}] =
          nodes_.size();
    }
    nodes_.push_back(std::move(node));
  }
}

void CallGraph::add_made(const WorkerView& view) {
  const std::uint64_t self = view.state.worker().incarnation();
  for (const proto::MadeCall& made : view.state.made_calls()) {
    const auto callee = by_key_.find({made.callee().incarnation(), self, made.id()});
    // What no thread has begun its callee has not read.
    if (callee != by_key_.end() && nodes_[callee->second].method.empty()) {
      nodes_[callee->second].method = made.method();
    }
    const auto parent = by_key_.find({self, made.parent_caller(), made.parent_id()});
    if (parent == by_key_.end()) continue;
    if (callee != by_key_.end()) {
      nodes_[parent->second].waits_for.push_back(callee->second);
    } else {
      nodes_[parent->second].waits_for_unseen.push_back(
          absl::StrCat(cut_text(made.method()), " at ", cut_text(made.callee().name())));
    }
  }
}

void CallGraph::add_turns() {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> holders;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const proto::ServedCall& call = *nodes_[i].call;
    const bool holds = call.turn_of() != 0 && call.turns_ahead() == 0 &&
                       call.state() != proto::ServedCall::WAITS_FOR_TURN;
    if (holds) holders[{nodes_[i].at->state.worker().incarnation(), call.turn_of()}] = i;
  }
  for (Node& node : nodes_) {
    if (node.call->state() != proto::ServedCall::WAITS_FOR_TURN || node.call->turn_of() == 0)
      continue;
    const auto holder = holders.find({node.at->state.worker().incarnation(), node.call->turn_of()});
    if (holder != holders.end()) node.waits_for.push_back(holder->second);
  }
}

bool CallGraph::is_old(const Node& node) const { return node.call->age_us() >= patience_us_; }

std::string CallGraph::text_of(const Node& node) const {
  const std::string caller =
      node.call->caller().name().empty()
          ? absl::StrCat("a client at ", cut_text(node.call->origin()))
          : absl::StrCat("worker '", cut_text(node.call->caller().name()), "'");
  return absl::StrCat(node.method.empty() ? "a call" : cut_text(node.method), " at worker '",
                      cut_text(node.at->name), "' (of ", caller, ", number ", node.call->id(), ", ",
                      time_text(node.call->age_us()), " old, ", state_text(node.call->state()),
                      ")");
}

std::vector<Finding> CallGraph::cycles() const {
  std::vector<Finding> found;
  std::vector<int> marks(nodes_.size(), 0);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    std::vector<std::size_t> path;
    if (marks[i] == 0) visit(i, path, marks, found);
  }
  return found;
}

// Depth first, as everybody does it: 1 is on the path, 2 is done. Each cycle has one edge that
// leads back to the path.
void CallGraph::visit(std::size_t start, std::vector<std::size_t>& path, std::vector<int>& marks,
                      std::vector<Finding>& found) const {
  struct Step {
    std::size_t node;
    std::size_t next = 0;
  };
  std::vector<Step> steps = {{start}};
  marks[start] = 1;
  path.push_back(start);
  while (!steps.empty()) {
    Step& step = steps.back();
    const std::vector<std::size_t>& edges = nodes_[step.node].waits_for;
    if (step.next == edges.size()) {
      marks[step.node] = 2;
      path.pop_back();
      steps.pop_back();
      continue;
    }
    const std::size_t to = edges[step.next++];
    if (marks[to] == 1) {
      const auto begin = std::find(path.begin(), path.end(), to);
      if (!std::all_of(begin, path.end(), [&](std::size_t i) { return is_old(nodes_[i]); }))
        continue;
      Finding finding{Finding::Kind::kCycle,
                      {absl::StrCat(path.end() - begin, " calls wait for each other:")}};
      for (auto i = begin; i != path.end(); ++i) {
        finding.lines.push_back(absl::StrCat(text_of(nodes_[*i]), " waits for"));
      }
      finding.lines.push_back(absl::StrCat("the first one, ", cut_text(nodes_[to].method),
                                           " at worker '", cut_text(nodes_[to].at->name), "'"));
      found.push_back(std::move(finding));
    } else if (marks[to] == 0) {
      marks[to] = 1;
      path.push_back(to);
      steps.push_back({to});
    }
  }
}

std::size_t CallGraph::count_behind(std::size_t root) const {
  std::vector<std::vector<std::size_t>> waited_by(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const std::size_t to : nodes_[i].waits_for) waited_by[to].push_back(i);
  }
  std::set<std::size_t> behind = {root};
  std::vector<std::size_t> left = {root};
  while (!left.empty()) {
    const std::size_t node = left.back();
    left.pop_back();
    for (const std::size_t each : waited_by[node]) {
      if (behind.insert(each).second) left.push_back(each);
    }
  }
  return behind.size() - 1;
}

std::vector<Finding> CallGraph::roots() const {
  std::vector<std::pair<std::size_t, Finding>> found;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.waits_for.empty() || !is_old(node) ||
        node.call->state() == proto::ServedCall::QUEUED) {
      continue;
    }
    const std::size_t behind = count_behind(i);
    // Methods that run for a while, and that no other call waits for, are no news.
    const bool is_very_old = node.call->age_us() / kVeryOld >= patience_us_;
    if (behind == 0 && node.waits_for_unseen.empty() && !is_very_old) continue;
    Finding finding{Finding::Kind::kRoot, {text_of(node)}};
    if (!node.waits_for_unseen.empty()) {
      finding.lines.push_back(absl::StrCat("has called, and no worker reports what became of it: ",
                                           absl::StrJoin(node.waits_for_unseen, ", ")));
    } else {
      finding.lines.push_back("waits for no other call: look at what the method does");
    }
    if (behind > 0) finding.lines.push_back(absl::StrCat("calls that wait for it: ", behind));
    found.push_back({behind, std::move(finding)});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Finding> findings;
  for (auto& [behind, finding] : found) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace sinew::internal
