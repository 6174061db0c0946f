// nccl_bandwidth RANK FILE: the same bytes with ncclSend and ncclRecv alone; FILE brings the id
// from rank 0 to rank 1. Each transfer is waited for, as a call is.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::cerr << what << ": " << cudaGetErrorString(result) << std::endl;
  std::exit(1);
}
void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  std::cerr << what << ": " << ncclGetErrorString(result) << std::endl;
  std::exit(1);
}

ncclUniqueId exchange_id(int rank, const std::string& file) {
  ncclUniqueId id{};
  if (rank == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    {
      std::ofstream out(file + ".part", std::ios::binary);
      out.write(id.internal, sizeof(id.internal));
    }
    std::rename((file + ".part").c_str(), file.c_str());
    return id;
  }
  for (int i = 0; i < 600; ++i) {
    std::ifstream in(file, std::ios::binary);
    if (in.read(id.internal, sizeof(id.internal))) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::cerr << "rank 0 wrote no " << file << std::endl;
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: nccl_bandwidth RANK FILE" << std::endl;
    return 2;
  }
  const int rank = std::atoi(argv[1]);
  check(cudaSetDevice(0), "cudaSetDevice");
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, 2, exchange_id(rank, argv[2]), rank), "ncclCommInitRank");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  for (const std::size_t size : {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20,
                                 std::size_t{256} << 20}) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, size), "cudaMalloc");
    const auto transfer = [&] {
      check(rank == 0 ? ncclSend(memory, size, ncclUint8, 1, comm, stream)
                      : ncclRecv(memory, size, ncclUint8, 0, comm, stream),
            "transfer");
      check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    };
    for (int i = 0; i < 5; ++i) transfer();
    const int rounds = size < (std::size_t{16} << 20) ? 200 : 20;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) transfer();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (rank == 0) {
      std::printf("nccl  %10zu bytes %8.3f GB/s\n", size,
                  static_cast<double>(size) * rounds / time.count() / 1e9);
    }
    check(cudaFree(memory), "cudaFree");
  }
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  return 0;
}
