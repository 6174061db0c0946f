// gpu_test PART RANK WORLD FILE: all ranks on one GPU. Rank 0, in part `all` every rank, prints a
// line for each check; the exit status is the number of failures.

#include <chrono>

#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/cuda/CUDAEvent.h"
#include "ATen/cuda/CUDAGraph.h"
#include "ATen/cuda/Sleep.h"
#include "c10/cuda/CUDAFunctions.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/gpu/gpu_job.h"

namespace gpu {

/// Three times the tensor, computed by another thread on a side stream behind 30 ms of work and
/// more; the future is complete before the work has begun.
inline sinew::Future<at::Tensor> thrice_on_side(const at::Tensor& tensor) {
  const sinew::Promise<at::Tensor> promise;
  at::cuda::CUDAEvent arrived;
  arrived.record();
  std::thread([&] {
    const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
    arrived.block(side.current_stream());
    tensor.record_stream(side.current_stream());
    // Cycles of a clock that no GPU of today runs faster than at 2 GHz.
    at::cuda::sleep(60'000'000);
    promise.set_value(tensor * 3);
  }).join();
  return promise.future();
}

}  // namespace gpu

SINEW_METHOD(gpu::thrice_on_side);

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

/// What a check claims of the plane: that tensors went by it, all of them, and nothing went wrong.
class ByPlane {
 public:
  explicit ByPlane(const sinew::Worker& worker) : worker_(worker), before_(worker.counters()) {}

  /// Waits until the plane has reported `sent` and `received` transfers, 10 s at most. Throws, with
  /// all that differs, if it has not, or if other roads were taken.
  void check(std::int64_t sent, std::int64_t received) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while ((grown("nccl.transfers_sent") < sent || grown("nccl.transfers_received") < received) &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::string problem;
    const auto expect = [&](const char* name, bool holds) {
      if (!holds) problem += std::string(" ") + name + " grew by " + std::to_string(grown(name));
    };
    expect("nccl.transfers_sent", grown("nccl.transfers_sent") >= sent);
    expect("nccl.transfers_received", grown("nccl.transfers_received") >= received);
    expect("device.fetches", grown("device.fetches") == 0);
    expect("nccl.failures", grown("nccl.failures") == 0);
    expect("nccl.threads_left_behind", grown("nccl.threads_left_behind") == 0);
    expect("nccl.protocol_errors", grown("nccl.protocol_errors") == 0);
    if (!problem.empty()) throw std::runtime_error("not by the plane:" + problem);
  }

 private:
  std::int64_t grown(const std::string& name) const {
    const auto now = worker_.counters();
    const auto value = now.find(name);
    const auto before = before_.find(name);
    return (value == now.end() ? 0 : value->second) -
           (before == before_.end() ? 0 : before->second);
  }

  const sinew::Worker& worker_;
  const sinew::Counters before_;
};

void print_counters(const sinew::Worker& worker) {
  std::cout << "     ";
  for (const auto& [name, value] : worker.counters()) {
    if (name.rfind("nccl.", 0) == 0 || name.rfind("device.", 0) == 0) {
      std::cout << " " << name << "=" << value;
    }
  }
  std::cout << std::endl;
}

bool fails(sinew::ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const sinew::RpcError& error) {
    return error.code() == code;
  }
  return false;
}

void check_one(const sinew::Worker& worker, const sinew::Peer& peer) {
  check("one tensor", [&] {
    const ByPlane plane(worker);
    const at::Tensor tensor = at::arange(100'000, kGpu);
    const bool right = at::equal(peer.call<&gpu::twice>(tensor), tensor * 2);
    plane.check(1, 1);
    return right;
  });
}

void check_sizes_and_types(const sinew::Worker& worker, const sinew::Peer& peer) {
  for (const at::ScalarType type :
       {at::kByte, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const std::int64_t size : {0L, 1L, 1000L, 100'000L, 10'000'000L}) {
      check(std::string("twice of ") + std::to_string(size) + " " + c10::toString(type), [&] {
        const ByPlane plane(worker);
        const at::Tensor tensor = at::arange(size).remainder(50).to(type).to(kGpu);
        const at::Tensor result = peer.call<&gpu::twice>(tensor);
        const bool right = result.device() == kGpu && at::equal(result, tensor * 2);
        const std::int64_t by_plane = size >= 100'000 ? 1 : 0;
        plane.check(by_plane, by_plane);
        return right;
      });
    }
  }
}

void check_maps(const sinew::Peer& peer, const sinew::Peer& self) {
  check("CDM-05: the argument arrives on the mapped device",
        [&] { return peer.call<&gpu::place>(at::ones({3}, kGpu)) == "cuda:0"; });
  check("CDM-11: to_here", [&] {
    const auto rref = peer.remote<&gpu::on_gpu>(std::int64_t{100'000});
    return rref.to_here().device() == kGpu && rref.to_here().sum().item<float>() == 100'000;
  });
  check("CDM-09: no map for oneself", [&] {
    return fails(sinew::ErrorCode::kInvalidArgument,
                 [&] { self.call<&gpu::place>(at::ones({3}, kGpu)); });
  });
}

// What is queued on this thread's stream comes before the copy, and what the result is used for
// comes after it.
void check_streams(const sinew::Worker& worker, const sinew::Peer& peer) {
  for (int round = 0; round < 5; ++round) {
    check("CDM-13: a side stream, 20 calls", [&] {
      const ByPlane plane(worker);
      const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
      std::vector<sinew::Future<at::Tensor>> results;
      for (int i = 0; i < 20; ++i) {
        at::Tensor work = at::full({1024, 1024}, i + 1.0F, kGpu);
        for (int k = 0; k < 20; ++k) work = work.matmul(at::eye(1024, kGpu));
        results.push_back(peer.async<&gpu::busy_sum>(work));
      }
      for (int i = 0; i < 20; ++i) {
        const float sum = results[static_cast<std::size_t>(i)].take().item<float>();
        if (sum != (i + 1.0F) * 1024 * 1024) return false;
      }
      plane.check(20, 0);
      return true;
    });
  }
}

// What a handler's other stream computes is there for whoever reads the reply, the reference, or
// the gradients. Sizes of both roads; other values each time, since memory comes again.
void check_side_streams_of_handlers(const sinew::Worker& worker, const sinew::Peer& peer) {
  for (const std::int64_t size : {1000L, 1'000'000L}) {
    const std::int64_t by_plane = size > 100'000 ? 1 : 0;
    const std::string what = " of " + std::to_string(size) + " that a side stream computes late";
    check("a reply" + what, [&] {
      const ByPlane plane(worker);
      for (int i = 1; i <= 5; ++i) {
        const at::Tensor tensor = at::full({size}, i, kGpu);
        const at::Tensor result = peer.call<&gpu::thrice_on_side>(tensor);
        if (!at::equal(result, tensor * 3)) return false;
      }
      plane.check(5 * by_plane, 5 * by_plane);
      return true;
    });
    check("a reply that a continuation reads," + what, [&] {
      const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
      const at::Tensor tensor = at::full({size}, 11.0F, kGpu);
      const auto sum = peer.async<&gpu::thrice_on_side>(tensor).then([](const at::Tensor& thrice) {
        at::cuda::sleep(60'000'000);
        return thrice + 1;
      });
      const at::Tensor result = sum.wait();
      return at::equal(result, tensor * 3 + 1);
    });
    check("a reference" + what, [&] {
      const at::Tensor tensor = at::full({size}, 12.0F, kGpu);
      const auto rref = peer.remote<&gpu::thrice_on_side>(tensor);
      return at::equal(rref.to_here(), tensor * 3);
    });
    check("gradients" + what, [&] {
      const at::Tensor tensor = at::full({size}, 13.0F, kGpu).requires_grad_(true);
      const sinew::autograd::Context context(worker);
      const at::Tensor result = peer.call<&gpu::thrice_on_side>(tensor);
      sinew::autograd::backward(context, {(result * result).sum()});
      const at::Tensor gradient = sinew::autograd::gradients(context).at(tensor);
      return at::equal(gradient, at::full({size}, 18.0F * 13, kGpu));
    });
  }
}

void check_gradients(const sinew::Worker& worker, const sinew::Peer& peer) {
  check("CDM-22: gradients are on the device of their leaves", [&] {
    const at::Tensor a = at::rand({256, 256}, kGpu).requires_grad_(true);
    const at::Tensor b = at::rand({256, 256}, kGpu).requires_grad_(true);
    const sinew::autograd::Context context(worker);
    const at::Tensor result = peer.call<&gpu::product>(a, b);
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

// In CUDA's strictest mode, in which an event query of any thread would end it.
void check_captures(const sinew::Worker& worker, const sinew::Peer& peer) {
  check("a capture of another thread goes on", [&] {
    const ByPlane plane(worker);
    const at::Tensor tensor = at::ones({1'000'000}, kGpu);
    at::Tensor captured = at::ones({1000}, kGpu);
    at::cuda::CUDAGraph graph;
    {
      const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
      graph.capture_begin();
      captured.add_(1);
      std::thread([&] {
        for (int i = 0; i < 20; ++i) peer.call<&gpu::twice>(tensor);
      }).join();
      graph.capture_end();
      graph.replay();
    }
    c10::cuda::device_synchronize();
    plane.check(20, 20);
    return captured.sum().item<float>() == 2000;
  });
  check("a call on a stream that captures is refused", [&] {
    const at::Tensor tensor = at::ones({1'000'000}, kGpu);
    at::cuda::CUDAGraph graph;
    const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
    graph.capture_begin();
    const bool refused =
        fails(sinew::ErrorCode::kFailedPrecondition, [&] { peer.call<&gpu::twice>(tensor); });
    graph.capture_end();
    return refused;
  });
}

// A tensor that is still being computed when it is sent.
void check_late(const sinew::Worker& worker, const sinew::Peer& peer) {
  for (const int seconds : {3, 10, 40}) {
    check("behind " + std::to_string(seconds) + " s of work of the sender's GPU", [&] {
      const ByPlane plane(worker);
      const at::Tensor tensor = at::arange(1'000'000, kGpu);
      // Cycles of a clock that no GPU of today runs faster.
      for (int i = 0; i < seconds; ++i) at::cuda::sleep(2'000'000'000);
      const auto begin = std::chrono::steady_clock::now();
      sinew::CallOptions patient;
      patient.timeout = std::chrono::seconds(100);
      auto later = peer.with(patient).async<&gpu::twice>(tensor * 3);
      // Others are not kept waiting.
      peer.call<&gpu::on_gpu>(std::int64_t{100'000});
      const std::chrono::duration<double> others = std::chrono::steady_clock::now() - begin;
      const bool right = at::equal(later.take(), tensor * 6);
      const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
      std::cout << "      another call " << others.count() << " s, this one " << all.count() << " s"
                << std::endl;
      plane.check(1, 2);
      return right && others.count() < seconds;
    });
  }
}

// Every rank to every other one, large and small at once.
void check_all(const sinew::Worker& worker, int rank, int world) {
  check("rank " + std::to_string(rank) + " to all others, 30 rounds", [&] {
    const ByPlane plane(worker);
    const int rounds = 30;
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::pair<at::Tensor, sinew::Future<at::Tensor>>> results;
      for (int other = 0; other < world; ++other) {
        if (other == rank) continue;
        for (const std::int64_t size : {20'000, 1'000'000}) {
          const at::Tensor tensor = at::rand({size}, kGpu);
          results.emplace_back(
              tensor, worker.peer("gpu" + std::to_string(other)).async<&gpu::twice>(tensor));
        }
      }
      for (auto& [tensor, result] : results) {
        if (!at::equal(result.take(), tensor * 2)) return false;
      }
    }
    plane.check(2 * rounds * (world - 1), 2 * rounds * (world - 1));
    return true;
  });
}

// It ends the other process.
void check_loss(const sinew::Worker& worker, const sinew::Peer& peer) {
  check_one(worker, peer);
  check("calls fail when their process ends", [&] {
    std::vector<sinew::Future<at::Tensor>> results;
    for (int i = 0; i < 8; ++i) {
      results.push_back(peer.async<&gpu::twice>(at::ones({20'000'000}, kGpu)));
    }
    fails(sinew::ErrorCode::kUnavailable, [&] { peer.call<&gpu::end_process>(); });
    // Some may have been answered before.
    for (auto& result : results) {
      try {
        result.take();
      } catch (const sinew::RpcError& error) {
        if (error.code() != sinew::ErrorCode::kUnavailable) throw;
      }
    }
    return fails(sinew::ErrorCode::kUnavailable,
                 [&] { peer.call<&gpu::place>(at::ones({3}, kGpu)); });
  });
  check("the GPU still works", [] { return at::ones({1000}, kGpu).sum().item<float>() == 1000; });
}

// The other process ends, and another one takes its rank: tensors go by the plane again.
void check_restart(const sinew::Worker& worker, const sinew::Peer& peer) {
  check_one(worker, peer);
  fails(sinew::ErrorCode::kUnavailable, [&] { peer.call<&gpu::end_process>(); });
  check("calls reach the process that was started again", [&] {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (true) {
      try {
        return worker.peer("gpu1").call<&gpu::place>(at::ones({3}, kGpu)) == "cuda:0";
      } catch (const sinew::RpcError&) {
        if (std::chrono::steady_clock::now() > limit) throw;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    }
  });
  check_one(worker, worker.peer("gpu1"));
}

int run_part(const std::string& part, int rank, int world, const std::string& file) {
  sinew::MethodTable methods = gpu::methods();
  methods.add<&gpu::thrice_on_side>();
  const sinew::Worker worker = gpu::start(rank, world, file, std::move(methods));
  if (part == "all") {
    check_all(worker, rank, world);
  } else if (rank != 0) {
    // Rank 0 ends this process.
    std::this_thread::sleep_for(std::chrono::minutes(10));
    return 1;
  } else {
    const sinew::Peer peer = worker.peer("gpu1");
    if (part == "check") {
      check_one(worker, peer);
      check_sizes_and_types(worker, peer);
      check_maps(peer, worker.peer("gpu0"));
      check_streams(worker, peer);
      check_side_streams_of_handlers(worker, peer);
      check_gradients(worker, peer);
      check_captures(worker, peer);
    } else if (part == "late") {
      check_late(worker, peer);
    } else if (part == "restart") {
      check_restart(worker, peer);
    } else {
      check_loss(worker, peer);
    }
  }
  print_counters(worker);
  sinew::ShutdownOptions how;
  how.graceful = part == "all";
  if (part != "all" && part != "loss") {
    fails(sinew::ErrorCode::kUnavailable, [&] { worker.peer("gpu1").call<&gpu::end_process>(); });
  }
  worker.shutdown(how);
  return failures;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc == 5 ? argv[1] : "";
  if (part != "check" && part != "late" && part != "all" && part != "loss" && part != "restart") {
    std::cerr << "usage: gpu_test check|late|all|loss|restart RANK WORLD FILE" << std::endl;
    return 2;
  }
  return run_part(part, std::stoi(argv[2]), std::stoi(argv[3]), argv[4]);
}
