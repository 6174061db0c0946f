// gpu_bandwidth RANK FILE: tensors pushed from a GPU of rank 0 to one of rank 1, in GB/s, a line
// for each size.

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "sinew/tests/gpu/gpu_job.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: gpu_bandwidth RANK FILE" << std::endl;
    return 2;
  }
  const int rank = std::stoi(argv[1]);
  const sinew::Worker worker = gpu::start(rank, 2, argv[2]);
  if (rank == 0) {
    const sinew::Peer peer = worker.peer("gpu1");
    for (const std::int64_t size : {64L << 10, 1L << 20, 16L << 20, 256L << 20}) {
      const at::Tensor tensor =
          at::zeros({size}, at::TensorOptions().dtype(at::kByte).device("cuda:0"));
      for (int i = 0; i < 5; ++i) peer.call<&gpu::take>(tensor);
      const int rounds = size < (16L << 20) ? 200 : 20;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < rounds; ++i) peer.call<&gpu::take>(tensor);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      std::printf("sinew %10ld bytes %8.3f GB/s\n", static_cast<long>(size),
                  static_cast<double>(size) * rounds / time.count() / 1e9);
    }
  }
  worker.shutdown();
}
