// gpu_test RANK FILE: both ranks on one GPU. Rank 0 checks and prints a line for each check; its
// exit status is the number of failures. The last check ends rank 1, with status 9.

#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/gpu/gpu_job.h"

namespace {

const c10::Device kGpu(c10::kCUDA, 0);

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

bool fails(sinew::ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const sinew::RpcError& error) {
    return error.code() == code;
  }
  return false;
}

void check_sizes_and_types(const sinew::Peer& peer) {
  for (const at::ScalarType type :
       {at::kByte, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const std::int64_t size : {0L, 1L, 1000L, 100'000L, 10'000'000L}) {
      check(std::string("twice of ") + std::to_string(size) + " " + c10::toString(type), [&] {
        const at::Tensor tensor = at::arange(size).remainder(50).to(type).to(kGpu);
        const at::Tensor result = sinew::rpc_sync<&gpu::twice>(peer, tensor);
        return result.device() == kGpu && at::equal(result, tensor * 2);
      });
    }
  }
}

void check_maps(const sinew::Peer& peer, const sinew::Peer& self) {
  check("CDM-05: the argument arrives on the mapped device",
        [&] { return sinew::rpc_sync<&gpu::place>(peer, at::ones({3}, kGpu)) == "cuda:0"; });
  check("CDM-11: to_here", [&] {
    const auto rref = sinew::remote<&gpu::on_gpu>(peer, std::int64_t{100'000});
    return rref.to_here().device() == kGpu && rref.to_here().sum().item<float>() == 100'000;
  });
  check("CDM-09: no map for oneself", [&] {
    return fails(sinew::ErrorCode::kInvalidArgument,
                 [&] { sinew::rpc_sync<&gpu::place>(self, at::ones({3}, kGpu)); });
  });
}

// What is queued on this thread's stream comes before the copy, and what the result is used for
// comes after it.
void check_streams(const sinew::Peer& peer) {
  for (int round = 0; round < 5; ++round) {
    check("CDM-13: a side stream, 20 calls", [&] {
      const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
      std::vector<sinew::Future<at::Tensor>> results;
      for (int i = 0; i < 20; ++i) {
        at::Tensor work = at::full({1024, 1024}, i + 1.0F, kGpu);
        for (int k = 0; k < 20; ++k) work = work.matmul(at::eye(1024, kGpu));
        results.push_back(sinew::rpc_async<&gpu::busy_sum>(peer, work));
      }
      for (int i = 0; i < 20; ++i) {
        const float sum = results[static_cast<std::size_t>(i)].take().item<float>();
        if (sum != (i + 1.0F) * 1024 * 1024) return false;
      }
      return true;
    });
  }
}

void check_gradients(const sinew::Worker& worker, const sinew::Peer& peer) {
  check("CDM-22: gradients are on the device of their leaves", [&] {
    const at::Tensor a = at::rand({256, 256}, kGpu).requires_grad_(true);
    const at::Tensor b = at::rand({256, 256}, kGpu).requires_grad_(true);
    const sinew::autograd::Context context(worker);
    const at::Tensor result = sinew::rpc_sync<&gpu::product>(peer, a, b);
    sinew::autograd::backward(context, {result.sum()});
    const at::Tensor ones = at::ones({256, 256}, kGpu);
    for (const auto& [variable, gradient] : sinew::autograd::gradients(context)) {
      const at::Tensor expected =
          variable.is_same(a) ? ones.matmul(b.detach().t()) : a.detach().t().matmul(ones);
      if (gradient.device() != kGpu || !at::allclose(gradient, expected, 1e-3, 1e-3)) return false;
    }
    return true;
  });
}

// Last: it ends the other process.
void check_loss(const sinew::Peer& peer) {
  check("calls fail when their process ends", [&] {
    std::vector<sinew::Future<at::Tensor>> results;
    for (int i = 0; i < 8; ++i) {
      results.push_back(sinew::rpc_async<&gpu::twice>(peer, at::ones({20'000'000}, kGpu)));
    }
    fails(sinew::ErrorCode::kUnavailable, [&] { sinew::rpc_sync<&gpu::end_process>(peer); });
    // Some may have been answered before.
    for (auto& result : results) {
      try {
        result.take();
      } catch (const sinew::RpcError& error) {
        if (error.code() != sinew::ErrorCode::kUnavailable) throw;
      }
    }
    return fails(sinew::ErrorCode::kUnavailable,
                 [&] { sinew::rpc_sync<&gpu::place>(peer, at::ones({3}, kGpu)); });
  });
  check("the GPU still works", [] { return at::ones({1000}, kGpu).sum().item<float>() == 1000; });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: gpu_test RANK FILE" << std::endl;
    return 2;
  }
  const int rank = std::stoi(argv[1]);
  const sinew::Worker worker = gpu::start(rank, argv[2], {{0, 0}});
  if (rank == 1) {
    // Until rank 0 ends this process.
    std::this_thread::sleep_for(std::chrono::minutes(10));
    return 1;
  }
  const sinew::Peer peer = worker.peer("gpu1");
  check_sizes_and_types(peer);
  check_maps(peer, worker.peer("gpu0"));
  check_streams(peer);
  check_gradients(worker, peer);
  check_loss(peer);
  sinew::ShutdownOptions now;
  now.graceful = false;
  worker.shutdown(now);
  return failures;
}
