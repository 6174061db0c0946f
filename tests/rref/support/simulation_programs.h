#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "sinew/tests/rref/support/simulation_cluster.h"

namespace sinew::internal::ledger {

/// Random programs: they make references, pass them in calls and results, use them and drop them.
class SimulatedPrograms {
 public:
  /// `cluster` must outlive everything that is still to happen on it.
  explicit SimulatedPrograms(SimulatedCluster& cluster) : cluster_(cluster) {}

  /// Somebody does something.
  void step();

 private:
  using Handle = SimulatedCluster::Handle;
  using Node = SimulatedCluster::Node;
  using Call = SimulatedCluster::Call;
  using UnderWay = SimulatedCluster::UnderWay;

  int add_handle(int number, Handle handle);
  /// A handle that can be used or shared now, or nothing.
  std::map<int, Handle>::iterator some_handle(int number);
  void own(int number);
  void finish_later(int owner, const RRefId& rref, const std::function<void(bool)>& done);
  void create(int number);
  void on_create(int owner, int caller, const RRefId& rref, const ForkId& fork, Time deadline);
  absl::StatusOr<ForkRecord> pack(int number, const Handle& handle, int target, Time deadline);
  /// A call with references as arguments, and perhaps one in its result.
  void call(int number);
  void send_records(int from, int to, const std::vector<ForkRecord>& records, Time deadline,
                    const std::function<void()>& then);
  void take_in(int number, int from, const ForkRecord& record);
  void reply(int callee, int caller, int id);
  void use(int number);
  void on_use(int owner, int user, const UserView& seen);
  void drop_some_handle(int number);

  SimulatedCluster& cluster_;
  std::uint64_t last_carrier_ = 0;
  int last_handle_ = 0;
};

}  // namespace sinew::internal::ledger
