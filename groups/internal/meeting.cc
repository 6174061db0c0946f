#include "sinew/groups/internal/meeting.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/groups/internal/groups_manager.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/groups/internal/tcp_store.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/loopback.h"
#include "sinew/rpc/calls/running_workers.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/rpc/transport/grpc/local/local_address.h"

namespace sinew::internal {
namespace {

constexpr char kLoopback[] = "127.0.0.1";

[[noreturn]] void refuse(ErrorCode code, std::string text) {
  throw RpcError(code, std::move(text));
}

/// The local address that others are reached from, without its port.
std::string host_towards(const std::string& address) {
  const absl::StatusOr<std::string> local = local_address_towards(address);
  if (!local.ok()) throw_error(local.status());
  return *local;
}

std::string outside_host() {
  const absl::StatusOr<std::string> outside = outside_address();
  if (!outside.ok()) throw_error(outside.status());
  return *outside;
}

void check_place(const GroupOptions& options, int rank, int size) {
  if (size < 1) {
    refuse(ErrorCode::kInvalidArgument,
           absl::StrFormat("the group '%s' has no world_size: give GroupOptions::world_size, "
                           "?world_size= in the URL, or WORLD_SIZE",
                           options.name));
  }
  if (rank < 0 || rank >= size) {
    refuse(ErrorCode::kInvalidArgument,
           absl::StrFormat("the rank %d of the group '%s' is not among 0 to %d", rank, options.name,
                           size - 1));
  }
}

void check_reach(const GroupOptions& options, const std::string& host, const char* why) {
  if (options.allow_unencrypted || is_loopback(host)) return;
  refuse(ErrorCode::kPermissionDenied,
         absl::StrCat("the group '", options.name, "' would send tensors over the network at ",
                      host, ", and ", why,
                      ". Set GroupOptions::allow_unencrypted if that network is trusted"));
}

/// No backend encrypts.
void check_encryption(const GroupOptions& options, bool encrypted_only) {
  if (!encrypted_only) return;
  refuse(ErrorCode::kPermissionDenied,
         absl::StrFormat("the group '%s' would send tensors in the clear, and nothing may be sent "
                         "so (WorkerOptions::encrypted_only or SINEW_ENCRYPTED_ONLY): process "
                         "groups do not encrypt",
                         options.name));
}

Meeting over_worker(const GroupOptions& options, const Worker& worker) {
  Meeting meeting;
  meeting.store = Store::over(worker);
  meeting.worker = worker;
  const auto services = WorkerAccess::services(worker);
  meeting.rank = services->self().rank;
  std::string to_first;
  for (const Member& member : services->directory().members()) {
    if (member.worker.rank != static_cast<int>(meeting.workers.size())) {
      refuse(ErrorCode::kFailedPrecondition,
             absl::StrFormat("the group '%s' cannot meet over worker '%s': its job lacks rank %d",
                             options.name, services->self().name, meeting.workers.size()));
    }
    meeting.workers.push_back(member.worker);
    if (member.worker.rank == 0) to_first = member.address;
  }
  meeting.size = options.world_size.value_or(static_cast<int>(meeting.workers.size()));
  if (meeting.size > static_cast<int>(meeting.workers.size())) {
    refuse(
        ErrorCode::kFailedPrecondition,
        absl::StrFormat("the group '%s' is to have %d ranks, but the job of worker '%s' has %d "
                        "workers",
                        options.name, meeting.size, services->self().name, meeting.workers.size()));
  }
  meeting.workers.resize(static_cast<std::size_t>(meeting.size));
  if (options.rank && *options.rank != meeting.rank) {
    refuse(ErrorCode::kInvalidArgument,
           absl::StrFormat("the group '%s' is to have rank %d here, but worker '%s' has rank %d",
                           options.name, *options.rank, services->self().name, meeting.rank));
  }
  check_place(options, meeting.rank, meeting.size);
  meeting.listen_host =
      options.bind_address.empty() ? host_towards(to_first) : options.bind_address;
  check_encryption(options, services->options().encrypted_only);
  const Credentials& credentials = services->options().credentials;
  if (credentials.uses_tls() && !options.allow_unencrypted) {
    refuse(ErrorCode::kPermissionDenied,
           absl::StrFormat("worker '%s' uses TLS, but the group '%s' would send tensors in the "
                           "clear: its backends neither encrypt nor authenticate. Set "
                           "GroupOptions::allow_unencrypted if the network is trusted",
                           services->self().name, options.name));
  }
  if (credentials.loopback_only()) {
    check_reach(options, meeting.listen_host, "its worker's credentials are for loopback only");
  }
  return meeting;
}

Meeting at_store(const GroupOptions& options) {
  if (!options.rank || !options.world_size) {
    refuse(ErrorCode::kInvalidArgument,
           absl::StrFormat("the group '%s' meets at a store, which gives no ranks: set "
                           "GroupOptions::rank and world_size",
                           options.name));
  }
  Meeting meeting;
  meeting.store = *options.store;
  meeting.rank = *options.rank;
  meeting.size = *options.world_size;
  check_place(options, meeting.rank, meeting.size);
  meeting.listen_host = options.bind_address.empty() ? kLoopback : options.bind_address;
  check_reach(options, meeting.listen_host, "its backends neither encrypt nor authenticate");
  return meeting;
}

Rendezvous parse(const GroupOptions& options) {
  absl::StatusOr<Rendezvous> rendezvous =
      parse_rendezvous(options.init_method, options.rank, options.world_size);
  if (!rendezvous.ok()) throw_error(rendezvous.status());
  return *std::move(rendezvous);
}

/// A worker of this process that meets its job at the same place.
std::optional<Worker> worker_at(const Rendezvous& place) {
  for (const Worker& worker : running_workers()) {
    const WorkerOptions& options = WorkerAccess::services(worker)->options();
    const absl::StatusOr<Rendezvous> own =
        parse_rendezvous(options.init_method, options.rank, options.world_size);
    if (own.ok() && own->kind == place.kind && own->seeds == place.seeds &&
        own->path == place.path && own->world_size == place.world_size && own->rank == place.rank) {
      return worker;
    }
  }
  return std::nullopt;
}

Meeting at_tcp(const GroupOptions& options, const Rendezvous& place, Clock::TimePoint deadline) {
  if (place.seeds.size() != 1) {
    refuse(ErrorCode::kInvalidArgument,
           absl::StrFormat("the group '%s' meets at one address; '%s' has %d", options.name,
                           options.init_method, place.seeds.size()));
  }
  const std::string& address = place.seeds.front();
  Meeting meeting;
  meeting.rank = place.rank;
  meeting.size = place.world_size;
  meeting.hint = loopback_hint(place);
  // Others find it under another address, if it may leave this machine.
  const bool opens_up = options.allow_unencrypted && is_own_name_on_loopback(address);
  meeting.listen_host = !options.bind_address.empty() ? options.bind_address
                        : opens_up                    ? outside_host()
                                                      : host_towards(address);
  check_reach(options, meeting.listen_host, "its backends neither encrypt nor authenticate");
  absl::StatusOr<std::shared_ptr<StoreBackend>> store = open_tcp_store(
      address, meeting.rank == 0 ? Store::TcpRole::kServer : Store::TcpRole::kClient,
      options.allow_unencrypted ? Store::TcpReach::kAnyNetwork : Store::TcpReach::kLoopbackOnly,
      deadline);
  if (!store.ok()) {
    throw_error(absl::Status(
        store.status().code(),
        absl::StrCat("the group '", options.name, "' cannot meet: ", store.status().message(),
                     absl::IsDeadlineExceeded(store.status()) ? meeting.hint : "")));
  }
  meeting.store = StoreAccess::make(*std::move(store));
  meeting.is_own_store = true;
  return meeting;
}

Meeting at_file(const GroupOptions& options, const Rendezvous& place) {
  Meeting meeting;
  meeting.rank = place.rank;
  meeting.size = place.world_size;
  // A worker's rendezvous file is of another kind: both may be given the same path.
  meeting.store = Store::file(place.path + ".groups", place.world_size);
  meeting.listen_host = options.bind_address.empty() ? kLoopback : options.bind_address;
  check_reach(options, meeting.listen_host, "its backends neither encrypt nor authenticate");
  return meeting;
}

}  // namespace

Meeting find_meeting(const GroupOptions& options, Clock::TimePoint deadline) {
  const absl::StatusOr<bool> encrypted_only =
      switch_of(process_environment(), "SINEW_ENCRYPTED_ONLY");
  if (!encrypted_only.ok()) throw_error(encrypted_only.status());
  check_encryption(options, *encrypted_only);
  if (options.worker) return over_worker(options, *options.worker);
  if (options.store) return at_store(options);
  const Rendezvous place = parse(options);
  check_place(options, place.rank, place.world_size);
  if (const std::optional<Worker> worker = worker_at(place)) return over_worker(options, *worker);
  switch (place.kind) {
    case Rendezvous::Kind::kTcp:
      return at_tcp(options, place, deadline);
    case Rendezvous::Kind::kFile:
      return at_file(options, place);
    case Rendezvous::Kind::kInproc:
    case Rendezvous::Kind::kEtcd:
      break;
  }
  refuse(ErrorCode::kInvalidArgument,
         absl::StrFormat("a group cannot meet at '%s': use env://, tcp://, file://, or "
                         "GroupOptions::worker",
                         options.init_method));
}

}  // namespace sinew::internal
