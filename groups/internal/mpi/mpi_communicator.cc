#include "sinew/groups/internal/mpi/mpi_communicator.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/mpi/mpi_error.h"
#include "sinew/groups/internal/mpi/mpi_runtime.h"

namespace sinew::internal {
namespace {

// The same at all ranks, which absl's hashes are not. FNV-1a.
int tag_of(std::string_view name, int most_tag) {
  std::uint32_t hash = 2166136261u;
  for (const char each : name) hash = (hash ^ static_cast<unsigned char>(each)) * 16777619u;
  return static_cast<int>(hash % (static_cast<std::uint32_t>(most_tag) + 1));
}

using Reach = MpiCommunicator::Reach;

struct Created {
  MPI_Comm handle = MPI_COMM_NULL;
  int rank = 0;
  Reach reach = Reach::kOneHost;
};

// Members that can share memory are on one host.
absl::StatusOr<Reach> reach_of(MPI_Comm handle, int size) {
  MPI_Comm neighbours = MPI_COMM_NULL;
  absl::Status status =
      mpi_status(MPI_Comm_split_type(handle, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours),
                 "MPI_Comm_split_type");
  if (!status.ok()) return status;
  int num_neighbours = 0;
  status = mpi_status(MPI_Comm_size(neighbours, &num_neighbours), "MPI_Comm_size");
  MPI_Comm_free(&neighbours);
  if (!status.ok()) return status;
  return num_neighbours == size ? Reach::kOneHost : Reach::kSeveralHosts;
}

absl::StatusOr<Created> create_now(const std::vector<int>& world_ranks, int tag) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  Created made;
  absl::Status status = mpi_status(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  if (status.ok()) {
    status = mpi_status(
        MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &members),
        "MPI_Group_incl");
  }
  if (status.ok()) {
    status = mpi_status(MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &made.handle),
                        "MPI_Comm_create_group");
  }
  if (status.ok()) {
    status = mpi_status(MPI_Comm_set_errhandler(made.handle, MPI_ERRORS_RETURN),
                        "MPI_Comm_set_errhandler");
  }
  if (status.ok()) status = mpi_status(MPI_Comm_rank(made.handle, &made.rank), "MPI_Comm_rank");
  if (status.ok()) {
    const absl::StatusOr<Reach> reach = reach_of(made.handle, static_cast<int>(world_ranks.size()));
    status = reach.status();
    if (reach.ok()) made.reach = *reach;
  }
  if (members != MPI_GROUP_NULL) MPI_Group_free(&members);
  if (world != MPI_GROUP_NULL) MPI_Group_free(&world);
  if (!status.ok()) return status;
  return made;
}

// What the thread that makes a communicator tells the one that waits for it, if that still does.
struct Creation {
  Mutex mutex;
  CondVar changed;
  std::optional<absl::StatusOr<Created>> made ABSL_GUARDED_BY(mutex);
};

}  // namespace

absl::StatusOr<std::shared_ptr<MpiCommunicator>> MpiCommunicator::create(
    MpiRuntime& runtime, const std::vector<int>& world_ranks, const std::string& name,
    std::chrono::steady_clock::time_point deadline) {
  // MPI waits in it for all members, for as long as that takes.
  auto creation = std::make_shared<Creation>();
  std::thread([creation, world_ranks, tag = tag_of(name, runtime.most_tag()), &runtime] {
    const MpiRuntime::Use use(runtime);
    const absl::Status may_call = runtime.check();
    absl::StatusOr<Created> made =
        may_call.ok() ? create_now(world_ranks, tag) : absl::StatusOr<Created>(may_call);
    MutexLock lock(creation->mutex);
    creation->made = std::move(made);
    creation->changed.notify_all();
  }).detach();

  MutexLock lock(creation->mutex);
  while (!creation->made && std::chrono::steady_clock::now() < deadline) {
    creation->changed.wait_until(creation->mutex, deadline);
  }
  if (!creation->made) {
    return absl::DeadlineExceededError(
        absl::StrCat("the group \"", name, "\" did not start in time: not all of its ",
                     world_ranks.size(), " ranks have called for it with the same ranks and name"));
  }
  if (!creation->made->ok()) return creation->made->status();
  const Created& made = **creation->made;
  return std::shared_ptr<MpiCommunicator>(new MpiCommunicator(
      runtime, made.handle, made.rank, static_cast<int>(world_ranks.size()), made.reach));
}

MpiCommunicator::MpiCommunicator(MpiRuntime& runtime, MPI_Comm handle, int rank, int size,
                                 Reach reach)
    : runtime_(runtime), handle_(handle), rank_(rank), size_(size), reach_(reach) {}

MpiCommunicator::~MpiCommunicator() {
  const MpiRuntime::Use use(runtime_);
  if (!check().ok()) return;
  MPI_Comm handle = handle_;
  MPI_Comm_free(&handle);
}

absl::Status MpiCommunicator::check() const {
  if (has_failed()) {
    MutexLock lock(mutex_);
    return failure_;
  }
  return runtime_.check();
}

void MpiCommunicator::fail(absl::Status why) {
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = std::move(why);
  }
  has_failed_.store(true, std::memory_order_release);
}

}  // namespace sinew::internal
