#include "sinew/rpc/membership/etcd/host_lookup.h"

#include <pthread.h>

#include <utility>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/process_room.h"
#include "sinew/rpc/transport/grpc/local/host_port.h"
#include "sinew/rpc/transport/grpc/local/local_address.h"

namespace sinew::internal::etcd {

std::shared_ptr<HostLookup> HostLookup::start(const std::string& endpoint) {
  auto lookup = std::make_shared<HostLookup>();
  const absl::StatusOr<HostPort> target = parse_host_port(endpoint);
  if (!target.ok() || target->is_ipv4() || target->is_ipv6()) {
    lookup->set(addresses_of(endpoint));
    return lookup;
  }
  try {
    // It is not waited for: a name server that does not answer takes long.
    start_thread([lookup, endpoint] {
      ::pthread_setname_np(::pthread_self(), "sinew-lookup");
      lookup->set(addresses_of(endpoint));
    }).detach();
  } catch (const RpcError& error) {
    lookup->set(absl::UnavailableError(error.message()));
  }
  return lookup;
}

void HostLookup::set(Addresses addresses) {
  MutexLock lock(mutex_);
  addresses_ = std::move(addresses);
}

std::optional<HostLookup::Addresses> HostLookup::result(bool prefers_ipv6) const {
  MutexLock lock(mutex_);
  if (!addresses_.has_value() || !addresses_->ok()) return addresses_;
  std::vector<std::string> kinds[2];
  for (const std::string& address : **addresses_) kinds[address.front() == '['].push_back(address);
  const bool takes_ipv6 = kinds[0].empty() || (prefers_ipv6 && !kinds[1].empty());
  return kinds[takes_ipv6];
}

}  // namespace sinew::internal::etcd
