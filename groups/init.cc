#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/groups/internal/assembly.h"
#include "sinew/groups/internal/backend_choice.h"
#include "sinew/groups/internal/c10d_store.h"
#include "sinew/groups/internal/group_engine.h"
#include "sinew/groups/internal/group_runtime.h"
#include "sinew/groups/internal/meeting.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/groups/internal/tcp_store.h"
#include "sinew/groups/process_group.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew {
namespace {

using internal::AssemblyRequest;
using internal::BackendChoice;
using internal::BackendRequest;
using internal::GroupEngine;
using internal::Meeting;

constexpr std::size_t kMaxNameBytes = 128;
constexpr std::chrono::seconds kTimeToRead{2};

[[noreturn]] void refuse(std::string text) {
  throw RpcError(ErrorCode::kInvalidArgument, std::move(text));
}

void check_options(const GroupOptions& options) {
  if (options.name.empty() || options.name.size() > kMaxNameBytes) {
    refuse(absl::StrCat("the name of a group has 1 to ", kMaxNameBytes, " bytes; '",
                        internal::printable(options.name, 256), "' has ", options.name.size()));
  }
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    refuse(absl::StrCat("the timeout of the group '", options.name, "' must be more than 0"));
  }
}

BackendChoice backends_of(const GroupOptions& options) {
  absl::StatusOr<BackendChoice> choice = internal::parse_backends(options.backend);
  if (!choice.ok()) internal::throw_error(choice.status());
  return *std::move(choice);
}

/// What destroys the group with the last handle, though operations that are under way keep the
/// engine.
struct Hold {
  explicit Hold(std::shared_ptr<GroupEngine> held) : engine(std::move(held)) {}
  ~Hold() { engine->destroy(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  const std::shared_ptr<GroupEngine> engine;
};

ProcessGroup handle_of(std::shared_ptr<GroupEngine> engine) {
  GroupEngine* const pointer = engine.get();
  return ProcessGroupAccess::make(
      std::shared_ptr<GroupEngine>(std::make_shared<Hold>(std::move(engine)), pointer));
}

/// What all ranks have to say alike, after whom the group is of.
std::string terms_of(const BackendChoice& choice) {
  return absl::StrCat(" and the backends ", internal::backends_text(choice));
}

BackendRequest request_of(const GroupEngine::Setup& setup, internal::Clock::TimePoint deadline) {
  BackendRequest request;
  request.rank = setup.rank;
  request.size = setup.size;
  request.job_ranks = setup.job_ranks;
  request.timeout =
      std::chrono::milliseconds(std::max<std::uint64_t>(internal::milliseconds_until(deadline), 1));
  request.listen_host = setup.listen_host;
  request.group = setup.name;
  request.allow_unencrypted = setup.options.allow_unencrypted;
  return request;
}

/// Whether the worker has lost none of these.
std::function<absl::Status()> health_of(const Worker& worker, std::vector<WorkerInfo> members) {
  return [weak = WorkerAccess::services(worker)->weak_services(),
          members = std::move(members)]() -> absl::Status {
    const auto services = weak.lock();
    if (services == nullptr) return absl::CancelledError("the worker was shut down");
    const std::vector<WorkerInfo> alive = services->handle().workers();
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      if (std::find(alive.begin(), alive.end(), members[rank]) != alive.end()) continue;
      return absl::UnavailableError(
          absl::StrFormat("rank %d (worker '%s') is lost", rank, members[rank].name));
    }
    return absl::OkStatus();
  };
}

/// The port is free for others, a worker or another try. A store of the user's goes on listening.
void leave_address(const Meeting& meeting) {
  if (meeting.is_own_store) internal::stop_listening(*StoreAccess::backend(meeting.store));
}

/// The start has failed: a store that this process serves stays for those who are about to come.
void let_others_read(const Store& store) {
  internal::GroupRuntime& runtime = internal::GroupRuntime::get();
  runtime.timers().run_at(internal::Clock::system().now() + kTimeToRead,
                          [store, &runtime]() mutable {
                            // Its end joins a thread.
                            runtime.executor().post([store = std::move(store)] {});
                          });
}

GroupEngine::Setup begin_setup(const GroupOptions& options, int rank, int size) {
  GroupEngine::Setup setup;
  setup.name = options.name;
  setup.rank = rank;
  setup.size = size;
  setup.timeout = options.timeout;
  setup.options = options;
  // It outlives neither for the sake of groups that may be made of it.
  setup.options.worker.reset();
  setup.options.store.reset();
  return setup;
}

/// Meets the other ranks, and starts the backends together with them.
std::shared_ptr<GroupEngine> start(GroupEngine::Setup setup, const BackendChoice& choice,
                                   const AssemblyRequest& meeting) {
  absl::StatusOr<Store> store = internal::assemble(meeting);
  if (!store.ok()) internal::throw_error(store.status());
  setup.store = *std::move(store);
  GroupEngine::Backends backends;
  const absl::Status connected =
      internal::connect_together(meeting, setup.store, [&](const internal::Health& health) {
        BackendRequest request = request_of(setup, meeting.deadline);
        request.store = internal::make_c10d_store(setup.store, health);
        backends = internal::make_backends(choice, request);
      });
  if (!connected.ok()) internal::throw_error(connected);
  return GroupEngine::make(std::move(setup), std::move(backends));
}

/// MPI has placed the processes and connects them.
ProcessGroup init_over_mpi(const GroupOptions& options, const BackendChoice& choice,
                           internal::Clock::TimePoint deadline) {
  const internal::MpiPlace place =
      internal::mpi_place(std::chrono::milliseconds(internal::milliseconds_until(deadline)));
  if (options.rank.value_or(place.rank) != place.rank ||
      options.world_size.value_or(place.size) != place.size) {
    refuse(
        absl::StrFormat("MPI says that this process is rank %d of %d; leave out "
                        "GroupOptions::rank and world_size",
                        place.rank, place.size));
  }
  GroupEngine::Setup setup = begin_setup(options, place.rank, place.size);
  setup.job_ranks.resize(static_cast<std::size_t>(place.size));
  std::iota(setup.job_ranks.begin(), setup.job_ranks.end(), 0);
  auto backends = internal::make_backends(choice, request_of(setup, deadline));
  return handle_of(GroupEngine::make(std::move(setup), std::move(backends)));
}

}  // namespace

ProcessGroup init_process_group(const GroupOptions& options) {
  check_options(options);
  const auto deadline = internal::deadline_after(options.timeout);
  const BackendChoice choice = backends_of(options);
  if (internal::is_mpi_alone(choice)) return init_over_mpi(options, choice, deadline);
  Meeting meeting = internal::find_meeting(options, deadline);

  GroupEngine::Setup setup = begin_setup(options, meeting.rank, meeting.size);
  setup.listen_host = meeting.listen_host;
  setup.workers = meeting.workers;
  if (meeting.worker) setup.health = health_of(*meeting.worker, meeting.workers);
  setup.job_ranks.resize(static_cast<std::size_t>(meeting.size));
  std::iota(setup.job_ranks.begin(), setup.job_ranks.end(), 0);
  if (meeting.is_own_store) setup.store_server = 0;
  AssemblyRequest request;
  request.store = meeting.store;
  request.group = options.name;
  request.rank = meeting.rank;
  request.size = meeting.size;
  request.terms = absl::StrCat(meeting.size, " ranks", terms_of(choice));
  request.deadline = deadline;
  request.hint = meeting.hint;
  request.on_all_there = [&] { leave_address(meeting); };
  request.health = setup.health;
  request.store_server = setup.store_server;
  try {
    const std::shared_ptr<GroupEngine> engine = start(std::move(setup), choice, request);
    if (meeting.worker) engine->watch(*meeting.worker);
    return handle_of(engine);
  } catch (const RpcError&) {
    leave_address(meeting);
    let_others_read(meeting.store);
    throw;
  }
}

ProcessGroup ProcessGroup::new_group(const std::vector<int>& ranks,
                                     const GroupOptions& options) const {
  GroupEngine& parent = *engine();
  check_options(options);
  if (ranks.empty()) refuse("a group has at least one rank; new_group() was given none");
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size()) {
      refuse(absl::StrFormat("new_group() was given the rank %d; the group '%s' has 0 to %d", rank,
                             name(), size() - 1));
    }
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    refuse(absl::StrCat("new_group() was given a rank twice: ", absl::StrJoin(ranks, ", ")));
  }
  parent.check_open();
  // Counted by those who are not in it too: the next one has the same name everywhere.
  const int number = parent.next_subgroup();
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  if (own == ranks.end()) return ProcessGroup();

  const auto deadline = internal::deadline_after(options.timeout);
  GroupOptions whole = parent.setup().options;
  whole.timeout = options.timeout;
  if (!options.backend.empty()) whole.backend = options.backend;
  whole.name = absl::StrCat(name(), "/", number);
  const BackendChoice choice = backends_of(whole);
  GroupEngine::Setup setup =
      begin_setup(whole, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()));
  setup.listen_host = parent.setup().listen_host;
  for (const int rank : ranks) {
    const auto at = static_cast<std::size_t>(rank);
    setup.job_ranks.push_back(parent.setup().job_ranks[at]);
    if (!parent.setup().workers.empty()) setup.workers.push_back(parent.setup().workers[at]);
  }
  if (const auto worker = parent.worker()) setup.health = health_of(*worker, setup.workers);
  if (const auto server = parent.setup().store_server) {
    const auto found = std::find(ranks.begin(), ranks.end(), *server);
    if (found != ranks.end()) setup.store_server = static_cast<int>(found - ranks.begin());
  }
  std::shared_ptr<GroupEngine> engine;
  if (parent.setup().store.valid()) {
    AssemblyRequest request;
    request.store = parent.setup().store;
    request.group = absl::StrCat("new/", number);
    request.rank = setup.rank;
    request.size = setup.size;
    request.terms = absl::StrCat("the ranks ", absl::StrJoin(ranks, ", "), terms_of(choice));
    request.deadline = deadline;
    request.health = setup.health;
    request.store_server = setup.store_server;
    engine = start(std::move(setup), choice, request);
  } else {
    auto backends = internal::make_backends(choice, request_of(setup, deadline));
    engine = GroupEngine::make(std::move(setup), std::move(backends));
  }
  if (parent.worker()) engine->watch(*parent.worker());
  return handle_of(engine);
}

}  // namespace sinew
