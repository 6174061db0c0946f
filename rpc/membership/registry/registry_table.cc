#include "sinew/rpc/membership/registry/registry_table.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "sinew/rpc/membership/registry/registry_bugs.h"

namespace sinew::internal::registry {

RegistryTable::RegistryTable(Options options, Time now)
    : options_(std::move(options)),
      clock_(now, 2 * options_.tick),
      roster_(options_, now),
      gathers_(options_) {}

Effects RegistryTable::handle(Incarnation from, std::uint64_t echo, const Request& request,
                              Time now) {
  const Time time = clock_.pass(now);
  Effects out;
  roster_.heard(from, echo, time, out);
  std::visit(
      [&](const auto& each) {
        using Kind = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<Kind, Join>) {
          roster_.join(from, each, time, out);
        } else if constexpr (std::is_same_v<Kind, Return>) {
          roster_.come_back(from, each, out);
        } else if constexpr (std::is_same_v<Kind, Leave>) {
          roster_.leave(from, each, out);
        } else if (const WorkerInfo* member = roster_.find(from); member == nullptr) {
          roster_.send_away(from, out);
        } else if constexpr (std::is_same_v<Kind, Renew>) {
          roster_.renew(from, each, out);
        } else if constexpr (std::is_same_v<Kind, Report>) {
          roster_.report(from, each, time, out);
        } else if constexpr (std::is_same_v<Kind, Enter>) {
          gathers_.enter(*member, each, roster_, time, out);
        } else {
          gathers_.cancel(from, each.id);
        }
      },
      request);
  return end(std::move(out));
}

Effects RegistryTable::ended(Incarnation worker, const std::string& reason, Time now) {
  clock_.pass(now);
  Effects out;
  roster_.ended(worker, reason, out);
  return end(std::move(out));
}

Effects RegistryTable::tick(Time now) {
  const Time time = clock_.pass(now);
  Effects out;
  roster_.tick(time, out);
  gathers_.tick(roster_, time, out);
  return end(std::move(out));
}

// What departures bring with them.
Effects RegistryTable::end(Effects out) {
  const Time time = clock_.time();
  for (const WorkerInfo& worker : roster_.publish(out))
    gathers_.on_gone(worker, roster_, time, out);
  return out;
}

}  // namespace sinew::internal::registry
