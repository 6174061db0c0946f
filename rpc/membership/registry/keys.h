#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "sinew/rpc/membership/registry/registry_messages.h"

namespace sinew::internal::registry {

/// Values under keys. A key is its owner's, who alone may change it, and goes with it; one that is
/// kept is everybody's, and stays. Pure.
class Keys {
 public:
  explicit Keys(const Limits& limits) : limits_(limits) {}

  void handle(const WorkerInfo& from, const KeyRequest& request, std::uint64_t token, Effects& out);
  /// Of a wait.
  void cancel(Incarnation from, std::uint64_t id);
  void on_gone(Incarnation owner);

  std::size_t size() const { return keys_.size(); }

 private:
  struct Key {
    std::string value;
    /// None: it is kept.
    Incarnation owner;
    /// Who has set it, as long as that one is here: it counts among that one's.
    Incarnation setter;
  };
  using Waiter = std::pair<Incarnation, std::uint64_t>;
  struct Share {
    std::set<std::string> keys;
    std::map<std::uint64_t, std::string> waits;
    std::size_t bytes = 0;
  };

  absl::Status check(const WorkerInfo& from, const KeyRequest& request) const;
  Finished set(const WorkerInfo& from, const KeyRequest& request, std::uint64_t token,
               Effects& out);
  void erase(const std::string& key);

  Limits limits_;
  std::map<std::string, Key> keys_;
  std::map<std::string, std::set<Waiter>> waiters_;
  std::map<Incarnation, Share> shares_;
};

}  // namespace sinew::internal::registry
