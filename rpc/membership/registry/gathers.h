#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/membership/registry/registry_messages.h"
#include "sinew/rpc/membership/registry/roster.h"

namespace sinew::internal::registry {

/// Barriers and all-gathers among members. One that all have entered is complete, even if a member
/// is gone then, and is kept for those that still ask. Pure.
class Gathers {
 public:
  explicit Gathers(const Options& options) : options_(options) {}

  void enter(const WorkerInfo& from, const Enter& enter, const Roster& roster, Time now,
             Effects& out);
  void cancel(Incarnation from, std::uint64_t id);
  void on_gone(const WorkerInfo& worker, const Roster& roster, Time now, Effects& out);
  /// Forgets what is not asked for any more, and fails what cannot complete.
  void tick(const Roster& roster, Time now, Effects& out);

  std::size_t size() const { return gathers_.size(); }

 private:
  struct Entry {
    WorkerInfo from;
    std::string value;
    std::uint64_t id = 0;
    Time asked;
    /// It has neither its answer nor given up.
    bool asks = true;
  };
  struct Gather {
    std::vector<std::string> names;
    std::map<std::string, Entry> entries;
    std::optional<Time> complete;
  };
  /// Names and key.
  using Id = std::pair<std::vector<std::string>, std::string>;
  struct Share {
    std::map<std::uint64_t, Id> gathers;
    std::size_t bytes = 0;
  };

  absl::Status check(const WorkerInfo& from, const Enter& enter) const;
  std::vector<std::string> missing(const Gather& gather, const Roster& roster) const;
  void advance(const Id& id, const Roster& roster, Time now, Effects& out);
  void answer(const Gather& gather, const Entry& entry, const Roster& roster, Effects& out) const;
  void fail(const Id& id, const absl::Status& status, const Roster& roster, Effects& out);
  void forget(const Id& id);

  Options options_;
  std::map<Id, Gather> gathers_;
  std::map<Incarnation, Share> shares_;
};

/// A few names, for texts.
std::string shown_names(const std::vector<std::string>& names);

}  // namespace sinew::internal::registry
