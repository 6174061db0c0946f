#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>
#include <nccl.h>

/// What the steps of the probe are made of: NCCL and CUDA alone, no LibTorch and nothing of Sinew.
namespace probe {

using Clock = std::chrono::steady_clock;

/// Ends the process with status 1 and a line that names the call and its error.
void check(cudaError_t result, const char* call);
void check(ncclResult_t result, const char* call);

/// Prints a line: the step, the rank, and the text.
void say(const std::string& text);
void set_speaker(const std::string& step, int rank);

double seconds_since(Clock::time_point start);
/// How long `call` takes, in seconds.
double timed(const std::function<void()>& call);
/// Looks each 100 us until `holds` or the limit; the seconds that passed, negative when it did not.
double wait_until(double limit_s, const std::function<bool()>& holds);
/// "0.123 s", "never (in 5 s)".
std::string text_of(double seconds, double limit_s = 0);

/// The other rank of a step, at the far end of a pair of sockets.
class Pair {
 public:
  Pair(int rank, int socket) : rank_(rank), socket_(socket) {}
  int rank() const { return rank_; }
  /// Returns when both have come here. Ends the process with status 1 when the other one is gone.
  void meet();
  /// Rank 0's new id, at both.
  ncclUniqueId share_id();

 private:
  int rank_;
  int socket_;
};

cudaStream_t new_stream();
cudaEvent_t event_behind(cudaStream_t stream);
bool is_done(cudaEvent_t event);
/// Queues a kernel of one thread that ends after so long.
void spin(cudaStream_t stream, double seconds);
int threads_of_process();
double free_memory_mib();

/// Begins to join, as the plane does: two ranks, non-blocking. `result`, if given, takes what the
/// call returns; otherwise an error ends the process.
ncclComm_t begin_join(const ncclUniqueId& id, int rank, ncclResult_t* result = nullptr);
/// The state of a communicator's last call.
ncclResult_t state_of(ncclComm_t comm);
/// Waits until the last call for `comm` is no longer in progress; the state then.
ncclResult_t settle(ncclComm_t comm, double limit_s);
/// Joins, and waits until that is done.
ncclComm_t join(Pair& pair);
/// A group of one operation for the other rank: rank 0 sends, rank 1 receives. What group_end
/// returned.
ncclResult_t begin_transfer(Pair& pair, ncclComm_t comm, void* memory, std::size_t size,
                            cudaStream_t stream);
/// One that is waited for, on the device too.
void transfer(Pair& pair, ncclComm_t comm, void* memory, std::size_t size, cudaStream_t stream);
void* device_memory(std::size_t size);

}  // namespace probe
