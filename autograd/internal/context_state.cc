#include "sinew/autograd/internal/context_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/autograd/internal/backward_pass.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

using torch::autograd::edge_list;

namespace {

// What is beyond it is asked for.
constexpr std::size_t kMaxNews = 1024;

void add_once(const std::shared_ptr<LeafReducer>& reducer,
              std::vector<std::shared_ptr<LeafReducer>>& all) {
  if (std::find(all.begin(), all.end(), reducer) == all.end()) all.push_back(reducer);
}

}  // namespace

ContextState::ContextState(autograd::ContextId id, WorkerInfo self)
    : id_(id), self_(std::move(self)), walk_(self_.incarnation, id_), book_(self_.incarnation) {}

ContextState::~ContextState() = default;

bool ContextState::released() const {
  MutexLock lock(mutex_);
  return released_.has_value();
}

bool ContextState::is_lost() const {
  MutexLock lock(mutex_);
  return released_ == Released::kLost;
}

ContextState::Remains ContextState::release(Released why) {
  Remains remains;
  // Destroyed without the lock: destructors of nodes may run anything.
  Sends sends;
  GradientTable gradients;
  std::vector<std::shared_ptr<LeafReducer>> reducers;
  std::vector<std::shared_ptr<LeafReducer>> past_reducers;
  PassReductions reductions;
  {
    MutexLock lock(mutex_);
    if (!released_.has_value()) released_ = why;
    reducers.swap(reducers_);
    past_reducers.swap(past_reducers_);
    std::swap(reductions, reductions_);
    remains.pass = std::move(pass_);
    pass_ = nullptr;
    for (const auto& [incarnation, peer] : peers_) remains.peers.push_back(peer);
    peers_.clear();
    sends.swap(sends_);
    recvs_.clear();
    walk_.clear();
    lineage_ = Lineage();
    std::swap(gradients, gradients_);
  }
  return remains;
}

// ---- Recording.

bool ContextState::add_peer(const WorkerInfo& peer) {
  MutexLock lock(mutex_);
  if (released_.has_value()) return false;
  if (peer != self_) peers_.try_emplace(peer.incarnation, peer);
  return true;
}

std::vector<WorkerInfo> ContextState::peers() const {
  MutexLock lock(mutex_);
  std::vector<WorkerInfo> result;
  for (const auto& [incarnation, peer] : peers_) result.push_back(peer);
  return result;
}

bool ContextState::takes_part(const WorkerInfo& worker) const {
  MutexLock lock(mutex_);
  const auto found = peers_.find(worker.incarnation);
  return found != peers_.end() && found->second == worker;
}

void ContextState::record_send(std::uint64_t message, const WorkerInfo& receiver,
                               LocalBackward::Entry entry) {
  MutexLock lock(mutex_);
  if (released_.has_value()) return;
  for (std::uint32_t i = 0; i < entry.edges.size(); ++i) {
    const EdgeId id{self_.incarnation, message, i};
    for (auto& [about, behind] : walk_.send(id, entry.edges[i])) {
      lineage_.add(about, std::move(behind), self_.incarnation);
    }
  }
  sends_.emplace(message, Sent{receiver.incarnation, std::move(entry)});
}

void ContextState::record_recv(std::shared_ptr<RecvNode> node) {
  MutexLock lock(mutex_);
  if (!released_.has_value()) recvs_[node->edge(0)] = std::move(node);
}

void ContextState::learn(const std::vector<Lineage::Fact>& facts, Incarnation from) {
  MutexLock lock(mutex_);
  if (released_.has_value()) return;
  for (const auto& [edge, behind] : facts) {
    // About its own graph this worker knows better.
    if (edge.sender != self_.incarnation && !lineage_.add(edge, behind, from)) return;
  }
}

std::vector<Lineage::Fact> ContextState::news_for(const WorkerInfo& peer) {
  MutexLock lock(mutex_);
  return lineage_.news_for(peer.incarnation, kMaxNews);
}

// ---- Searching.

Behind ContextState::behind_edges(const edge_list& edges) const {
  MutexLock lock(mutex_);
  return walk_.behind(edges);
}

std::vector<Lineage::Fact> ContextState::facts_about(const std::vector<EdgeId>& edges) const {
  MutexLock lock(mutex_);
  std::vector<Lineage::Fact> facts;
  std::vector<EdgeId> open = edges;
  absl::flat_hash_set<EdgeId> seen(edges.begin(), edges.end());
  while (!open.empty()) {
    const EdgeId edge = open.back();
    open.pop_back();
    const Behind* behind = lineage_.find(edge);
    if (behind == nullptr) continue;
    facts.emplace_back(edge, *behind);
    // Who asks about an edge will ask about those that it leads to next.
    for (const auto* next : {&behind->received, &behind->as}) {
      for (const EdgeId& more : *next) {
        if (seen.insert(more).second) open.push_back(more);
      }
    }
  }
  return facts;
}

std::map<Incarnation, std::vector<EdgeId>> ContextState::follow(LiveEdges& live) const {
  MutexLock lock(mutex_);
  return live.follow(lineage_);
}

// ---- Passes.

absl::StatusOr<ContextState::Joined> ContextState::join_pass(
    const PassId& id, const std::function<std::shared_ptr<BackwardPass>()>& make) {
  MutexLock lock(mutex_);
  if (released_.has_value()) {
    return absl::NotFoundError(absl::StrFormat("context %s has ended at worker '%s'",
                                               autograd::to_string(id_), self_.name));
  }
  PassBook::Joined how = book_.join(id);
  Joined joined;
  switch (how.how) {
    case PassBook::Joining::kIsOver:
      return absl::AbortedError(
          absl::StrFormat("this backward pass has ended at worker '%s'", self_.name));
    case PassBook::Joining::kMustWait:
      return absl::FailedPreconditionError(absl::StrFormat(
          "a backward pass of context %s runs at worker '%s' already: passes of one context run "
          "one after the other",
          autograd::to_string(id_), self_.name));
    case PassBook::Joining::kBegins:
      if (how.stale.has_value()) joined.stale = std::move(pass_);
      pass_ = make();
      break;
    case PassBook::Joining::kRuns:
      break;
  }
  joined.pass = pass_;
  return joined;
}

absl::StatusOr<ContextState::Entries> ContextState::entries(
    const std::vector<MessageEdges>& live) const {
  MutexLock lock(mutex_);
  Entries entries;
  for (const MessageEdges& edges : live) {
    const auto found = sends_.find(edges.message);
    if (found == sends_.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("worker '%s' has sent no message %d in context %s", self_.name,
                          edges.message, autograd::to_string(id_)));
    }
    const edge_list& all = found->second.entry.edges;
    LocalBackward::Entry& entry = entries[edges.message];
    entry.name = found->second.entry.name;
    for (const std::uint32_t index : edges.indexes) {
      if (index >= all.size()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "message %d of worker '%s' has no edge %d", edges.message, self_.name, index));
      }
      entry.edges.push_back(all[index]);
    }
  }
  return entries;
}

absl::Status ContextState::check_brings(Incarnation from,
                                        const std::vector<EdgeGradients>& gradients) const {
  MutexLock lock(mutex_);
  for (const EdgeGradients& one : gradients) {
    const auto found = sends_.find(one.edges.message);
    if (found != sends_.end() && found->second.receiver == from) continue;
    // The same text for a message that is none: who guesses learns nothing.
    return absl::PermissionDeniedError(absl::StrFormat(
        "gradients came for message %d in context %s, which worker '%s' has not sent to the worker "
        "that brings them",
        one.edges.message, autograd::to_string(id_), self_.name));
  }
  return absl::OkStatus();
}

bool ContextState::add_reducer(const std::shared_ptr<LeafReducer>& reducer) {
  MutexLock lock(mutex_);
  if (released_.has_value()) return false;
  // A module may be used several times before the pass.
  add_once(reducer, reducers_);
  return true;
}

std::vector<std::shared_ptr<LeafReducer>> ContextState::past_reducers() const {
  MutexLock lock(mutex_);
  return past_reducers_;
}

std::vector<std::shared_ptr<LeafReducer>> ContextState::take_reducers() {
  MutexLock lock(mutex_);
  return std::exchange(reducers_, {});
}

bool ContextState::commit(const PassId& id, std::vector<LocalBackward::Leaf>& leaves,
                          const PassReductions& reductions,
                          const PassReductions::Reduced& reduced) {
  PassReductions before;
  MutexLock lock(mutex_);
  if (released_.has_value() || !book_.runs(id)) return false;
  gradients_.add(id, leaves, reduced);
  for (const auto& reducer : reductions.reducers()) add_once(reducer, past_reducers_);
  before = std::exchange(reductions_, reductions);
  reduced_by_ = id;
  return true;
}

void ContextState::end_pass(const PassId& id, PassPart::End end) {
  std::shared_ptr<BackwardPass> ended;
  PassReductions taken_back;
  {
    MutexLock lock(mutex_);
    if (released_.has_value()) return;
    const PassBook::Added added = book_.end(id, end);
    if (!book_.running().has_value()) ended = std::move(pass_);
    if (ended != nullptr) pass_ = nullptr;
    const bool is_last = reduced_by_ == id;
    if (added == PassBook::Added::kIsTakenBack && gradients_.undo(id) && is_last) {
      taken_back = std::exchange(reductions_, {});
    }
  }
  if (!taken_back.empty()) {
    taken_back.fail(make_error(absl::AbortedError("the pass has failed at another worker")));
  }
}

void ContextState::owe_failure(std::uint64_t failed, const std::vector<Incarnation>& workers) {
  MutexLock lock(mutex_);
  for (const Incarnation worker : workers) book_.owe(failed, worker);
}

void ContextState::settle_failure(std::uint64_t failed, Incarnation worker) {
  MutexLock lock(mutex_);
  book_.settle(failed, worker);
}

std::vector<std::uint64_t> ContextState::failures_owed_to(Incarnation worker) const {
  MutexLock lock(mutex_);
  return book_.owed_to(worker);
}

std::shared_ptr<BackwardPass> ContextState::pass() const {
  MutexLock lock(mutex_);
  return pass_;
}

// ---- Gradients.

bool ContextState::scale_gradients(const std::vector<at::Tensor>& leaves, double factor,
                                   std::uint64_t operation) {
  MutexLock lock(mutex_);
  if (pass_ != nullptr) return false;
  gradients_.scale(leaves, factor, operation);
  return true;
}

at::Tensor ContextState::gradient_of(const at::Tensor& leaf) const {
  MutexLock lock(mutex_);
  return gradients_.find(leaf);
}

std::vector<std::pair<at::Tensor, at::Tensor>> ContextState::gradients() const {
  MutexLock lock(mutex_);
  return gradients_.all();
}

ContextState::Sizes ContextState::sizes() const {
  MutexLock lock(mutex_);
  Sizes sizes;
  sizes.sends = sends_.size();
  sizes.recvs = recvs_.size();
  sizes.passes = pass_ == nullptr ? 0 : 1;
  sizes.facts = lineage_.size();
  sizes.nodes = walk_.looked_at();
  return sizes;
}

}  // namespace sinew::internal
