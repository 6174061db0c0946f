#pragma once

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/TensorOperators.h"
#include "sinew/sinew.h"

/// The job of both programs: processes with one GPU, which meet through a file.
namespace gpu {

inline at::Tensor twice(const at::Tensor& tensor) { return tensor * 2; }
inline at::Tensor product(const at::Tensor& a, const at::Tensor& b) { return a.matmul(b); }
inline std::string place(const at::Tensor& tensor) { return tensor.device().str(); }
/// The sum, computed on a stream on which much is queued before it.
inline at::Tensor busy_sum(const at::Tensor& tensor) {
  at::Tensor work = at::ones({2048, 2048}, tensor.options().dtype(at::kFloat));
  for (int i = 0; i < 50; ++i) work = work.matmul(work) / 2048;
  return tensor.sum() + (work.sum() - work.sum()).to(tensor.scalar_type());
}
inline at::Tensor on_gpu(std::int64_t size) {
  return at::ones({size}, at::TensorOptions().device("cuda:0"));
}
inline void take(const at::Tensor&) {}
inline void end_process() { std::_Exit(9); }

}  // namespace gpu

SINEW_METHOD(gpu::twice, gpu::product, gpu::place, gpu::busy_sum, gpu::on_gpu, gpu::take,
             gpu::end_process);

namespace gpu {

inline sinew::MethodTable methods() {
  sinew::MethodTable methods;
  methods.add<&twice>()
      .add<&product>()
      .add<&place>()
      .add<&busy_sum>()
      .add<&on_gpu>()
      .add<&take>()
      .add<&end_process>();
  return methods;
}

/// Worker "gpu<rank>" of `world`. Its device 0 is that of all others.
inline sinew::Worker start(int rank, int world, const std::string& meeting_file,
                           sinew::MethodTable served = methods()) {
  sinew::WorkerOptions options;
  options.name = "gpu" + std::to_string(rank);
  options.methods = std::move(served);
  options.init_method = "file://" + meeting_file;
  options.rank = rank;
  options.world_size = world;
  options.join_timeout = std::chrono::seconds(60);
  for (int other = 0; other < world; ++other) {
    if (other != rank) {
      options.device_maps["gpu" + std::to_string(other)] = sinew::DeviceMap({{0, 0}});
    }
  }
  return sinew::init_rpc(std::move(options));
}

}  // namespace gpu
