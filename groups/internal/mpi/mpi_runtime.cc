#include "sinew/groups/internal/mpi/mpi_runtime.h"

#include <mpi.h>
#include <pthread.h>
#include <sched.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "sinew/groups/internal/mpi/mpi_error.h"
#include "sinew/groups/internal/mpi/mpi_operation.h"
#include "sinew/rpc/base/log.h"

namespace sinew::internal {
namespace {

// For what is under way when the process ends well, such as a message that is on its way.
constexpr auto kLastOperations = std::chrono::seconds(5);
// While it waits for operations of other threads then.
constexpr auto kPollInterval = std::chrono::milliseconds(1);

// Open MPI takes algorithms for MPI_Iallreduce by default that need two to five times as long as
// those of MPI_Allreduce. Rabenseifner's does not, whatever the size. Other MPIs do not know the
// variable, and who has set it knows better. All ranks must do the same before they first use it.
void choose_all_reduce_algorithm() {
  constexpr int kNotSet = 0;
  constexpr int kRabenseifner = 3;
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return;
  int index = 0;
  int count = 0;
  int value = kNotSet;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  if (MPI_T_cvar_get_index("coll_libnbc_iallreduce_algorithm", &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
    if (count == 1 && MPI_T_cvar_read(handle, &value) == MPI_SUCCESS && value == kNotSet) {
      value = kRabenseifner;
      MPI_T_cvar_write(handle, &value);
    }
    MPI_T_cvar_handle_free(&handle);
  }
  MPI_T_finalize();
}

}  // namespace

struct MpiRuntime::Adopted {
  MpiOperation operation;
  Done done;
};

absl::StatusOr<MpiRuntime*> MpiRuntime::start(Clock::time_point deadline) {
  static auto& runtime = *new MpiRuntime();
  if (runtime.process_.is_orphan()) return runtime.check();
  MutexLock lock(runtime.mutex_);
  while (runtime.stage_ == Stage::kBeginning && Clock::now() < deadline) {
    runtime.changed_.wait_until(runtime.mutex_, deadline);
  }
  if (runtime.stage_ == Stage::kBeginning) {
    return absl::DeadlineExceededError(
        "MPI did not begin in time: not all processes that mpirun has started have begun it");
  }
  if (!runtime.failure_.ok()) return runtime.failure_;
  return &runtime;
}

bool MpiRuntime::has_begun() {
  int has_begun = 0;
  MPI_Initialized(&has_begun);
  return has_begun != 0;
}

MpiRuntime::MpiRuntime() {
  ProcessLife::watch();  // without it forks are not noticed
  std::thread([this] { run(); }).detach();
}

absl::Status MpiRuntime::check() const {
  if (process_.is_orphan()) {
    return absl::FailedPreconditionError(
        "this process was forked from one that uses MPI, and cannot use it: have mpirun start it");
  }
  if (is_ending_.load()) {
    return absl::FailedPreconditionError("MPI has ended in this process");
  }
  return absl::OkStatus();
}

void MpiRuntime::run() {
  ::pthread_setname_np(::pthread_self(), "sinew-mpi");
  absl::StatusOr<World> world = begin();
  {
    MutexLock lock(mutex_);
    if (world.ok()) {
      world_ = *world;
    } else {
      failure_ = world.status();
    }
    stage_ = world.ok() ? Stage::kWorking : Stage::kEnded;
    changed_.notify_all();
    if (!world.ok()) return;
  }
  if (is_first_) ::on_exit(&MpiRuntime::on_exit, this);
  work();
  end();
}

absl::StatusOr<MpiRuntime::World> MpiRuntime::begin() {
  int has_ended = 0;
  MPI_Finalized(&has_ended);
  if (has_ended != 0) {
    return absl::FailedPreconditionError(
        "the program has ended MPI (MPI_Finalize), which cannot begin again");
  }
  is_first_ = !has_begun();
  absl::Status status = is_first_ ? begin_as_first() : absl::OkStatus();
  int threads = MPI_THREAD_SINGLE;
  MPI_Query_thread(&threads);
  if (status.ok() && threads != MPI_THREAD_MULTIPLE) {
    status = absl::FailedPreconditionError(
        is_first_ ? "this MPI does not allow calls from several threads (MPI_THREAD_MULTIPLE)"
                  : "the program has begun MPI without MPI_THREAD_MULTIPLE: ask MPI_Init_thread "
                    "for it, or leave the begin to the group");
  }
  if (status.ok()) status = watch_end();
  absl::StatusOr<MpiTypes> types = status.ok() ? MpiTypes::make() : status;
  if (!types.ok()) return types.status();
  World world;
  world.types = *types;
  status = mpi_status(MPI_Comm_rank(MPI_COMM_WORLD, &world.rank), "MPI_Comm_rank");
  if (status.ok()) {
    status = mpi_status(MPI_Comm_size(MPI_COMM_WORLD, &world.size), "MPI_Comm_size");
  }
  int* most_tag = nullptr;
  int is_set = 0;
  if (status.ok()) {
    status = mpi_status(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most_tag, &is_set),
                        "MPI_Comm_get_attr");
  }
  if (!status.ok()) return status;
  constexpr int kLeastTagBound = 32767;  // what each MPI has
  world.most_tag = is_set != 0 ? *most_tag : kLeastTagBound;
  return world;
}

absl::Status MpiRuntime::begin_as_first() {
  int provided = MPI_THREAD_SINGLE;
  absl::Status status = mpi_status(
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (!status.ok()) return status;
  choose_all_reduce_algorithm();
  return mpi_status(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                    "MPI_Comm_set_errhandler");
}

absl::Status MpiRuntime::watch_end() {
  // MPI_Finalize begins with the deletion of what is attached to MPI_COMM_SELF.
  const auto on_delete = [](MPI_Comm, int, void* runtime, void*) {
    static_cast<MpiRuntime*>(runtime)->on_others_end();
    return MPI_SUCCESS;
  };
  int key = MPI_KEYVAL_INVALID;
  absl::Status status =
      mpi_status(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &key, this),
                 "MPI_Comm_create_keyval");
  if (!status.ok()) return status;
  return mpi_status(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
}

void MpiRuntime::adopt(MpiOperation operation, Done done) {
  MutexLock lock(mutex_);
  arrived_.push_back(Adopted{std::move(operation), std::move(done)});
  changed_.notify_all();
}

void MpiRuntime::keep(MpiOperation operation) {
  MutexLock lock(mutex_);
  kept_.push_back(std::move(operation));
}

void MpiRuntime::work() {
  std::vector<Adopted> running;
  MpiPatience patience;
  for (;;) {
    const std::size_t before = running.size();
    if (!take_adopted(running)) break;
    bool has_moved = running.size() != before;
    for (std::size_t i = 0; i < running.size();) {
      MpiOperation& operation = running[i].operation;
      std::optional<MpiOutcome> outcome = operation.poll(1);
      if (!outcome && operation.communicator->has_failed()) {
        outcome = std::move(operation).give_up();
      }
      if (!outcome) {
        ++i;
        continue;
      }
      has_moved = true;
      Adopted ended = std::move(running[i]);
      if (i + 1 < running.size()) running[i] = std::move(running.back());
      running.pop_back();
      if (ended.done != nullptr) ended.done(*std::move(outcome));
    }
    if (has_moved) {
      patience.reset();
    } else {
      pause(patience);
    }
  }
  for (Adopted& each : running) keep(std::move(each.operation));
}

// False: MPI is to end.
bool MpiRuntime::take_adopted(std::vector<Adopted>& running) {
  MutexLock lock(mutex_);
  while (running.empty() && arrived_.empty() && !is_to_end_locked()) {
    if (ends_by_) {
      changed_.wait_until(mutex_, Clock::now() + kPollInterval);
    } else {
      changed_.wait(mutex_);
    }
  }
  for (Adopted& each : arrived_) running.push_back(std::move(each));
  arrived_.clear();
  return !is_to_end_locked();
}

bool MpiRuntime::is_to_end_locked() const {
  // What was given up does not end, or too late for anybody.
  return ends_by_ &&
         (uses_.load() == static_cast<std::int64_t>(kept_.size()) || Clock::now() >= *ends_by_);
}

void MpiRuntime::pause(const MpiPatience& patience) {
  const Clock::time_point now = Clock::now();
  const Clock::duration nap = patience.nap(now);
  if (nap == Clock::duration::zero()) {
    ::sched_yield();
    return;
  }
  MutexLock lock(mutex_);
  if (arrived_.empty()) changed_.wait_until(mutex_, now + nap);
}

void MpiRuntime::end() {
  if (is_first_) {
    if (uses_.load() == 0) {
      MPI_Finalize();
    } else {
      log_line("",
               "this process ends without MPI_Finalize, since an operation of MPI has not ended: "
               "mpirun ends the other processes of the job");
    }
  }
  MutexLock lock(mutex_);
  stage_ = Stage::kEnded;
  changed_.notify_all();
}

void MpiRuntime::end_by(Clock::time_point when) {
  is_ending_.store(true);
  ends_by_ = when;
  changed_.notify_all();
}

void MpiRuntime::on_exit(int status, void* runtime) {
  static_cast<MpiRuntime*>(runtime)->on_process_exit(status);
}

void MpiRuntime::on_process_exit(int status) {
  if (process_.is_orphan() || status != 0) return;
  MutexLock lock(mutex_);
  end_by(Clock::now() + kLastOperations);
  // MPI waits for the other ranks, which may compute for hours yet.
  while (stage_ != Stage::kEnded) changed_.wait(mutex_);
}

// Runs in MPI_Finalize, be it ours or the program's.
void MpiRuntime::on_others_end() {
  if (is_first_) return;
  MutexLock lock(mutex_);
  end_by(Clock::now() + kLastOperations);
  while (stage_ != Stage::kEnded) changed_.wait(mutex_);
}

}  // namespace sinew::internal
