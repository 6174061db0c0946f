#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/rpc/membership/registry/registry_table.h"
#include "sinew/rpc/membership/registry_codec.h"
#include "sinew/rpc/membership/scheduler.h"

namespace sinew::internal {

/// The worker that holds a job's list: carries what others ask to the table, and what it answers
/// back. On the thread of the scheduler's runner alone.
class Registrar : public std::enable_shared_from_this<Registrar> {
 public:
  using OnOwn = std::function<void(const SaidByRegistrar&)>;

  /// `on_own` takes what this worker itself is told.
  Registrar(const registry::Options& options, ControlPlane& plane, Scheduler& scheduler,
            OnOwn on_own);
  void start();
  /// Nobody is answered any more.
  void close();

  /// An empty request: who answers here?
  Future<std::string> serve(const WorkerInfo& from, const std::string& body);
  void ask_as_own(const AskedOfRegistrar& asked);
  void on_process_ended(Incarnation worker, const std::string& reason);
  Incarnation id() const { return options_.registrar; }

 private:
  /// A worker that waits for an answer.
  struct Held {
    Promise<std::string> answer;
    registry::Time until;
  };

  registry::Time now() const { return scheduler_.now().time_since_epoch(); }
  void tick();
  void deliver(const registry::Effects& effects);
  void say(Incarnation to, SaidByRegistrar said);
  void end_waits(registry::Time now);

  const registry::Options options_;
  ControlPlane& plane_;
  Scheduler& scheduler_;
  const OnOwn on_own_;
  registry::RegistryTable table_;
  bool is_closed_ = false;
  std::map<Incarnation, Held> held_;
  /// Of these, why they wait: said when their time is over.
  std::map<Incarnation, SaidByRegistrar> waits_;
  /// Who has asked, as its link says.
  std::map<Incarnation, WorkerInfo> askers_;
};

}  // namespace sinew::internal
