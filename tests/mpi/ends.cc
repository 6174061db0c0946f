#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "ATen/ATen.h"
#include "sinew/tests/mpi/mpi_ranks.h"

// How groups, ranks and MPI itself end.
namespace sinew::testing {
namespace {

using internal::C10dBackend;

int rank_of(const std::unique_ptr<internal::Backend>& group) { return group->c10d().getRank(); }

const absl::Status kReason = absl::UnavailableError("the test has ended the group");

// Ends the group once the other thread waits in MPI, if it does.
template <class Wait>
void abort_while(const std::unique_ptr<internal::Backend>& group, Wait&& wait_for_it) {
  std::thread other([&] { group->abort(kReason); });
  wait_for_it();
  other.join();
}

void abort_receive() {
  const auto group = make_group("first");
  Tensors tensor = {at::zeros({4})};
  if (rank_of(group) == 0) {
    const WorkPtr in_place = group->c10d().recvAnysource(tensor, 0);
    const WorkPtr handed_over = group->c10d().recv(tensor, 1, 5);
    const auto future = handed_over->getFuture();
    abort_while(group, [&] { check_error([&] { wait(in_place); }, "the test has ended"); });
    check_error([&] { future->waitAndThrow(); }, "the test has ended");
    check_error([&] { wait(handed_over); }, "the test has ended");
    check_error([&] { group->c10d().recv(tensor, 1, 5); }, "the test has ended");
    check_error([&] { group->c10d().barrier({}); }, "the test has ended");
  }
  // Receives are taken back, so nothing remains: another group works, and MPI ends as it should.
  const auto second = make_group("second");
  tensor = {at::ones({4})};
  wait(second->c10d().allreduce(tensor, {}));
  check_equal(tensor[0], at::full({4}, float(second->c10d().getSize())), "the second group");
}

// Rank 1 takes no part. The others fail, and end the job, as nobody may wait for them.
void abort_collective() {
  const auto group = make_group("group");
  if (rank_of(group) != 1) {
    Tensors tensor = {at::ones({1000})};
    const WorkPtr in_place = group->c10d().allreduce(tensor, {});
    const auto future = group->c10d().allreduce(tensor, {})->getFuture();
    abort_while(group, [&] { check_error([&] { wait(in_place); }, "the test has ended"); });
    check_error([&] { future->waitAndThrow(); }, "the test has ended");
    check_error([&] { group->c10d().allreduce(tensor, {}); }, "the test has ended");
    std::printf("rank %d fails\n", rank_of(group));
    std::fflush(stdout);
  } else {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

void killed() {
  const auto group = make_group("group");
  Tensors tensor = {at::ones({1000})};
  wait(group->c10d().allreduce(tensor, {}));
  if (rank_of(group) == 1) std::raise(SIGKILL);
  wait(group->c10d().allreduce(tensor, {}));
}

// Rank 0 leaves with 0, before the others are done: they can go on.
void early_end() {
  const auto group = make_group("group");
  const auto pair = rank_of(group) == 0 ? nullptr : make_group("pair", {1, 2});
  Tensors tensor = {at::ones({100000})};
  if (rank_of(group) == 0) {
    // On its way when exit() begins.
    group->c10d().send(tensor, 1, 3);
    std::exit(0);
  }
  for (int i = 0; i < 1000; ++i) wait(pair->c10d().allreduce(tensor, {}));
  if (rank_of(group) == 1) wait(group->c10d().recv(tensor, 0, 3));
  std::printf("rank %d is done\n", rank_of(group));
}

// Rank 1 leaves with another status: the job ends with that.
void failed_end() {
  const auto group = make_group("group");
  if (rank_of(group) == 1) std::exit(3);
  wait(group->c10d().barrier({}));
}

void late_member() {
  const internal::MpiPlace place = internal::mpi_place(kStart);
  if (place.rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  check_error([&] { make_group("late", {}, std::chrono::milliseconds(200)); },
              "the group \"late\" did not start in time");
  std::printf("rank %d does not wait\n", place.rank);
  std::fflush(stdout);
}

void other_place() {
  const internal::MpiPlace place = internal::mpi_place(kStart);
  internal::BackendRequest request;
  request.job_ranks = {place.size - 1 - place.rank};
  request.timeout = kStart;
  request.group = "other";
  if (request.job_ranks[0] != place.rank) {
    check_error([&] { internal::make_mpi_backend(request); }, "leave rank and world size to MPI");
  }
  request.job_ranks = {place.size};
  check_error([&] { internal::make_mpi_backend(request); }, "none of the 3 processes");
}

void forked() {
  const auto group = make_group("group");
  const pid_t child = ::fork();
  if (child == 0) {
    Tensors tensor = {at::ones({10})};
    try {
      check_error([&] { group->c10d().allreduce(tensor, {}); }, "was forked");
      check_error([&] { make_group("another"); }, "was forked");
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    std::exit(0);  // ends nothing of its parent's
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  check(status == 0, "the forked process has failed");
  wait(group->c10d().barrier({}));
}

void begun_by_program() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  {
    const auto group = make_group("group");
    Tensors tensor = {at::ones({10})};
    wait(group->c10d().allreduce(tensor, {}));
    check_equal(tensor[0], at::full({10}, 3.0f), "all_reduce");
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check(rank == rank_of(group), "the rank");
  }
  const auto kept = make_group("kept");
  MPI_Finalize();
  check_error([&] { kept->c10d().barrier({}); }, "MPI has ended");
  check_error([&] { make_group("another"); }, "MPI has ended");
}

void begun_for_one_thread() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  check_error([&] { make_group("group"); }, "without MPI_THREAD_MULTIPLE");
  MPI_Finalize();
}

void ended_by_program() {
  MPI_Init(nullptr, nullptr);
  MPI_Finalize();
  check_error([&] { make_group("group"); }, "cannot begin again");
}

}  // namespace

void add_ends(Cases& cases) {
  cases["abort_receive"] = &abort_receive;
  cases["abort_collective"] = &abort_collective;
  cases["killed"] = &killed;
  cases["early_end"] = &early_end;
  cases["failed_end"] = &failed_end;
  cases["late_member"] = &late_member;
  cases["other_place"] = &other_place;
  cases["forked"] = &forked;
  cases["begun_by_program"] = &begun_by_program;
  cases["begun_for_one_thread"] = &begun_for_one_thread;
  cases["ended_by_program"] = &ended_by_program;
}

}  // namespace sinew::testing
