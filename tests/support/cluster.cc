#include "sinew/tests/support/cluster.h"
#include "sinew/rpc/worker/worker_parts.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sinew::testing {
namespace {

constexpr std::chrono::seconds kPatience{30};

/// Runs `body` for each rank on a thread of its own, and waits for all.
void for_each_rank(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

std::string new_meeting_file() {
  static std::atomic<int> number{0};
  return absl::StrCat(::testing::TempDir(), "sinew_cluster_", getpid(), "_", number++);
}

/// Counts of things that a worker which has ended must not have any more.
bool must_be_zero(const std::string& counter) {
  return counter == "rpc.client_active_calls" || counter == "rpc.server_active_calls" ||
         counter == "rpc.limited_calls" || absl::StartsWith(counter, "rref.") ||
         absl::StartsWith(counter, "names.") || counter == "autograd.contexts" ||
         counter == "autograd.sends" || counter == "autograd.recvs" || counter == "autograd.passes";
}

}  // namespace

Cluster::Cluster(ClusterOptions options) : workers_(static_cast<std::size_t>(options.size)) {
  const auto network = std::make_shared<internal::InprocNetwork>();
  if (options.transport == ClusterTransport::kGrpc) meeting_file_ = new_meeting_file();
  std::vector<std::exception_ptr> errors(workers_.size());
  for_each_rank(options.size, [&](int rank) {
    WorkerOptions worker;
    worker.name = absl::StrCat("worker", rank);
    worker.methods = options.methods;
    worker.rank = rank;
    worker.world_size = options.size;
    worker.num_threads = 4;
    // The machine may have much else to do; tests of workers that fall silent have a lease of their
    // own.
    worker.lease = std::chrono::minutes(2);
    if (options.transport == ClusterTransport::kGrpc) {
      worker.init_method = absl::StrCat("file://", meeting_file_);
    } else {
      worker.init_method = "inproc://cluster";
      worker.network = network;
    }
    if (options.wrap_transport) {
      // Once more when it rejoins.
      internal::parts_of(worker).wrap_transport =
          [wrap = options.wrap_transport, rank](std::unique_ptr<internal::Transport> transport) {
            return wrap(rank, std::move(transport));
          };
    }
    if (options.tweak) options.tweak(rank, worker);
    const auto index = static_cast<std::size_t>(rank);
    try {
      workers_[index] = init_rpc(std::move(worker));
    } catch (...) {
      errors[index] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

Cluster::~Cluster() {
  ShutdownOptions now;
  now.graceful = false;
  for (const Worker& worker : workers_) {
    if (worker.valid()) worker.shutdown(now);
  }
  if (meeting_file_.empty()) return;
  std::remove(meeting_file_.c_str());
  std::remove((meeting_file_ + ".lock").c_str());
}

std::vector<std::string> Cluster::shutdown(const ShutdownOptions& options) {
  internal::Mutex mutex;
  std::vector<std::string> failures;
  for_each_rank(size(), [&](int rank) {
    const Worker& worker = this->worker(rank);
    try {
      worker.shutdown(options);
    } catch (const std::exception& error) {
      const internal::MutexLock lock(mutex);
      failures.push_back(absl::StrCat(worker.name(), ": ", error.what()));
    }
  });
  for (const Worker& worker : workers_) {
    for (const auto& [name, count] : worker.counters()) {
      if (count != 0 && must_be_zero(name)) {
        failures.push_back(absl::StrCat(worker.name(), ": ", name, " is ", count));
      }
    }
  }
  return failures;
}

Cluster& ClusterTest::start(int size, MethodTable methods,
                            std::function<void(int rank, WorkerOptions& options)> tweak) {
  ClusterOptions options;
  options.size = size;
  options.methods = std::move(methods);
  options.tweak = std::move(tweak);
  return start(std::move(options));
}

Cluster& ClusterTest::start(ClusterOptions options) {
  finish();
  options.transport = GetParam();
  cluster_ = std::make_unique<Cluster>(std::move(options));
  return *cluster_;
}

void ClusterTest::finish() {
  if (cluster_ == nullptr) return;
  ShutdownOptions options;
  options.timeout = kPatience;
  options.fail_on_leaks = true;
  const std::vector<std::string> failures = cluster_->shutdown(options);
  EXPECT_TRUE(failures.empty()) << absl::StrJoin(failures, "\n");
  cluster_.reset();
}

std::vector<ClusterTransport> cluster_transports() {
#ifdef __SANITIZE_THREAD__
  return {ClusterTransport::kInproc};
#else
  return {ClusterTransport::kInproc, ClusterTransport::kGrpc};
#endif
}

std::string cluster_transport_name(const ::testing::TestParamInfo<ClusterTransport>& info) {
  return info.param == ClusterTransport::kInproc ? "Inproc" : "Grpc";
}

void Gate::pass() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  internal::MutexLock lock(mutex_);
  ++arrivals_;
  changed_.notify_all();
  while (!open_ && std::chrono::steady_clock::now() < end) changed_.wait_until(mutex_, end);
}

bool Gate::wait_for_arrivals(int count) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  internal::MutexLock lock(mutex_);
  while (arrivals_ < count && std::chrono::steady_clock::now() < end) {
    changed_.wait_until(mutex_, end);
  }
  return arrivals_ >= count;
}

void Gate::open() {
  internal::MutexLock lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

void Gate::close() {
  internal::MutexLock lock(mutex_);
  open_ = false;
  arrivals_ = 0;
}

int Gate::arrivals() const {
  internal::MutexLock lock(mutex_);
  return arrivals_;
}

RpcError error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const RpcError& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw something that is no RpcError: " << error.what();
    return RpcError(ErrorCode::kUnknown, "");
  }
  ADD_FAILURE() << "did not throw";
  return RpcError(ErrorCode::kUnknown, "");
}

}  // namespace sinew::testing
