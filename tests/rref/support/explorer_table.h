#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "sinew/tests/rref/support/explorer_worker.h"

namespace sinew::internal::ledger {

/// A packet that was seen before is the same object.
struct Letter {
  std::uint32_t id = 0;
  Packet packet;
};

/// A worker's state that was seen before is the same object.
struct Node {
  std::uint32_t id = 0;
  WorkerState state;
  std::uint32_t lost = 0;                          // bits of workers that it knows to be lost
  std::vector<std::vector<std::uint64_t>> claims;  // by owner: forks that it was told are listed
  std::vector<std::uint64_t> listed;               // of all its references, with their holders
  bool lost_own_value = false;                     // a local handle of a destroyed value

  explicit Node(WorkerState made) : state(std::move(made)) {}
};

/// A reaction, with states and packets by identity.
struct Effect {
  const Node* next = nullptr;
  std::vector<const Letter*> sent;  // sorted by id
  std::string violation;

  bool same_as(const Effect& other) const { return next == other.next && sent == other.sent; }
};

/// Whether all orders are told apart, or only those that can lead to different results.
enum class Reduction { kNone, kFull };

/// Every state that a worker was seen in, and every reaction that was computed: the same few
/// thousands meet in millions of combinations.
class ReactionTable {
 public:
  ReactionTable(const Scenario& scenario, Reduction reduction);

  const WorkerModel& model() const { return model_; }
  const Node& node(WorkerState state);
  const Letter& letter(Packet packet);

  /// What the worker does when that happens.
  const Effect& react(const Node& worker, const Letter& letter, const Moment& moment);

  /// The same, and with Reduction::kFull also what it does when some of its programs have made
  /// silent steps before, where that makes a difference. Such steps are taken nowhere else (see
  /// is_silent), so that a silent step itself is among its ways only after others, with which it is
  /// not silent any more.
  const std::vector<Effect>& react_all_ways(const Node& worker, const Letter& letter,
                                            const Moment& moment);

  /// Whether the slot's next step drops a handle, sends nothing and destroys nothing. Nobody sees
  /// such a step before the next thing that happens to the worker; it can be put off until then,
  /// and past what happens where the order of the two makes no difference.
  bool is_silent(const Node& worker, int slot, const Moment& moment);

  const Letter& step_of(int slot) { return *steps_[static_cast<std::size_t>(slot)]; }

 private:
  struct Key {
    std::uint32_t node;
    std::uint32_t letter;
    std::int64_t now;
    bool faulty;
    friend bool operator==(const Key& a, const Key& b) {
      return a.node == b.node && a.letter == b.letter && a.now == b.now && a.faulty == b.faulty;
    }
    template <class H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.node, k.letter, k.now, k.faulty);
    }
  };

  std::vector<int> silent_slots(const Node& worker, const Letter& before, const Moment& moment);
  /// The worker after these steps; nullptr if one of them is not silent any more after the others.
  const Node* after_silence(const Node& worker, const std::vector<int>& slots,
                            const Moment& moment);
  bool is_silent_step(const Node& worker, const Letter& letter, const Moment& moment);
  Effect after_all(Effect first, const std::vector<int>& slots, const Moment& moment);

  const WorkerModel model_;
  const Reduction reduction_;
  absl::flat_hash_map<std::string, std::unique_ptr<Node>> nodes_;
  absl::flat_hash_map<std::string, std::unique_ptr<Letter>> letters_;
  absl::node_hash_map<Key, Effect> effects_;
  absl::node_hash_map<Key, std::vector<Effect>> ways_;
  std::vector<const Letter*> steps_;
};

}  // namespace sinew::internal::ledger
