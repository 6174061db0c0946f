#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sinew/rref/internal/ledger.h"
#include "sinew/tests/rref/support/scenario.h"

namespace sinew::internal::ledger {

WorkerInfo worker_info(int worker);

/// Something that a worker reacts to.
struct Packet {
  enum class Kind : std::uint8_t {
    kControl,
    kRecord,         // a call or result with one reference in it
    kCreateCall,     //
    kRunCall,        // at the owner: the creating call runs; not a message
    kCreateReply,    //
    kCreateGivenUp,  // at the creator: its call has failed; not a message
    kRecordGivenUp,  // at the giver: the call that carried the record has failed; not a message
    kLost,           // `from` is lost; not a message
    kStep,           // the program of `slot` goes on; not a message
    kTick,           // not a message
  };
  Kind kind = Kind::kControl;
  int from = 0;
  int to = 0;
  int slot = -1;      // whose reference it is about; -1: of no one
  bool twin = false;  // the second copy of a message whose first has been delivered, or will be
  std::optional<LedgerMessage> message;
  ForkRecord record;
  RRefId rref;
  ForkId fork;

  bool is_message() const;
  bool is_call() const { return is_message() && kind != Kind::kControl; }
  /// Equal texts mean equal packets.
  std::string text() const;
  /// For traces.
  std::string name() const;
};

/// Where a slot's handle is in its life.
struct Handle {
  enum class Status : std::uint8_t { kNone, kWaiting, kUsable, kFailed, kReleased };
  Status status = Status::kNone;
  Role role = Role::kUser;
  std::uint8_t shared = 0;  // children served
  RRefId rref;
  ForkId fork;
};

/// Of which slots something is to be seen.
using SlotFilter = std::function<bool(int slot)>;

/// One worker: its ledger and its programs. A value type.
struct WorkerState {
  Ledger ledger;
  bool alive = true;
  std::vector<Handle> handles;    // by slot; of other workers' slots kNone
  std::vector<RRefId> created;    // entries that were made here
  std::vector<RRefId> destroyed;  // and ended

  /// Equal texts mean equal states, as far as references of the slots in `seen` go.
  std::string text(const SlotFilter& seen) const;
};

/// When a worker reacts.
struct Moment {
  Time now{0};
  bool faulty = false;  // something but a duplicate happened: references may fail
};

struct Reaction {
  WorkerState next;
  std::vector<Packet> sent;
  std::string violation;  // of an invariant that one worker alone can break
};

/// What one worker does, as a function of its state and of what happens to it. Ids do not depend on
/// the path: each slot has its own serials, so that states that differ in names only are one state.
class WorkerModel {
 public:
  explicit WorkerModel(const Scenario& scenario);

  WorkerState started(int worker) const;
  WorkerState dead(int worker) const;
  Reaction react(const WorkerState& worker, const Packet& packet, const Moment& moment) const;

  bool can_step(const WorkerState& worker, int slot) const;
  /// Whether the next step of the slot drops its handle.
  bool releases_next(const WorkerState& worker, int slot) const;

  /// The packet that tells the sender of a slot's creating call, or of the call that carried its
  /// record, that this call failed.
  Packet given_up(int slot) const;

  const Scenario& scenario() const { return scenario_; }

 private:
  struct Turn;

  Actions react_to(Turn& turn, const Packet& packet) const;
  Actions on_control(Turn& turn, const Packet& packet) const;
  Actions on_record(Turn& turn, const Packet& packet) const;
  Actions on_create(Turn& turn, const Packet& packet) const;
  Actions run_call(Turn& turn, const Packet& packet) const;
  Actions finish_create(Turn& turn, const Packet& packet) const;
  Actions step(Turn& turn, int slot) const;
  Actions start(Turn& turn, int slot) const;
  Actions share(Turn& turn, int slot) const;
  Actions release(Turn& turn, int slot) const;
  void perform(Turn& turn, const Action& action) const;

  const Slot& slot(int index) const { return scenario_.slots[static_cast<std::size_t>(index)]; }

  const Scenario scenario_;
  std::vector<std::vector<int>> children_;
};

}  // namespace sinew::internal::ledger
