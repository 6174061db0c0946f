// gpu_groups RANK WORLD FILE: all operations of a group by NCCL, of processes on one GPU (each with
// its own NCCL_HOSTID), against what they give on the CPU. Every rank prints a line for each check;
// the exit status is the number of failures.

#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/cuda/Sleep.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/rpc/base/error.h"

namespace {

using sinew::ProcessGroup;
using sinew::ReduceOp;
using Tensors = std::vector<at::Tensor>;

const c10::Device kGpu(c10::kCUDA, 0);
constexpr std::int64_t kCount = 4096;

int failures = 0;

void check(const std::string& name, const std::function<bool()>& holds) {
  std::string problem;
  try {
    if (!holds()) problem = "the result is wrong";
  } catch (const std::exception& error) {
    problem = error.what();
  }
  std::cout << (problem.empty() ? "ok    " : "FAIL  ") << name
            << (problem.empty() ? "" : ": " + problem) << std::endl;
  if (!problem.empty()) ++failures;
}

/// What a rank has, for the CPU. Small whole numbers, exact in all types.
at::Tensor value(int rank, at::ScalarType type, int part = 0) {
  return ((at::arange(kCount, at::kLong) * (rank + 1) + part) % 4).to(type);
}
at::Tensor on_gpu(const at::Tensor& tensor) { return tensor.to(kGpu); }
bool same(const at::Tensor& gpu, const at::Tensor& cpu) { return gpu.cpu().equal(cpu); }

at::Tensor reduced(int world, at::ScalarType type, ReduceOp op, int part) {
  at::Tensor result = value(0, at::kDouble, part);
  for (int rank = 1; rank < world; ++rank) {
    const at::Tensor other = value(rank, at::kDouble, part);
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) result = result + other;
    if (op == ReduceOp::kProduct) result = result * other;
    if (op == ReduceOp::kMin) result = at::minimum(result, other);
    if (op == ReduceOp::kMax) result = at::maximum(result, other);
  }
  return (op == ReduceOp::kAverage ? result / world : result).to(type);
}

void check_moves(const ProcessGroup& group, at::ScalarType type) {
  const int own = group.rank();
  const int world = group.size();
  const std::string of = std::string(" of ") + c10::toString(type);
  const auto zeros = [&] { return at::zeros({kCount}, at::device(kGpu).dtype(type)); };
  const auto list = [&](const std::function<at::Tensor(int)>& make) {
    Tensors tensors;
    for (int rank = 0; rank < world; ++rank) tensors.push_back(make(rank));
    return tensors;
  };
  check("send and recv" + of, [&] {
    const at::Tensor received = zeros();
    const auto exchange = [&](bool first) {
      if (first) return group.send(on_gpu(value(own, type)), (own + 1) % world);
      group.recv(received, (own + world - 1) % world);
    };
    // NCCL matches them in order: the even ranks send first.
    exchange(own % 2 == 0);
    exchange(own % 2 != 0);
    return same(received, value((own + world - 1) % world, type));
  });
  check("broadcast" + of, [&] {
    const at::Tensor tensor = on_gpu(value(own, type));
    group.broadcast(tensor, 1);
    return same(tensor, value(1, type));
  });
  check("scatter" + of, [&] {
    const at::Tensor output = zeros();
    group.scatter(output,
                  own == 0 ? list([&](int rank) { return on_gpu(value(rank, type)); }) : Tensors(),
                  0);
    return same(output, value(own, type));
  });
  check("gather" + of, [&] {
    const Tensors outputs = own == 1 ? list([&](int) { return zeros(); }) : Tensors();
    group.gather(outputs, on_gpu(value(own, type)), 1);
    bool right = true;
    for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
      right = right && same(outputs[rank], value(static_cast<int>(rank), type));
    }
    return right;
  });
  check("all_gather" + of, [&] {
    const Tensors outputs = list([&](int) { return zeros(); });
    group.all_gather(outputs, on_gpu(value(own, type)));
    bool right = true;
    for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
      right = right && same(outputs[rank], value(static_cast<int>(rank), type));
    }
    return right;
  });
  check("all_to_all" + of, [&] {
    const Tensors outputs = list([&](int) { return zeros(); });
    group.all_to_all(outputs, list([&](int rank) { return on_gpu(value(own, type, rank)); }));
    bool right = true;
    for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
      right = right && same(outputs[rank], value(static_cast<int>(rank), type, own));
    }
    return right;
  });
}

void check_reductions(const ProcessGroup& group, at::ScalarType type) {
  const int own = group.rank();
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
    if (op == ReduceOp::kAverage && !c10::isFloatingType(type)) continue;
    const std::string of =
        " " + std::to_string(static_cast<int>(op)) + " of " + c10::toString(type);
    check("all_reduce" + of, [&] {
      const at::Tensor tensor = on_gpu(value(own, type));
      group.all_reduce(tensor, op);
      return same(tensor, reduced(group.size(), type, op, 0));
    });
    check("reduce" + of, [&] {
      const at::Tensor tensor = on_gpu(value(own, type));
      group.reduce(tensor, 0, op);
      return same(tensor, own == 0 ? reduced(group.size(), type, op, 0) : value(own, type));
    });
    check("reduce_scatter" + of, [&] {
      Tensors inputs;
      for (int part = 0; part < group.size(); ++part) {
        inputs.push_back(on_gpu(value(own, type, part)));
      }
      const at::Tensor output = at::zeros({kCount}, at::device(kGpu).dtype(type));
      group.reduce_scatter(output, inputs, op);
      return same(output, reduced(group.size(), type, op, own));
    });
  }
}

void check_streams(const ProcessGroup& group) {
  check("what is still being computed is waited for", [&] {
    const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
    const c10::cuda::CUDAStreamGuard guard(side);
    const at::Tensor tensor = at::zeros({kCount}, at::device(kGpu));
    at::cuda::sleep(200'000'000);
    tensor.fill_(1.0);
    // A new shape: compared first, on another thread.
    const auto done = group.all_reduce_async(tensor.view({kCount / 2, 2}));
    done.wait();
    return same(tensor, at::full({kCount}, static_cast<double>(group.size()), at::kFloat));
  });
  check("a view that is not contiguous", [&] {
    const at::Tensor matrix = at::zeros({64, 64}, at::device(kGpu));
    const at::Tensor column = matrix.select(1, 3);
    column.fill_(group.rank() + 1.0);
    group.all_reduce(column, ReduceOp::kMax);
    const at::Tensor cpu = matrix.cpu();
    return cpu.select(1, 3).equal(at::full({64}, static_cast<double>(group.size()), at::kFloat)) &&
           cpu.sum().item<double>() == 64.0 * group.size();
  });
  check("ranks that disagree are all told", [&] {
    try {
      group.all_reduce(at::zeros({group.rank() == 0 ? 3 : 5}, at::device(kGpu)));
    } catch (const sinew::RpcError& error) {
      return error.code() == sinew::ErrorCode::kInvalidArgument;
    }
    return false;
  });
  check("the group goes on, and a barrier", [&] {
    group.barrier();
    return true;
  });
}

/// Several buckets, so that some are reduced while the rest of the pass runs.
void check_data_parallel(const ProcessGroup& group) {
  constexpr std::int64_t kWidth = 256;
  torch::manual_seed(group.rank());
  torch::nn::Sequential net(torch::nn::Linear(kWidth, kWidth), torch::nn::Tanh(),
                            torch::nn::Linear(kWidth, kWidth), torch::nn::Tanh(),
                            torch::nn::Linear(kWidth, 1));
  net->to(kGpu);
  sinew::parallel::DdpOptions options;
  options.first_bucket_bytes = options.bucket_bytes = std::size_t{64} << 10;
  const auto input_of = [](int rank) {
    return on_gpu(at::arange(4 * kWidth, at::kFloat).view({4, kWidth}) / 1000.0 * (rank + 1));
  };
  sinew::parallel::DistributedDataParallel ddp(net.ptr(), group, options);
  torch::nn::Sequential whole(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  torch::optim::SGD whole_optimizer(whole->parameters(), 0.1);
  check("a data-parallel module trains as one process with the whole batch", [&] {
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      ddp.forward(input_of(group.rank())).mean().backward();
      optimizer.step();
      std::vector<at::Tensor> batch;
      for (int rank = 0; rank < group.size(); ++rank) batch.push_back(input_of(rank));
      whole_optimizer.zero_grad();
      whole->forward(at::cat(batch)).mean().backward();
      whole_optimizer.step();
    }
    bool same = true;
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      same = same && net->parameters()[i].allclose(whole->parameters()[i], 1e-4, 1e-6);
    }
    return same;
  });
}

void check_end(const ProcessGroup& group) {
  check("an operation's time limit ends it", [&] {
    if (group.rank() != 0) {
      try {
        group.recv(at::zeros({7}, at::device(kGpu)), 0, 0, {std::chrono::seconds(60)});
      } catch (const sinew::RpcError&) {
        return true;
      }
      return false;
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
      group.all_reduce(at::zeros({11}, at::device(kGpu)), ReduceOp::kSum,
                       {std::chrono::seconds(3)});
    } catch (const sinew::RpcError& error) {
      return error.code() == sinew::ErrorCode::kDeadlineExceeded &&
             std::chrono::steady_clock::now() - begin < std::chrono::seconds(30);
    }
    return false;
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: gpu_groups RANK WORLD FILE" << std::endl;
    return 1;
  }
  try {
    sinew::GroupOptions options;
    options.init_method = std::string("file://") + arguments[3];
    options.rank = std::atoi(arguments[1]);
    options.world_size = std::atoi(arguments[2]);
    options.backend = "nccl";
    options.timeout = std::chrono::seconds(120);
    const ProcessGroup group = sinew::init_process_group(options);
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kByte}) {
      check_moves(group, type);
      check_reductions(group, type);
    }
    check_moves(group, at::kBool);
    check_streams(group);
    check_data_parallel(group);
    check_end(group);
    group.destroy();
  } catch (const std::exception& error) {
    std::cout << "FAIL  " << error.what() << std::endl;
    ++failures;
  }
  std::cout << failures << " failures" << std::endl;
  return failures;
}
