#include <torch/csrc/distributed/c10d/Work.hpp>

#include <string>
#include <thread>

#include "ATen/ATen.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/mpi/mpi_ranks.h"

// Each operation, against LibTorch's own on what all ranks have put in.
namespace sinew::testing {
namespace {

using internal::C10dBackend;

constexpr at::ScalarType kMovable[] = {
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,         at::kChar,
    at::kShort, at::kInt,    at::kLong, at::kBool,     at::kComplexFloat, at::kComplexDouble};

std::string named(const std::string& what, at::ScalarType type) {
  return what + " of " + c10::toString(type);
}

at::Tensor combined(const Tensors& inputs, ReduceOp op) {
  at::Tensor result = inputs[0].clone();
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const at::Tensor& next = inputs[i];
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result = result.scalar_type() == at::kBool ? result.logical_or(next) : result + next;
        break;
      case ReduceOp::kProduct:
        result = result.scalar_type() == at::kBool ? result.logical_and(next) : result * next;
        break;
      case ReduceOp::kMin:
        result = at::minimum(result, next);
        break;
      case ReduceOp::kMax:
        result = at::maximum(result, next);
        break;
    }
  }
  return result;
}

c10d::ReduceOp::RedOpType c10d_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    default:
      return c10d::ReduceOp::SUM;
  }
}

Tensors inputs_of_all(int size, at::ScalarType type, at::IntArrayRef sizes) {
  Tensors inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(input_of(rank, type, sizes));
  return inputs;
}

void reductions() {
  const auto group = make_group("reductions");
  C10dBackend& c10d = group->c10d();
  int combinations = 0;
  for (const at::ScalarType type : kMovable) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      const bool has_order = !at::isComplexType(type);
      const bool wanted = has_order || op == ReduceOp::kSum || op == ReduceOp::kProduct;
      check(group->reduces(type, op) == wanted, named("what it says that it reduces", type));
      check(!group->reduces(type, ReduceOp::kAverage), "averages are the group's part");
      // Fewer elements than ranks, some, and more than are sent at once.
      for (const std::int64_t elements : {0, 1, 1000, 70001}) {
        const Tensors inputs = inputs_of_all(c10d.getSize(), type, {elements});
        Tensors tensor = {inputs[static_cast<std::size_t>(c10d.getRank())].clone()};
        c10d::AllreduceOptions options;
        options.reduceOp = c10d_op(op);
        if (!wanted) {
          check_error([&] { c10d.allreduce(tensor, options); }, "does not combine");
          continue;
        }
        const at::Tensor expected = combined(inputs, op);
        wait(c10d.allreduce(tensor, options));
        check_equal(tensor[0], expected, named("all_reduce", type));
        for (int root = 0; root < c10d.getSize(); ++root) {
          tensor = {inputs[static_cast<std::size_t>(c10d.getRank())].clone()};
          c10d::ReduceOptions to_root;
          to_root.reduceOp = c10d_op(op);
          to_root.rootRank = root;
          wait(c10d.reduce(tensor, to_root));
          if (root == c10d.getRank()) check_equal(tensor[0], expected, named("reduce", type));
        }
        ++combinations;
      }
    }
  }
  check(combinations == (10 * 4 + 2 * 2) * 4, "not all combinations have run");
}

void bitwise() {
  const auto group = make_group("bitwise");
  C10dBackend& c10d = group->c10d();
  const Tensors inputs = inputs_of_all(c10d.getSize(), at::kInt, {100});
  Tensors tensor = {inputs[static_cast<std::size_t>(c10d.getRank())].clone()};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::BXOR;
  wait(c10d.allreduce(tensor, options));
  at::Tensor expected = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) expected = expected.bitwise_xor(inputs[i]);
  check_equal(tensor[0], expected, "BXOR");
  tensor = {at::ones({4})};
  check_error([&] { c10d.allreduce(tensor, options); }, "does not combine Float by BXOR");
  options.reduceOp = c10d::ReduceOp::AVG;
  check_error([&] { c10d.allreduce(tensor, options); }, "does not combine Float by AVG");
}

void nan() {
  const auto group = make_group("nan");
  C10dBackend& c10d = group->c10d();
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const auto op : {c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
      for (int where = 0; where < c10d.getSize(); ++where) {
        Tensors tensor = {at::ones({8}, type)};
        if (where == c10d.getRank()) tensor[0].fill_(std::nan(""));
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        wait(c10d.allreduce(tensor, options));
        check(tensor[0].isnan().all().item<bool>(), named("a NaN is lost", type));
      }
    }
  }
}

// One tensor for each rank: of its own, or parts of one.
Tensors pieces(int size, at::ScalarType type, std::int64_t elements, bool in_a_row) {
  if (in_a_row) {
    const at::Tensor all = at::zeros({size, elements}, type);
    return all.unbind(0);
  }
  Tensors tensors;
  for (int i = 0; i < size; ++i) tensors.push_back(at::zeros({elements}, type));
  return tensors;
}

void copy_all(const Tensors& to, const Tensors& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

void move(const std::unique_ptr<internal::Backend>& group, at::ScalarType type, bool in_a_row) {
  C10dBackend& c10d = group->c10d();
  const int size = c10d.getSize();
  const auto self = static_cast<std::size_t>(c10d.getRank());
  constexpr std::int64_t kElements = 501;
  const Tensors inputs = inputs_of_all(size, type, {kElements});
  Tensors own = {inputs[self].clone()};

  std::vector<Tensors> lists = {pieces(size, type, kElements, in_a_row)};
  wait(c10d.allgather(lists, own, {}));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_equal(lists[0][i], inputs[i], named("all_gather", type));
  }
  at::Tensor flat = at::zeros({size, kElements}, type);
  wait(c10d._allgather_base(flat, own[0], {}));
  check_equal(flat, at::stack(inputs), named("_allgather_base", type));

  for (int root = 0; root < size; ++root) {
    const bool is_root = root == c10d.getRank();
    c10d::BroadcastOptions from_root;
    from_root.rootRank = root;
    Tensors tensor = {inputs[self].clone()};
    wait(c10d.broadcast(tensor, from_root));
    check_equal(tensor[0], inputs[static_cast<std::size_t>(root)], named("broadcast", type));

    c10d::GatherOptions to_root;
    to_root.rootRank = root;
    lists.clear();
    if (is_root) lists = {pieces(size, type, kElements, in_a_row)};
    wait(c10d.gather(lists, own, to_root));
    for (std::size_t i = 0; is_root && i < inputs.size(); ++i) {
      check_equal(lists[0][i], inputs[i], named("gather", type));
    }

    c10d::ScatterOptions scattering;
    scattering.rootRank = root;
    if (is_root) {
      lists = {pieces(size, type, kElements, in_a_row)};
      copy_all(lists[0], inputs);
    }
    tensor = {at::zeros({kElements}, type)};
    wait(c10d.scatter(tensor, lists, scattering));
    check_equal(tensor[0], inputs[self], named("scatter", type));
  }

  // Rank i sends j its input, i + j elements shorter.
  Tensors to = pieces(size, type, kElements, in_a_row);
  Tensors from = pieces(size, type, kElements, in_a_row);
  copy_all(to, Tensors(static_cast<std::size_t>(size), inputs[self]));
  wait(c10d.alltoall(from, to, {}));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_equal(from[i], inputs[i], named("all_to_all", type));
  }
}

void movements() {
  const auto group = make_group("movements");
  for (const at::ScalarType type : kMovable) {
    move(group, type, true);
    move(group, type, false);
  }
}

void uneven_parts() {
  const auto group = make_group("uneven");
  C10dBackend& c10d = group->c10d();
  const int size = c10d.getSize();
  const int self = c10d.getRank();
  // From i to j go i + 2 j rows of 3, which say so.
  const auto rows = [](int from, int to) { return std::int64_t{from} + 2 * to; };
  const auto part = [&](int from, int to) {
    return at::full({rows(from, to), 3}, 10 * from + to, at::kLong);
  };
  Tensors sent;
  Tensors expected;
  Tensors received;
  for (int other = 0; other < size; ++other) {
    sent.push_back(part(self, other));
    expected.push_back(part(other, self));
    received.push_back(at::zeros_like(expected.back()));
  }
  wait(c10d.alltoall(received, sent, {}));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    check_equal(received[i], expected[i], "all_to_all of parts");
  }
}

void sums_in_parts() {
  const auto group = make_group("sums");
  C10dBackend& c10d = group->c10d();
  const int size = c10d.getSize();
  const int self = c10d.getRank();
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kLong}) {
    for (const bool in_a_row : {true, false}) {
      // What rank i has for j.
      const auto input = [&](int i, int j) { return input_of(i + size * j, type, {77}); };
      std::vector<Tensors> lists = {pieces(size, type, 77, in_a_row)};
      Tensors for_us;
      for (int i = 0; i < size; ++i) {
        lists[0][static_cast<std::size_t>(i)].copy_(input(self, i));
        for_us.push_back(input(i, self));
      }
      Tensors output = {at::zeros({77}, type)};
      wait(c10d.reduce_scatter(output, lists, {}));
      check_equal(output[0], combined(for_us, ReduceOp::kSum), named("reduce_scatter", type));
      at::Tensor flat = at::cat(lists[0]);
      output[0].zero_();
      wait(c10d._reduce_scatter_base(output[0], flat, {}));
      check_equal(output[0], combined(for_us, ReduceOp::kSum), named("_reduce_scatter_base", type));

      // Rank i gets i + 1 elements.
      Tensors shares;
      for (int i = 0; i < size; ++i) shares.push_back(input(self, i).narrow(0, 0, i + 1).clone());
      lists = {shares};
      output = {at::zeros({self + 1}, type)};
      wait(c10d.reduce_scatter(output, lists, {}));
      check_equal(output[0], combined(for_us, ReduceOp::kSum).narrow(0, 0, self + 1),
                  named("reduce_scatter of shares", type));
    }
  }
}

void messages() {
  const auto group = make_group("messages");
  C10dBackend& c10d = group->c10d();
  const int self = c10d.getRank();
  const int size = c10d.getSize();
  if (self == 0) {
    // Two from each, whose tags are asked for in the other order.
    for (int from = 1; from < size; ++from) {
      Tensors second = {at::zeros({10})};
      Tensors first = {at::zeros({100000})};
      wait(c10d.recv(second, from, 2));
      wait(c10d.recv(first, from, 1));
      check_equal(first[0], at::full({100000}, 1.0f + from), "the first message");
      check_equal(second[0], at::full({10}, 2.0f + from), "the second message");
    }
    std::vector<bool> has_come(static_cast<std::size_t>(size), false);
    for (int i = 1; i < size; ++i) {
      Tensors any = {at::zeros({5}, at::kLong)};
      const WorkPtr work = c10d.recvAnysource(any, 7);
      wait(work);
      const int from = work->sourceRank();
      check(from > 0 && from < size && !has_come[static_cast<std::size_t>(from)],
            "who has sent it");
      has_come[static_cast<std::size_t>(from)] = true;
      check_equal(any[0], at::full({5}, from, at::kLong), "a message of anybody");
    }
  } else {
    Tensors first = {at::full({100000}, 1.0f + self)};
    Tensors second = {at::full({10}, 2.0f + self)};
    Tensors any = {at::full({5}, self, at::kLong)};
    const WorkPtr sent[] = {c10d.send(first, 0, 1), c10d.send(second, 0, 2), c10d.send(any, 0, 7)};
    for (const WorkPtr& work : sent) wait(work);
  }
  wait(c10d.barrier({}));
}

void mistakes() {
  const auto group = make_group("mistakes");
  C10dBackend& c10d = group->c10d();
  const int self = c10d.getRank();
  const int next = (self + 1) % c10d.getSize();
  const int before = (self + c10d.getSize() - 1) % c10d.getSize();
  // A message of another size than its receiver expects is the receiver's error.
  for (const std::int64_t elements : {4, 16}) {
    Tensors sent = {at::ones({elements})};
    Tensors received = {at::zeros({8})};
    const WorkPtr receiving = c10d.recv(received, before, 0);
    const WorkPtr sending = c10d.send(sent, next, 0);
    check_error([&] { wait(receiving); },
                elements < 8 ? "has sent 4 of the 8 elements" : "recv: MPI says");
    wait(sending);
    check(!receiving->isSuccess() && receiving->exception() != nullptr, "the work has failed");
  }
  Tensors tensor = {at::ones({4, 4})};
  Tensors strided = {tensor[0].t()};
  Tensors two = {tensor[0], tensor[0]};
  check_error([&] { c10d.allreduce(strided, {}); }, "contiguous");
  check_error([&] { c10d.allreduce(two, {}); }, "one tensor, not 2");
  check_error([&] { c10d.send(tensor, c10d.getSize(), 0); }, "there is no rank");
  check_error([&] { c10d.send(tensor, -1, 0); }, "there is no rank -1");
  check_error([&] { c10d.recv(tensor, next, -1); }, "tags are from 0 to");
  std::vector<Tensors> too_few = {{tensor[0]}};
  check_error([&] { c10d.allgather(too_few, tensor, {}); }, "one for each rank");
  std::vector<Tensors> other_sizes = {
      Tensors(static_cast<std::size_t>(c10d.getSize()), at::ones({5}))};
  check_error([&] { c10d.allgather(other_sizes, tensor, {}); }, "same type and number");
  // Nothing of it has done harm.
  wait(c10d.allreduce(tensor, {}));
  check_equal(tensor[0], at::full({4, 4}, float(c10d.getSize())), "all_reduce after mistakes");
}

void in_flight() {
  const auto group = make_group("in flight");
  C10dBackend& c10d = group->c10d();
  const float ranks = static_cast<float>(c10d.getSize());
  // Some are waited for in place, some by their futures, some by nobody.
  constexpr int kOperations = 60;
  std::vector<Tensors> tensors;
  std::vector<WorkPtr> works;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
  for (int i = 0; i < kOperations; ++i) {
    tensors.push_back({at::full({i % 7 == 0 ? 100000 : 10}, float(i))});
    WorkPtr work = c10d.allreduce(tensors.back(), {});
    if (i % 3 == 0) works.push_back(work);
    if (i % 3 == 1) futures.push_back(work->getFuture());
  }
  for (const auto& future : futures) {
    future->waitAndThrow();
    check(future->value().toTensorVector().size() == 1, "the value of the future");
  }
  for (auto work = works.rbegin(); work != works.rend(); ++work) wait(*work);
  wait(c10d.barrier({}));
  for (int i = 0; i < kOperations; ++i) {
    if (i % 3 != 2) {
      check_equal(tensors[i][0], at::full_like(tensors[i][0], ranks * float(i)), "one in flight");
    }
  }
  // Several threads may wait for the same.
  Tensors tensor = {at::ones({1000000})};
  const WorkPtr work = c10d.allreduce(tensor, {});
  std::thread other([&] { wait(work); });
  wait(work);
  other.join();
  check(work->isCompleted() && work->isSuccess() && work->exception() == nullptr, "a work's state");
  check_equal(work->result().at(0), at::full({1000000}, ranks), "a work's result");
  check(work->getFuture()->completed(), "the future of what is done");
}

void several_groups() {
  const internal::MpiPlace place = internal::mpi_place(kStart);
  check(place.size == 3, "this case is of three ranks");
  const auto all = make_group("all");
  // In another order, and made at the same time by two threads.
  std::unique_ptr<internal::Backend> turned;
  std::unique_ptr<internal::Backend> pair;
  std::thread other([&] { turned = make_group("turned", {2, 0, 1}); });
  if (place.rank != 1) pair = make_group("pair", {0, 2});
  other.join();
  check(turned->c10d().getRank() == (place.rank + 1) % 3, "the rank in the turned group");
  Tensors tensor = {at::full({3}, float(place.rank))};
  c10d::BroadcastOptions from_first;
  wait(turned->c10d().broadcast(tensor, from_first));
  check_equal(tensor[0], at::full({3}, 2.0f), "the first of the turned group");
  if (pair) {
    tensor = {at::full({3}, float(place.rank + 1))};
    wait(pair->c10d().allreduce(tensor, {}));
    check_equal(tensor[0], at::full({3}, 4.0f), "the sum of the pair");
  }
  // Gone at one rank, while others use theirs.
  pair.reset();
  turned.reset();
  tensor = {at::ones({3})};
  wait(all->c10d().allreduce(tensor, {}));
  check_equal(tensor[0], at::full({3}, 3.0f), "the sum of all");
}

}  // namespace

void add_operations(Cases& cases) {
  cases["reductions"] = &reductions;
  cases["bitwise"] = &bitwise;
  cases["nan"] = &nan;
  cases["movements"] = &movements;
  cases["uneven_parts"] = &uneven_parts;
  cases["sums_in_parts"] = &sums_in_parts;
  cases["messages"] = &messages;
  cases["mistakes"] = &mistakes;
  cases["in_flight"] = &in_flight;
  cases["several_groups"] = &several_groups;
}

}  // namespace sinew::testing
