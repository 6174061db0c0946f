#pragma once

#include <cstdint>
#include <string>

#include "sinew/rpc/membership/registry/gathers.h"
#include "sinew/rpc/membership/registry/paced_clock.h"
#include "sinew/rpc/membership/registry/registry_messages.h"
#include "sinew/rpc/membership/registry/roster.h"

namespace sinew::internal::registry {

/// What a job's registrar knows: the members, and the gathers that are under way. Pure: each input
/// changes tables and returns what is to be sent. A value type; not thread-safe.
///
/// Ground rules for the caller:
///  - `from` is the worker at the other end of the link that a request came from, whatever the
///    request says.
///  - What is sent to a worker without a link is dropped: it asks again.
///  - tick() is called as often as the options say. The table takes the rest for time in which the
///    registrar was stopped, and which does not count.
class RegistryTable {
 public:
  RegistryTable(Options options, Time now);

  /// `echo`: the token of the latest answer that the sender has had; 0: it has had none.
  Effects handle(Incarnation from, std::uint64_t echo, const Request& request, Time now);
  /// One that waits to join cannot be told that it may: it may ask again.
  void hung_up(Incarnation worker) { roster_.stop_waiting(worker); }
  /// The process of that worker has ended for certain.
  Effects ended(Incarnation worker, const std::string& reason, Time now);
  Effects tick(Time now);

  const Roster& roster() const { return roster_; }
  const Gathers& gathers() const { return gathers_; }
  /// Time that the leases have seen.
  Time time() const { return clock_.time(); }

 private:
  Effects end(Effects effects);

  Options options_;
  PacedClock clock_;
  Roster roster_;
  Gathers gathers_;
};

}  // namespace sinew::internal::registry
