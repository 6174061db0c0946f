#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/membership/etcd/etcd_client.h"
#include "sinew/rpc/membership/etcd/etcd_list.h"
#include "sinew/rpc/membership/etcd/layout.h"

namespace sinew::internal::etcd {

/// Barriers and all-gathers. Each worker writes an entry, with its lease. A worker that finds all
/// entries writes how the gather has ended; one transaction does that once. So all get the same
/// end, even if a worker dies afterwards. On the client's thread.
class EtcdGathers {
 public:
  using Then = absl::AnyInvocable<void(absl::StatusOr<std::vector<std::string>>)>;

  EtcdGathers(EtcdClient& client, const Layout& layout, Time lease)
      : client_(client), layout_(layout), lease_time_(lease) {}

  /// Of this worker. Its entries that went with the lease before are written again.
  void set_self(const std::string& name, std::int64_t lease);
  /// Values in the order of the sorted names; no names: all who are members when it completes.
  void enter(const std::string& key, std::vector<std::string> names, std::string value,
             Time timeout, Then then);
  void on_end(const GatherNews& news);
  /// A member is gone, or those that might have returned have not.
  void look_again();
  /// `is_returning`: names that are missing may still come back.
  /// True: they may no longer.
  bool set_returning(bool is_returning) {
    return std::exchange(is_returning_, is_returning) && !is_returning;
  }
  /// Those that name that worker.
  void fail(const std::string& worker, const absl::Status& why);
  void fail_all(const absl::Status& why);
  /// Why etcd is, or that it is there again. Those that name workers fail.
  void set_away(const absl::Status& why);

 private:
  struct Gather;
  using GatherPtr = std::shared_ptr<Gather>;

  void write_entry(GatherPtr gather);
  void looked(const GatherPtr& gather, const pb::TxnResponse& seen);
  void complete(GatherPtr gather, std::vector<std::string> names);
  void conclude(GatherPtr gather, proto::EtcdGatherEnd end);
  void take_back(const Gather& gather);
  void finish(const GatherPtr& gather, absl::StatusOr<std::vector<std::string>> result);
  absl::Status in_time(const Gather& gather) const;

  EtcdClient& client_;
  const Layout layout_;
  const Time lease_time_;
  std::string self_;
  std::int64_t lease_ = 0;
  bool is_returning_ = false;
  absl::Status away_;
  std::map<std::string, GatherPtr> gathers_;
};

}  // namespace sinew::internal::etcd
