#include "steps.h"

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace probe {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

std::string name_of(ncclResult_t result) { return ncclGetErrorString(result); }
std::string name_of(cudaError_t result) { return cudaGetErrorName(result); }

double timed_abort(ncclComm_t comm) {
  return timed([&] { check(ncclCommAbort(comm), "ncclCommAbort"); });
}

// ---- What a communicator costs.

void facts(Pair& pair) {
  const std::string log = "/tmp/sinew-probe-" + std::to_string(getpid());
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_FILE", log.c_str(), 1);
  int version = 0;
  int driver = 0;
  check(ncclGetVersion(&version), "ncclGetVersion");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  if (pair.rank() == 0) {
    say(std::string(properties.name) + ", driver for CUDA " + std::to_string(driver) + ", NCCL " +
        std::to_string(version) + ", built with " + std::to_string(NCCL_VERSION_CODE));
  }
  cudaStream_t stream = new_stream();
  void* memory = device_memory(kMiB);
  pair.meet();
  for (int i = 0; i < 3; ++i) {
    const double free_before = free_memory_mib();
    const int threads_before = threads_of_process();
    pair.meet();
    ncclComm_t comm = nullptr;
    const double join_s = timed([&] { comm = join(pair); });
    const double first_s = timed([&] { transfer(pair, comm, memory, kKiB, stream); });
    const double second_s = timed([&] { transfer(pair, comm, memory, kKiB, stream); });
    pair.meet();
    say("communicator " + std::to_string(i) + ": join " + text_of(join_s) + ", first transfer " +
        text_of(first_s) + ", second " + text_of(second_s) + ", threads " +
        std::to_string(threads_before) + " -> " + std::to_string(threads_of_process()) +
        ", GPU memory of both ranks " + std::to_string(free_before - free_memory_mib()) + " MiB");
    pair.meet();
    // The first one stays.
    if (i > 0) say("abort of an idle one: " + text_of(timed_abort(comm)));
    pair.meet();
  }
  std::ifstream lines(log);
  int shown = 0;
  for (std::string line; std::getline(lines, line) && shown < 6;) {
    if (line.find(" via ") == std::string::npos && line.find("Using network") == std::string::npos)
      continue;
    say(line.substr(line.find("NCCL INFO")));
    ++shown;
  }
  std::remove(log.c_str());
}

void bandwidth(Pair& pair) {
  ncclComm_t comm = join(pair);
  cudaStream_t stream = new_stream();
  for (const std::size_t size : {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 256 * kMiB}) {
    void* memory = device_memory(size);
    for (int i = 0; i < 3; ++i) transfer(pair, comm, memory, size, stream);
    const int rounds = size < 16 * kMiB ? 100 : 5;
    const double seconds = timed([&] {
      for (int i = 0; i < rounds; ++i) transfer(pair, comm, memory, size, stream);
    });
    if (pair.rank() == 0) {
      char text[96];
      std::snprintf(text, sizeof(text), "%10zu bytes: %8.1f us, %7.3f GB/s", size,
                    seconds / rounds * 1e6, static_cast<double>(size) * rounds / seconds / 1e9);
      say(text);
    }
    check(cudaFree(memory), "cudaFree");
  }
}

// ---- Aborts.

// Rank 1 waits for what rank 0 never sends, behind or beside other work of its own.
void abort_receiver(Pair& pair, double behind_s, double beside_s) {
  ncclComm_t comm = join(pair);
  cudaStream_t stream = new_stream();
  cudaStream_t other = new_stream();
  void* memory = device_memory(kMiB);
  transfer(pair, comm, memory, kMiB, stream);
  pair.meet();
  if (pair.rank() == 1) {
    if (behind_s > 0) spin(stream, behind_s);
    if (beside_s > 0) spin(other, beside_s);
    const auto start = Clock::now();
    const ncclResult_t begun = begin_transfer(pair, comm, memory, kMiB, stream);
    say("group_end: " + name_of(begun) + " after " + text_of(seconds_since(start)) + ", then " +
        name_of(settle(comm, 10)) + " after " + text_of(seconds_since(start)));
    cudaEvent_t finished = event_behind(stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    say(std::string("the receive is ") +
        (is_done(finished) ? "DONE (wrong)" : "not done, as it should be"));
    std::thread watcher([&, begun_at = Clock::now()] {
      wait_until(20, [&] { return is_done(finished); });
      say("the receive leaves its stream after " + text_of(seconds_since(begun_at)));
    });
    say("abort returns after " + text_of(timed_abort(comm)));
    watcher.join();
    say("last error of CUDA: " + name_of(cudaGetLastError()));
  }
  pair.meet();
  if (pair.rank() == 0) say("abort at the other end: " + text_of(timed_abort(comm)));
  pair.meet();
  ncclComm_t next = join(pair);
  transfer(pair, next, memory, kMiB, stream);
  if (pair.rank() == 0) say("a new communicator works");
}

void abort_spinning(Pair& pair) { abort_receiver(pair, 0, 0); }
void abort_behind(Pair& pair) { abort_receiver(pair, 10, 0); }
void abort_beside(Pair& pair) { abort_receiver(pair, 0, 10); }

// The connection for the first transfer waits for the other end.
void abort_first(Pair& pair) {
  ncclComm_t comm = join(pair);
  cudaStream_t stream = new_stream();
  void* memory = device_memory(kMiB);
  pair.meet();
  if (pair.rank() == 0) {
    const auto start = Clock::now();
    const ncclResult_t begun = begin_transfer(pair, comm, memory, kMiB, stream);
    say("group_end: " + name_of(begun) + " after " + text_of(seconds_since(start)));
    const ncclResult_t state = settle(comm, 3);
    say("then " + name_of(state) + " after " + text_of(seconds_since(start)));
    say("abort returns after " + text_of(timed_abort(comm)));
  }
  pair.meet();
  if (pair.rank() == 1) say("abort at the other end: " + text_of(timed_abort(comm)));
}

void abort_alone(Pair& pair) {
  const ncclUniqueId id = pair.share_id();
  if (pair.rank() == 1) return;
  const int threads = threads_of_process();
  ncclComm_t comm = begin_join(id, 0);
  const ncclResult_t state = settle(comm, 3);
  say("with nobody else: " + name_of(state) + " after 3 s; abort returns after " +
      text_of(timed_abort(comm)));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  say("threads " + std::to_string(threads) + " -> " + std::to_string(threads_of_process()));
}

// An id that nobody serves any more.
void dead_id(Pair& pair) {
  ncclUniqueId id = pair.share_id();
  if (pair.rank() == 0) return;
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const int threads = threads_of_process();
  const auto start = Clock::now();
  ncclResult_t returned = ncclSuccess;
  ncclComm_t comm = begin_join(id, 1, &returned);
  say("join begins: " + name_of(returned) + " after " + text_of(seconds_since(start)));
  if (comm == nullptr) return;
  const ncclResult_t state = settle(comm, 40);
  say("then " + name_of(state) + " after " + text_of(seconds_since(start)) +
      "; abort returns after " + text_of(timed_abort(comm)));
  say("threads " + std::to_string(threads) + " -> " + std::to_string(threads_of_process()));
}

// The leader makes ids that nobody uses.
void unused_ids(Pair& pair) {
  if (pair.rank() == 1) return;
  ncclUniqueId id{};
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const int threads = threads_of_process();
  for (int i = 0; i < 4; ++i) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  say("threads after four unused ids: " + std::to_string(threads) + " -> " +
      std::to_string(threads_of_process()));
}

// ---- Several things at once.

void two_communicators(Pair& pair) {
  const ncclUniqueId first_id = pair.share_id();
  const ncclUniqueId second_id = pair.share_id();
  const auto start = Clock::now();
  ncclResult_t first_began = ncclSuccess;
  ncclResult_t second_began = ncclSuccess;
  ncclComm_t first = begin_join(first_id, pair.rank(), &first_began);
  ncclComm_t second = begin_join(second_id, pair.rank(), &second_began);
  say("two joins on one thread begin: " + name_of(first_began) + ", " + name_of(second_began));
  if (first == nullptr || second == nullptr) return;
  say("then " + name_of(settle(first, 20)) + ", " + name_of(settle(second, 20)) + " after " +
      text_of(seconds_since(start)));
  cudaStream_t stream_1 = new_stream();
  cudaStream_t stream_2 = new_stream();
  void* memory_1 = device_memory(kMiB);
  void* memory_2 = device_memory(kMiB);
  pair.meet();
  // Rank 1 is late, and takes them in the other order: both are in progress at once at both ends.
  if (pair.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  const bool swap = pair.rank() == 1;
  const auto begin = Clock::now();
  const ncclResult_t one = swap ? begin_transfer(pair, second, memory_2, kMiB, stream_2)
                                : begin_transfer(pair, first, memory_1, kMiB, stream_1);
  const ncclResult_t two = swap ? begin_transfer(pair, first, memory_1, kMiB, stream_1)
                                : begin_transfer(pair, second, memory_2, kMiB, stream_2);
  say("two groups on one thread: " + name_of(one) + ", " + name_of(two) + " after " +
      text_of(seconds_since(begin)));
  say("then " + name_of(settle(first, 10)) + ", " + name_of(settle(second, 10)) + " after " +
      text_of(seconds_since(begin)));
  cudaEvent_t event_1 = event_behind(stream_1);
  cudaEvent_t event_2 = event_behind(stream_2);
  say("both are over after " +
      text_of(wait_until(10, [&] { return is_done(event_1) && is_done(event_2); }), 10) + " more");
}

// Two transfers whose kernels are launched in opposite orders at the two ends.
void opposite_orders(Pair& pair) {
  ncclComm_t first = join(pair);
  ncclComm_t second = join(pair);
  cudaStream_t stream_1 = new_stream();
  cudaStream_t stream_2 = new_stream();
  cudaStream_t user = new_stream();
  const std::size_t size = 16 * kMiB;
  void* memory_1 = device_memory(size);
  void* memory_2 = device_memory(size);
  transfer(pair, first, memory_1, size, stream_1);
  transfer(pair, second, memory_2, size, stream_2);
  pair.meet();
  // As where a tensor is still being computed: both wait for an event of the user's stream.
  spin(user, 0.5);
  cudaEvent_t ready = event_behind(user);
  check(cudaStreamWaitEvent(stream_1, ready, 0), "cudaStreamWaitEvent");
  check(cudaStreamWaitEvent(stream_2, ready, 0), "cudaStreamWaitEvent");
  const bool swap = pair.rank() == 1;
  for (int i = 0; i < 2; ++i) {
    const bool use_first = (i == 0) != swap;
    check(begin_transfer(pair, use_first ? first : second, use_first ? memory_1 : memory_2, size,
                         use_first ? stream_1 : stream_2),
          "ncclGroupEnd");
  }
  // NCCL launches later; an event is behind the kernels only when it has.
  say("launched: " + name_of(settle(first, 10)) + ", " + name_of(settle(second, 10)));
  cudaEvent_t event_1 = event_behind(stream_1);
  cudaEvent_t event_2 = event_behind(stream_2);
  say("over after " +
      text_of(wait_until(10, [&] { return is_done(event_1) && is_done(event_2); }), 10));
  say("aborts: " + text_of(timed_abort(first)) + ", " + text_of(timed_abort(second)));
}

// ---- Captures.

// What an event query of another thread does to a capture in CUDA's strictest mode, the default.
void capture(Pair& pair) {
  if (pair.rank() == 1) return;
  cudaStream_t captured = new_stream();
  cudaStream_t other = new_stream();
  cudaEvent_t event = event_behind(other);
  check(cudaStreamSynchronize(other), "cudaStreamSynchronize");
  for (const bool exchange : {false, true}) {
    check(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    std::string queried;
    std::thread([&] {
      if (exchange) {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
      }
      queried = name_of(cudaEventQuery(event));
      cudaEvent_t made = nullptr;
      queried += ", create " + name_of(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
      queried += ", record " + name_of(cudaEventRecord(event, other));
      queried += ", wait " + name_of(cudaStreamWaitEvent(other, event, 0));
      cudaStream_t stream = nullptr;
      queried += ", stream " + name_of(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      (void)cudaGetLastError();
    }).join();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(captured, &graph);
    (void)cudaGetLastError();
    say(std::string(exchange ? "relaxed" : "plain") + ": query " + queried +
        "; the capture ends with " + name_of(ended));
  }
}

// ---- Loss.

// Whether what a stream has done is at the other end, too.
void leave_after_send(Pair& pair) {
  ncclComm_t comm = join(pair);
  cudaStream_t stream = new_stream();
  void* memory = device_memory(kMiB);
  transfer(pair, comm, memory, kMiB, stream);
  pair.meet();
  if (pair.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  check(begin_transfer(pair, comm, memory, kMiB, stream), "ncclGroupEnd");
  say("launched: " + name_of(settle(comm, 5)));
  cudaEvent_t finished = event_behind(stream);
  say("the stream is done after " + text_of(wait_until(5, [&] { return is_done(finished); }), 5));
}

void kill_in_transfer(Pair& pair) {
  ncclComm_t comm = join(pair);
  cudaStream_t stream = new_stream();
  const std::size_t size = 1024 * kMiB;
  void* memory = device_memory(size);
  transfer(pair, comm, memory, kMiB, stream);
  pair.meet();
  check(begin_transfer(pair, comm, memory, size, stream), "ncclGroupEnd");
  if (pair.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::raise(SIGKILL);
  }
  // If it is not launched by now, the event is behind nothing and says nothing.
  say("launched: " + name_of(settle(comm, 1)));
  cudaEvent_t finished = event_behind(stream);
  const auto start = Clock::now();
  ncclResult_t state = ncclInProgress;
  double error_s = -1;
  double event_s = -1;
  wait_until(20, [&] {
    state = state_of(comm);
    if (error_s < 0 && state != ncclSuccess && state != ncclInProgress)
      error_s = seconds_since(start);
    if (event_s < 0 && is_done(finished)) event_s = seconds_since(start);
    return error_s >= 0 || event_s >= 0;
  });
  say("error after " + text_of(error_s, 20) + " (" + name_of(state) + "), event done after " +
      text_of(event_s, 20));
  say("abort returns after " + text_of(timed_abort(comm)) + ", its event is done after " +
      text_of(wait_until(20, [&] { return is_done(finished); }), 20) + " more");
  check(cudaMemset(memory, 0, kMiB), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  say("the GPU still works");
}

}  // namespace

const std::vector<Step>& steps() {
  static const std::vector<Step> all = {
      {"facts", "what a communicator costs, and by which transport it goes", 60, facts},
      {"bandwidth", "plain NCCL, each transfer waited for", 90, bandwidth},
      {"two", "two communicators of one thread, in progress at once", 60, two_communicators},
      {"orders", "opposite orders of launch at the two ends", 60, opposite_orders},
      {"orders_1", "the same with one hardware queue", 60, opposite_orders, false,
       "CUDA_DEVICE_MAX_CONNECTIONS=1"},
      {"capture", "event queries while another thread captures a graph", 30, capture},
      {"abort_spinning", "an abort while a receive spins", 60, abort_spinning},
      {"abort_behind", "an abort behind 10 s of work on the same stream", 60, abort_behind},
      {"abort_beside", "an abort beside 10 s of work on another stream", 60, abort_beside},
      {"abort_first", "an abort of a first transfer whose other end does nothing", 60, abort_first},
      {"abort_alone", "an abort while nobody else joins", 60, abort_alone},
      {"dead_id", "joining by an id that nobody serves", 60, dead_id, true},
      {"unused_ids", "what ids cost that nobody uses", 30, unused_ids},
      {"leave", "a sender ends as soon as its stream is done", 60, leave_after_send, true},
      {"kill", "the other end is killed in a transfer", 60, kill_in_transfer, true},
  };
  return all;
}

}  // namespace probe
