#include "kit.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#if CUDART_VERSION < 12080
#error "the probe needs CUDA 12.8 or newer: it loads its kernel with cudaLibraryLoadData"
#endif

namespace probe {
namespace {

std::string speaker = "probe";

// Compiled by the driver, so that no nvcc is needed.
constexpr char kSpin[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
  .reg .pred %again;
  .reg .u64 %start, %now, %limit;
  ld.param.u64 %limit, [nanoseconds];
  mov.u64 %start, %globaltimer;
loop:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %again, %now, %limit;
  @%again bra loop;
  ret;
}
)";

[[noreturn]] void fail(const std::string& text) {
  say("FAIL  " + text);
  std::_Exit(1);
}

}  // namespace

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) fail(std::string(call) + ": " + cudaGetErrorString(result));
}

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail(std::string(call) + ": " + ncclGetErrorString(result) + " (" + ncclGetLastError(nullptr) +
       ")");
}

void set_speaker(const std::string& step, int rank) { speaker = step + " " + std::to_string(rank); }

void say(const std::string& text) {
  // One write, since both ranks print.
  const std::string line = speaker + ": " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double timed(const std::function<void()>& call) {
  const auto start = Clock::now();
  call();
  return seconds_since(start);
}

double wait_until(double limit_s, const std::function<bool()>& holds) {
  const auto start = Clock::now();
  while (!holds()) {
    if (seconds_since(start) > limit_s) return -1;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return seconds_since(start);
}

std::string text_of(double seconds, double limit_s) {
  char text[64];
  if (seconds < 0) {
    std::snprintf(text, sizeof(text), "never (in %g s)", limit_s);
  } else {
    std::snprintf(text, sizeof(text), "%.6f s", seconds);
  }
  return text;
}

void Pair::meet() {
  char byte = 0;
  if (send(socket_, &byte, 1, MSG_NOSIGNAL) != 1 || recv(socket_, &byte, 1, 0) != 1) {
    fail("the other rank is gone");
  }
}

ncclUniqueId Pair::share_id() {
  ncclUniqueId id{};
  if (rank_ == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (send(socket_, &id, sizeof(id), MSG_NOSIGNAL) != sizeof(id)) fail("the other rank is gone");
  } else if (recv(socket_, &id, sizeof(id), MSG_WAITALL) != sizeof(id)) {
    fail("the other rank is gone");
  }
  return id;
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

cudaEvent_t event_behind(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  check(cudaEventRecord(event, stream), "cudaEventRecord");
  return event;
}

bool is_done(cudaEvent_t event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) return false;
  check(result, "cudaEventQuery");
  return true;
}

void spin(cudaStream_t stream, double seconds) {
  static const cudaKernel_t kernel = [] {
    cudaLibrary_t library = nullptr;
    check(cudaLibraryLoadData(&library, kSpin, nullptr, nullptr, 0, nullptr, nullptr, 0),
          "cudaLibraryLoadData");
    cudaKernel_t loaded = nullptr;
    check(cudaLibraryGetKernel(&loaded, library, "spin"), "cudaLibraryGetKernel");
    return loaded;
  }();
  auto nanoseconds = static_cast<unsigned long long>(seconds * 1e9);
  void* arguments[] = {&nanoseconds};
  check(cudaLaunchKernel(static_cast<const void*>(kernel), dim3(1), dim3(1), arguments, 0, stream),
        "cudaLaunchKernel");
}

int threads_of_process() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::atoi(line.c_str() + 8);
  }
  return -1;
}

double free_memory_mib() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<double>(free) / (1 << 20);
}

ncclComm_t begin_join(const ncclUniqueId& id, int rank, ncclResult_t* result) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t returned = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
  if (result != nullptr) {
    *result = returned;
  } else {
    check(returned, "ncclCommInitRankConfig");
  }
  return comm;
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm, &state);
  return result == ncclSuccess ? state : result;
}

ncclResult_t settle(ncclComm_t comm, double limit_s) {
  ncclResult_t state = ncclInProgress;
  wait_until(limit_s, [&] { return (state = state_of(comm)) != ncclInProgress; });
  return state;
}

ncclComm_t join(Pair& pair) {
  ncclComm_t comm = begin_join(pair.share_id(), pair.rank());
  const ncclResult_t state = settle(comm, 30);
  if (state != ncclSuccess) fail(std::string("joining: ") + ncclGetErrorString(state));
  return comm;
}

ncclResult_t begin_transfer(Pair& pair, ncclComm_t comm, void* memory, std::size_t size,
                            cudaStream_t stream) {
  check(ncclGroupStart(), "ncclGroupStart");
  check(pair.rank() == 0 ? ncclSend(memory, size, ncclUint8, 1, comm, stream)
                         : ncclRecv(memory, size, ncclUint8, 0, comm, stream),
        "ncclSend or ncclRecv");
  return ncclGroupEnd();
}

void transfer(Pair& pair, ncclComm_t comm, void* memory, std::size_t size, cudaStream_t stream) {
  check(begin_transfer(pair, comm, memory, size, stream), "ncclGroupEnd");
  const ncclResult_t state = settle(comm, 30);
  if (state != ncclSuccess) fail(std::string("a transfer: ") + ncclGetErrorString(state));
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void* device_memory(std::size_t size) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, size), "cudaMalloc");
  return memory;
}

}  // namespace probe
