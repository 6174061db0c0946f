#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/when_taken.h"

namespace sinew::internal {

class ReferenceHandle;

/// A name is 1 to 128 letters, digits and `_ . : -`; kInvalidArgument says what is wrong.
absl::Status validate_object_name(std::string_view name);

/// What one worker has published under names, and who waits for a name. Without messages, a clock
/// or a lock.
class NameTable {
 public:
  struct Object {
    std::shared_ptr<ReferenceHandle> handle;
    /// As it is written in C++.
    std::string type;
  };
  using WaiterId = std::uint64_t;

  /// What follows from a change.
  struct Changed {
    /// Has been in the table, and may run anything when it goes: let it go without a lock.
    std::shared_ptr<ReferenceHandle> dropped;
    /// Those who waited for the name, and do not any more.
    std::vector<WaiterId> satisfied;
  };

  /// kAlreadyExists for a name that is taken, unless it is to be replaced.
  absl::StatusOr<Changed> publish(const std::string& name, Object object, WhenTaken when_taken);
  /// Null: there is none.
  std::shared_ptr<ReferenceHandle> unpublish(std::string_view name);
  /// What is published under `name`, for one who takes it for a `type`. kNotFound, with the nearest
  /// names; kInvalidArgument, with both types.
  absl::StatusOr<std::shared_ptr<ReferenceHandle>> find(const std::string& name,
                                                        const std::string& type) const;
  /// The same, whatever its type is.
  absl::StatusOr<Object> find(const std::string& name) const;
  bool contains(std::string_view name) const { return objects_.find(name) != objects_.end(); }
  std::vector<std::string> nearest(const std::string& name) const;
  std::size_t size() const { return objects_.size(); }
  const std::map<std::string, Object, std::less<>>& objects() const { return objects_; }

  /// Who waits from one worker, at most.
  static constexpr std::size_t kMostWaitersOfOne = 1024;
  /// Names that are told to who asks for another one.
  static constexpr std::size_t kMostNearest = 8;

  /// `from` waits for a name that is not there; kResourceExhausted when it has too many that do.
  absl::StatusOr<WaiterId> wait(const std::string& name, Incarnation from);
  /// False: it does not wait any more.
  bool end_wait(WaiterId waiter);
  /// Ends all waits of one worker.
  std::vector<WaiterId> end_waits_of(Incarnation from);
  std::size_t waiters() const { return waiters_.size(); }

  /// Drops all. What was published is to go without a lock.
  struct Remains {
    std::vector<std::shared_ptr<ReferenceHandle>> objects;
    std::vector<WaiterId> waiters;
  };
  Remains clear();

 private:
  struct Waiter {
    std::string name;
    Incarnation from;
  };
  std::vector<std::string> names() const;
  void forget(std::map<WaiterId, Waiter>::iterator waiter);

  std::map<std::string, Object, std::less<>> objects_;
  std::map<WaiterId, Waiter> waiters_;
  absl::flat_hash_map<Incarnation, std::size_t> waiters_of_;
  WaiterId last_waiter_ = 0;
};

}  // namespace sinew::internal
