#include "sinew/groups/process_group.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/groups/function_table.h"
#include "sinew/tests/mpi/mpi_ranks.h"
#include "sinew/tests/truth/collectives.h"

// What users see of it: process groups with the backend mpi.
namespace sinew::testing {
namespace {

ProcessGroup init(std::chrono::nanoseconds timeout = kStart, const std::string& name = "default") {
  GroupOptions options;
  options.backend = "mpi";
  options.timeout = timeout;
  options.name = name;
  return init_process_group(options);
}

at::Tensor filled(double value) { return at::full({5}, value); }

void all_functions() {
  const ProcessGroup group = init();
  const int rank = group.rank();
  const int size = group.size();
  check(size == 3, "the size is mpirun's");
  // Each twice: the ranks compare the first call of a kind, and not the second.
  for (int i = 0; i < 2; ++i) {
    at::Tensor tensor = filled(rank);
    group.all_reduce(tensor);
    check_equal(tensor, filled(3), "all_reduce");
    tensor = filled(rank);
    group.all_reduce(tensor, ReduceOp::kAverage);
    check_equal(tensor, filled(1), "all_reduce of averages");
    tensor = at::full({3, 4}, rank, at::kBFloat16).t();
    group.all_reduce(tensor, ReduceOp::kMax);
    check_equal(tensor, at::full({4, 3}, 2, at::kBFloat16), "all_reduce of what is not contiguous");
    tensor = filled(rank);
    group.reduce(tensor, 1);
    check_equal(tensor, filled(rank == 1 ? 3 : rank), "reduce");
    group.broadcast(tensor, 1);
    check_equal(tensor, filled(3), "broadcast");

    Tensors three = {filled(10 * rank), filled(10 * rank + 1), filled(10 * rank + 2)};
    Tensors outputs = {filled(0), filled(0), filled(0)};
    group.all_gather(outputs, filled(rank));
    for (int other = 0; other < size; ++other)
      check_equal(outputs[other], filled(other), "all_gather");
    group.gather(rank == 2 ? outputs : Tensors(), filled(rank + 1), 2);
    if (rank == 2) check_equal(outputs[0], filled(1), "gather");
    group.scatter(tensor, rank == 0 ? three : Tensors(), 0);
    check_equal(tensor, filled(rank), "scatter");
    group.reduce_scatter(tensor, three);
    check_equal(tensor, filled(30 + 3 * rank), "reduce_scatter");
    group.all_to_all(outputs, three);
    for (int other = 0; other < size; ++other) {
      check_equal(outputs[other], filled(10 * other + rank), "all_to_all");
    }
    group.barrier();

    const int next = (rank + 1) % size;
    const int before = (rank + size - 1) % size;
    const Future<void> sent = group.isend(filled(rank), next, 4);
    check(group.recv(tensor, before, 4) == before, "who has sent it");
    check_equal(tensor, filled(before), "recv");
    sent.wait();
    if (rank == 0) {
      for (int other = 1; other < size; ++other) {
        const int source = i == 0 ? group.recv(tensor) : group.irecv(tensor).wait();
        check_equal(tensor, filled(100 + source), "recv from anybody");
      }
    } else {
      group.send(filled(100 + rank), 0);
    }
  }
}

// Rank 0 writes it, when all agree.
void table() {
  const ProcessGroup group = init();
  FunctionTable table;
  table.fill(group);
  for (const std::string& problem : table.problems()) check(false, problem);
  const std::string text = table.text("mpi, CPU");
  at::Tensor own = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(own.data_ptr(), text.data(), text.size());
  at::Tensor first = own.clone();
  group.broadcast(first, 0);
  check_equal(own, first, "the table");
  if (group.rank() == 0) std::printf("%s", text.c_str());
}

void truth() {
  for (const std::string& row : wrong_rows(init(), collectives())) check(false, row);
}

void mixed() {
  const ProcessGroup group = init();
  // Those that return at once and those that wait, in one order.
  std::vector<at::Tensor> tensors;
  std::vector<Future<void>> futures;
  for (int i = 0; i < 200; ++i) {
    tensors.push_back(at::full({1 + i % 13}, double(i)));
    if (i % 3 == 0) {
      futures.push_back(group.all_reduce_async(tensors.back()));
    } else {
      group.all_reduce(tensors.back());
      check_equal(tensors.back(), at::full({1 + i % 13}, 3.0 * i), "one that waits");
    }
  }
  for (const Future<void>& future : futures) future.wait();
  for (int i = 0; i < 200; i += 3)
    check_equal(tensors[i], at::full({1 + i % 13}, 3.0 * i), "one of all");
}

void subgroups() {
  const ProcessGroup group = init();
  const ProcessGroup turned = group.new_group({2, 0});
  const ProcessGroup pair = group.new_group({0, 1});
  check(turned.valid() == (group.rank() != 1) && pair.valid() == (group.rank() != 2),
        "the members");
  at::Tensor tensor = filled(group.rank());
  if (turned.valid()) {
    check(turned.rank() == (group.rank() == 2 ? 0 : 1), "the rank within");
    turned.broadcast(tensor, 0);
    check_equal(tensor, filled(2), "the broadcast of the turned group");
  }
  if (pair.valid()) {
    tensor = filled(1 + group.rank());
    pair.all_reduce(tensor);
    check_equal(tensor, filled(3), "the sum of the pair");
    pair.destroy();
    check_error([&] { pair.all_reduce(tensor); }, "destroyed");
  }
  group.barrier();
}

void disagreement() {
  const ProcessGroup group = init();
  at::Tensor tensor = group.rank() == 1 ? at::ones({7}) : at::ones({5});
  check_error([&] { group.all_reduce(tensor); }, "rank 1");
  tensor = filled(1);
  group.all_reduce(tensor);
  check_equal(tensor, filled(3), "all_reduce after a disagreement");
}

// Rank 1 does not come to the second operation.
void time_limit() {
  const ProcessGroup group = init();
  at::Tensor tensor = filled(1);
  group.all_reduce(tensor);
  if (group.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  GroupCallOptions soon;
  soon.timeout = std::chrono::milliseconds(200);
  const auto begun = std::chrono::steady_clock::now();
  check_error([&] { group.all_reduce(tensor, ReduceOp::kSum, soon); }, "was not done within 0.2 s");
  check_error([&] { group.barrier(); }, "has failed before");
  check_error([&] { group.all_reduce_async(tensor).wait(); }, "has failed before");
  group.destroy();
  check(std::chrono::steady_clock::now() - begun < std::chrono::seconds(60), "destroy() blocks");
  std::printf("rank %d fails\n", group.rank());
  std::fflush(stdout);
}

// As above, with a receive, which is taken back.
void time_limit_of_recv() {
  ProcessGroup group = init();
  at::Tensor tensor = filled(1);
  if (group.rank() == 0) {
    GroupCallOptions soon;
    soon.timeout = std::chrono::milliseconds(200);
    check_error([&] { group.recv(tensor, 1, 0, soon); }, "was not done within 0.2 s");
    check_error([&] { group.send(tensor, 1); }, "has failed before");
  }
  group.destroy();
  group = init(kStart, "anew");
  group.all_reduce(tensor);
  check_equal(tensor, filled(3), "all_reduce of the new group");
}

// Another thread ends the group while one waits in MPI.
void destroyed_meanwhile() {
  const ProcessGroup group = init();
  at::Tensor tensor = filled(1);
  if (group.rank() == 0) {
    const Future<int> future = group.irecv(tensor, 2, 9);
    std::thread other([&] {
      while (!future.done()) group.destroy();
    });
    check_error([&] { group.recv(tensor, 1, 9); }, "destroyed");
    check_error([&] { future.wait(); }, "destroyed");
    other.join();
  }
}

void wrong_place() {
  GroupOptions options;
  options.backend = "mpi";
  options.world_size = 2;
  check_error([&] { init_process_group(options); }, "of 3");
}

}  // namespace

void add_groups(Cases& cases) {
  cases["all_functions"] = &all_functions;
  cases["table"] = &table;
  cases["truth"] = &truth;
  cases["mixed"] = &mixed;
  cases["subgroups"] = &subgroups;
  cases["disagreement"] = &disagreement;
  cases["time_limit"] = &time_limit;
  cases["time_limit_of_recv"] = &time_limit_of_recv;
  cases["destroyed_meanwhile"] = &destroyed_meanwhile;
  cases["wrong_place"] = &wrong_place;
}

}  // namespace sinew::testing
