#include "sinew/autograd/internal/local_backward.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "ATen/core/grad_mode.h"

#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include "absl/strings/str_format.h"
#include "sinew/autograd/internal/node_hooks.h"
#include "sinew/autograd/internal/pass_engine.h"
#include "sinew/autograd/internal/stage_nodes.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::InputMetadata;
using torch::autograd::variable_list;

namespace {

// Two dense gradients need no order: a + b is b + a. A sum of sparse ones keeps the elements of
// both, one behind the other; such gradients go to leaves.
constexpr std::size_t kOrderedFrom = 3;
constexpr std::size_t kOrderedSparseFrom = 2;

// Gradients that take so long to compute are worth a message of their own, which costs some 0.1 ms.
constexpr auto kWorthAMessage = std::chrono::milliseconds(1);

}  // namespace

/// Hands the gradients of some leaves of a stage over, those on the CPU while other nodes of the
/// stage still have to run.
class LocalBackward::EarlyLeaves {
 public:
  EarlyLeaves(const Early& early, const std::vector<State*>& stage) : early_(early) {
    if (early_.takes_leaf == nullptr) return;
    for (const State* state : stage) {
      if (takes(*state) && is_on_cpu(*state)) ++open_;
    }
  }

  bool takes(const State& state) const {
    return state.kind == Kind::kLeaf && early_.takes_leaf != nullptr &&
           early_.takes_leaf(variable_of(state));
  }
  /// Some may leave before the end of the stage.
  bool any() const { return open_ > 0; }

  /// Lets `collector` hand over the gradient of `state`, a leaf of the stage.
  void watch(LocalBackward& local, State& state, Collector& collector) {
    if (!takes(state) || !is_on_cpu(state)) return;
    collector.on_gradients = [this, &local, &state, &collector] {
      local.add(state, std::move(collector.gradients));
      state.finished = true;
      hand_over(state, local.take_gradients(state));
    };
  }

  void hand_over(const State& state, variable_list gradients) const {
    early_.on_leaf(variable_of(state), std::move(gradients.at(0)));
  }

 private:
  static const at::Tensor& variable_of(const State& state) {
    return static_cast<const AccumulateGrad&>(*state.node).variable;
  }
  static bool is_on_cpu(const State& state) { return variable_of(state).device().is_cpu(); }

  const Early& early_;
  int open_ = 0;
};

/// Sends the gradients that a stage has for other workers while other nodes of the stage still have
/// to run: those for a worker when the last one is there, or as they come.
class LocalBackward::EarlySends {
 public:
  EarlySends(const Early& early, const std::vector<State*>& stage, EarlyLeaves& leaves)
      : early_(early), leaves_(leaves), last_send_(std::chrono::steady_clock::now()) {
    std::vector<State*> received;
    for (State* state : stage) {
      if (state->kind == Kind::kReceived) received.push_back(state);
    }
    // As in local autograd what was computed last comes first.
    std::sort(received.begin(), received.end(), [](const State* a, const State* b) {
      return recv_of(*a).message() < recv_of(*b).message();
    });
    for (State* state : received) {
      state->urgency = ++last_urgency_;
      const Incarnation worker = recv_of(*state).sender().incarnation;
      receivers_.insert(worker);
      Group& group = groups_[worker];
      group.states.push_back(state);
      group.on_cpu = group.on_cpu && is_on_cpu(*state);
    }
    for (auto& [worker, group] : groups_) {
      group.in_pieces = group.on_cpu && group.states.size() > 1 && early.in_pieces(worker);
      has_pieces_ = has_pieces_ || group.in_pieces;
    }
  }

  /// Some gradients may leave before others for the same worker.
  bool has_pieces() const { return has_pieces_; }

  /// Lets `collector` say when it has the gradients of `state`, a received tensor of the stage.
  /// `rest`: nodes of the stage run after all that is sent.
  void watch(LocalBackward& local, State& state, Collector& collector, bool rest) {
    Group& group = groups_.at(recv_of(state).sender().incarnation);
    // The engine's threads for other devices are not the one that called run().
    if (!group.on_cpu || !(rest || group.in_pieces)) return;
    ++group.open;
    collector.on_gradients = [this, &local, &state, &group, &collector] {
      local.add(state, std::move(collector.gradients));
      group.complete.push_back(&state);
      if (--group.open == 0) return send(local, group.states);
      const auto now = std::chrono::steady_clock::now();
      if (group.in_pieces && now - last_send_ >= kWorthAMessage) {
        send(local, std::exchange(group.complete, {}));
      }
    };
  }

  /// What was complete, but not taken.
  std::vector<Outgoing> take_left() { return std::move(left_); }

 private:
  struct Group {
    std::vector<State*> states;
    bool on_cpu = true;
    bool in_pieces = false;
    // Those that wait for the engine.
    int open = 0;
    // Those that it has brought, and that were not sent.
    std::vector<State*> complete;
  };

  static const RecvNode& recv_of(const State& state) {
    return static_cast<const RecvNode&>(*state.node);
  }

  static bool is_on_cpu(const State& state) {
    for (std::uint32_t i = 0; i < state.used.size(); ++i) {
      if (state.used[i] && !state.node->input_metadata(i).device().is_cpu()) return false;
    }
    return true;
  }

  void send(LocalBackward& local, const std::vector<State*>& states) {
    std::vector<Outgoing> outgoing;
    for (State* state : states) {
      if (!state->finished) local.finish(*state, outgoing, leaves_);
    }
    if (!early_.send(recv_of(*states.front()).sender().incarnation, outgoing, receivers_)) {
      for (Outgoing& one : outgoing) left_.push_back(std::move(one));
    }
    last_send_ = std::chrono::steady_clock::now();
  }

  const Early& early_;
  EarlyLeaves& leaves_;
  std::map<Incarnation, Group> groups_;
  std::set<Incarnation> receivers_;
  std::uint64_t last_urgency_ = 0;
  bool has_pieces_ = false;
  std::chrono::steady_clock::time_point last_send_;
  std::vector<Outgoing> left_;
};

// ---- The graph.

LocalBackward::LocalBackward(Entries entries, const autograd::ContextId& context, Graph graph)
    : context_(context), graph_(graph), entries_(std::move(entries)), sums_(search()) {
  nodes_left_ = states_.size();
}

// Visits all nodes that the entries lead to.
GradientSums LocalBackward::search() {
  GradientSums::Graph found;
  std::vector<std::pair<MessageName, std::uint64_t>> order;
  for (const auto& [entry, from] : entries_) order.emplace_back(from.name, entry);
  std::sort(order.begin(), order.end());
  struct Place {
    State* state;
    std::uint32_t next = 0;
  };
  std::vector<Place> path;
  const auto follow = [&](const Edge& edge) {
    if (!edge.is_valid()) return;
    const auto [state, is_new] = visit(edge);
    const std::size_t least = state->kind == Kind::kOperation ? kOrderedFrom : kOrderedSparseFrom;
    if (static_cast<std::size_t>(++state->waits) == least) {
      found.shared.emplace(edge.function.get(), least);
    }
    if (is_new && state->kind == Kind::kOperation) path.push_back({state});
  };
  for (const auto& [name, entry] : order) {
    const edge_list& edges = entries_.at(entry).edges;
    found.entries.emplace_back(entry, &edges);
    for (const Edge& edge : edges) {
      follow(edge);
      while (!path.empty()) {
        Place& place = path.back();
        const Node& node = *place.state->node;
        if (place.next < node.num_outputs()) {
          follow(node.next_edge(place.next++));
          continue;
        }
        found.operations.push_back(&node);
        place.state->number = found.operations.size();
        path.pop_back();
      }
    }
  }
  return GradientSums(found);
}

std::pair<LocalBackward::State*, bool> LocalBackward::visit(const Edge& edge) {
  const auto [slot, is_new] = states_.try_emplace(edge.function.get());
  if (is_new) slot->second = make_state(edge.function);
  State& state = *slot->second;
  if (state.kind == Kind::kReceived) state.used[edge.input_nr] = true;
  return {&state, is_new};
}

std::unique_ptr<LocalBackward::State> LocalBackward::make_state(
    const std::shared_ptr<Node>& node) const {
  auto state = std::make_unique<State>();
  state->node = node;
  if (auto* recv = dynamic_cast<RecvNode*>(node.get())) {
    if (recv->context() != context_) {
      throw RpcError(
          ErrorCode::kFailedPrecondition,
          absl::StrFormat("the graph leads to a tensor that came from worker '%s' in another "
                          "context (%s): detach() what is kept from one context to the next",
                          recv->sender().name, autograd::to_string(recv->context())));
    }
    state->kind = Kind::kReceived;
    state->used.resize(recv->num_inputs());
  } else if (dynamic_cast<AccumulateGrad*>(node.get()) != nullptr) {
    state->kind = Kind::kLeaf;
  }
  return state;
}

void LocalBackward::arrive(std::uint64_t entry, variable_list gradients) {
  const auto found = entries_.find(entry);
  if (found == entries_.end() || found->second.edges.size() != gradients.size()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("gradients came for message %d, which expects %s", entry,
                                   found == entries_.end() ? "none" : "another number of them"));
  }
  arrived_.push_back({entry, std::move(found->second.edges), std::move(gradients)});
  entries_.erase(found);
}

bool LocalBackward::reaches(const at::Tensor& leaf) const {
  const auto node = torch::autograd::impl::try_get_grad_accumulator(leaf);
  return node != nullptr && states_.contains(node.get());
}

std::vector<std::uint64_t> LocalBackward::missing() const {
  std::vector<std::uint64_t> result;
  for (const auto& [entry, from] : entries_) result.push_back(entry);
  return result;
}

void LocalBackward::add(State& state, std::uint32_t input, at::Tensor gradient) {
  if (!gradient.defined()) return;
  if (state.pending.empty()) state.pending.resize(state.node->num_inputs());
  at::Tensor& so_far = state.pending.at(input);
  so_far = so_far.defined() ? sum_of(so_far, gradient) : std::move(gradient);
}

void LocalBackward::add(State& state, variable_list gradients) {
  for (std::uint32_t i = 0; i < gradients.size(); ++i) add(state, i, std::move(gradients[i]));
}

// When the last one has arrived, the sum is all that the input gets.
void LocalBackward::add(const GradientSums::Addend& addend, at::Tensor gradient) {
  GradientSums::Sum& sum = *addend.sum;
  sums_begun_ = true;
  sum.so_far.add(addend.number, std::move(gradient));
  if (sum.so_far.is_complete()) add(*states_.at(sum.node), sum.input, sum.so_far.take());
}

bool LocalBackward::has_gradient(const State& state) {
  return std::any_of(state.pending.begin(), state.pending.end(),
                     [](const at::Tensor& gradient) { return gradient.defined(); });
}

// ---- Running.

std::vector<LocalBackward::Outgoing> LocalBackward::run(const Early& how) {
  const at::AutoGradMode no_grad(false);
  const std::vector<State*> stage = take_stage();
  nodes_left_ -= stage.size();
  for (Arrived& arrived : arrived_) {
    for (std::size_t i = 0; i < arrived.edges.size(); ++i) {
      const Edge& edge = arrived.edges[i];
      if (!edge.is_valid()) continue;
      State& state = *states_.at(edge.function.get());
      state.entered = true;
      const auto addend = sums_.of_entry(arrived.entry, static_cast<std::uint32_t>(i));
      if (addend.sum != nullptr) {
        add(addend, std::move(arrived.gradients[i]));
      } else {
        add(state, edge.input_nr, std::move(arrived.gradients[i]));
      }
    }
  }
  arrived_.clear();
  EarlyLeaves leaves(how, stage);
  EarlySends early(how, stage, leaves);
  if (early.has_pieces() || leaves.any() || !run_whole(stage)) run_stage(stage, early, leaves);
  std::vector<Outgoing> outgoing = early.take_left();
  for (State* state : stage) {
    if (!state->finished) finish(*state, outgoing, leaves);
  }
  return outgoing;
}

// The nodes that can run now, each before those that it leads to.
std::vector<LocalBackward::State*> LocalBackward::take_stage() {
  std::vector<State*> stage;
  const auto settle = [&](const Edge& edge) {
    if (!edge.is_valid()) return;
    State& state = *states_.at(edge.function.get());
    if (--state.waits > 0) return;
    state.in_stage = true;
    stage.push_back(&state);
  };
  for (const Arrived& arrived : arrived_) {
    for (const Edge& edge : arrived.edges) settle(edge);
  }
  for (std::size_t next = 0; next < stage.size(); ++next) {
    if (stage[next]->kind != Kind::kOperation) continue;
    for (const Edge& edge : stage[next]->node->next_edges()) settle(edge);
  }
  return stage;
}

// The common case: all that is left can run at once, as it always can in the end. Then the engine
// gets the graph as it is.
bool LocalBackward::run_whole(const std::vector<State*>& stage) {
  if (nodes_left_ > 0 || !entries_.empty()) return false;
  if (!sums_.engine_agrees() || sums_begun_) return false;
  edge_list outputs;
  bool operations = false;
  for (const State* state : stage) {
    const bool started = has_gradient(*state);
    if (state->kind == Kind::kOperation) {
      operations = true;
      // One that leads nowhere would be left out, and the engine ends the process when a root is
      // undefined.
      if (state->node->num_outputs() == 0 || (state->entered && !started)) return false;
      continue;
    }
    // The engine's hooks would see what comes now, not the sum.
    if (started) return false;
    if (state->kind == Kind::kLeaf) {
      outputs.emplace_back(state->node, 0);
    } else {
      for (std::uint32_t i = 0; i < state->used.size(); ++i) {
        if (state->used[i]) outputs.emplace_back(state->node, i);
      }
    }
  }
  if (!operations || outputs.empty()) return false;
  edge_list roots;
  variable_list gradients;
  for (State* state : stage) {
    for (std::uint32_t i = 0; i < state->pending.size(); ++i) {
      if (!state->pending[i].defined()) continue;
      roots.emplace_back(state->node, i);
      gradients.push_back(std::move(state->pending[i]));
    }
    state->pending.clear();
  }
  constexpr bool kAccumulate = false;
  variable_list results =
      run_in_pass(roots, gradients, graph_ == Graph::kRetain, kAccumulate, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    add(*states_.at(outputs[i].function.get()), outputs[i].input_nr, std::move(results[i]));
  }
  hooks_ran_ = true;
  return true;
}

// Of what the edge leads to, if that is in the stage.
std::uint64_t LocalBackward::urgency_of(const Edge& edge) const {
  if (!edge.is_valid()) return 0;
  const State& state = *states_.at(edge.function.get());
  return state.in_stage ? state.urgency : 0;
}

/// What stands for the nodes of a stage in the graph that the engine gets.
class LocalBackward::StageGraph {
 public:
  StageGraph(LocalBackward& local, const std::vector<State*>& stage) : local_(local) {
    // Backwards: an edge needs the node that it leads to.
    for (auto at = stage.rbegin(); at != stage.rend(); ++at) {
      if ((*at)->kind == Kind::kOperation) add_operation(**at);
    }
    if (undefined_.empty()) return;
    roots_.emplace_back(std::make_shared<Starter>(std::move(undefined_)), 0);
    gradients_.push_back(Starter::root());
  }

  bool empty() const { return proxies_.empty(); }
  /// Nodes run that no gradient for another worker depends on.
  bool has_rest() const { return has_rest_; }

  void watch(EarlySends& early, EarlyLeaves& leaves) {
    for (auto& [node, collector] : collectors_) {
      State& state = *local_.states_.at(node);
      if (!state.in_stage) continue;
      if (state.kind == Kind::kReceived) early.watch(local_, state, *collector, has_rest_);
      if (state.kind == Kind::kLeaf) leaves.watch(local_, state, *collector);
    }
  }

  void run() {
    constexpr bool kAccumulate = true;
    run_in_pass(roots_, gradients_, local_.graph_ == Graph::kRetain, kAccumulate);
    for (auto& [node, collector] : collectors_) {
      local_.add(*local_.states_.at(node), std::move(collector->gradients));
    }
  }

 private:
  void add_operation(State& state) {
    edge_list next;
    next.reserve(state.node->num_outputs());
    for (std::uint32_t i = 0; i < state.node->num_outputs(); ++i) {
      const Edge& edge = state.node->next_edge(i);
      next.push_back(edge.is_valid() ? place_of(edge, local_.sums_.of_output(state.node.get(), i))
                                     : Edge());
      state.urgency = std::max(state.urgency, local_.urgency_of(edge));
    }
    has_rest_ = has_rest_ || state.urgency == 0;
    auto proxy = std::make_shared<Proxy>(
        state.node, std::move(next), Proxy::Turn{state.urgency, state.number},
        local_.graph_ == Graph::kRelease ? Proxy::Saved::kRelease : Proxy::Saved::kKeep);
    bool started = false;
    for (std::uint32_t i = 0; i < state.pending.size(); ++i) {
      if (!state.pending[i].defined()) continue;
      started = true;
      roots_.emplace_back(proxy, i);
      gradients_.push_back(std::move(state.pending[i]));
    }
    state.pending.clear();
    if (state.entered && !started) undefined_.emplace_back(proxy, 0);
    proxies_.emplace(state.node.get(), std::move(proxy));
  }

  /// Where the engine brings what comes along `edge`.
  Edge place_of(const Edge& edge, const GradientSums::Addend& addend) {
    State& state = *local_.states_.at(edge.function.get());
    if (addend.sum == nullptr) return input_of(state, edge.input_nr);
    edge_list next;
    if (state.in_stage) {
      next.push_back(sum_of(state, edge.input_nr));
    } else {
      state.entered = true;
    }
    auto add = [local = &local_, addend](at::Tensor gradient) {
      local->add(addend, std::move(gradient));
    };
    return Edge(
        std::make_shared<AddendNode>(*state.node, edge.input_nr, std::move(next), std::move(add)),
        0);
  }

  Edge sum_of(State& state, std::uint32_t input) {
    std::shared_ptr<SumNode>& sum = sums_[{state.node.get(), input}];
    if (sum == nullptr) {
      auto take = [&state, input] { return LocalBackward::take_pending(state, input); };
      sum = std::make_shared<SumNode>(*state.node, input, input_of(state, input), std::move(take));
    }
    return Edge(sum, 0);
  }

  Edge input_of(State& state, std::uint32_t input) {
    if (state.in_stage && state.kind == Kind::kOperation) {
      return Edge(proxies_.at(state.node.get()), input);
    }
    std::shared_ptr<Collector>& collector = collectors_[state.node.get()];
    if (collector == nullptr) collector = std::make_shared<Collector>(*state.node);
    state.entered = true;
    return Edge(collector, input);
  }

  LocalBackward& local_;
  absl::flat_hash_map<const Node*, std::shared_ptr<Proxy>> proxies_;
  absl::flat_hash_map<const Node*, std::shared_ptr<Collector>> collectors_;
  absl::flat_hash_map<std::pair<const Node*, std::uint32_t>, std::shared_ptr<SumNode>> sums_;
  edge_list roots_;
  variable_list gradients_;
  edge_list undefined_;
  bool has_rest_ = false;
};

// Some nodes have to wait for gradients that are not there: the engine gets a copy of the part that
// can run, cut where the rest begins. Its own means cannot cut there, since gradients for a node
// beyond the cut may come from this side of it too.
void LocalBackward::run_stage(const std::vector<State*>& stage, EarlySends& early,
                              EarlyLeaves& leaves) {
  StageGraph graph(*this, stage);
  if (graph.empty()) return;
  graph.watch(early, leaves);
  graph.run();
}

at::Tensor LocalBackward::take_pending(State& state, std::uint32_t input) {
  return state.pending.empty() ? at::Tensor() : std::move(state.pending[input]);
}

variable_list LocalBackward::take_gradients(State& state) const {
  variable_list gradients = std::move(state.pending);
  gradients.resize(state.node->num_inputs());
  return run_captured_hooks(*state.node, std::move(gradients),
                            hooks_ran_ ? CapturedBy::kEngine : CapturedBy::kUs);
}

void LocalBackward::finish(State& state, std::vector<Outgoing>& outgoing, EarlyLeaves& leaves) {
  state.finished = true;
  if (state.kind == Kind::kOperation) return;
  variable_list gradients = take_gradients(state);
  if (leaves.takes(state)) return leaves.hand_over(state, std::move(gradients));
  if (state.kind == Kind::kLeaf) {
    leaves_.push_back(
        {std::static_pointer_cast<AccumulateGrad>(state.node), std::move(gradients.at(0))});
    return;
  }
  Outgoing out;
  out.node = std::static_pointer_cast<RecvNode>(state.node);
  for (std::uint32_t i = 0; i < state.used.size(); ++i) {
    if (!state.used[i]) continue;
    out.indexes.push_back(i);
    out.gradients.push_back(std::move(gradients[i]));
  }
  outgoing.push_back(std::move(out));
}

}  // namespace sinew::internal
