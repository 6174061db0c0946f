#include "sinew/rpc/transport/grpc/internal/poller.h"

#include <pthread.h>

#include "grpc/grpc.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/impl/codegen/completion_queue_tag.h"

namespace sinew::internal {
namespace {

/// Brings the end of an operation, of which a thread learned that must not report it, to a polling
/// thread.
class Forwarded final : public Completion {
 public:
  static void send(grpc::CompletionQueue* queue, Completion* to, bool ok) {
    auto* forwarded = new Forwarded(to, ok);
    forwarded->alarm_.Set(queue, gpr_now(GPR_CLOCK_MONOTONIC), static_cast<Completion*>(forwarded));
  }
  void on_completion(bool) override {
    to_->on_completion(ok_);
    delete this;
  }

 private:
  Forwarded(Completion* to, bool ok) : to_(to), ok_(ok) {}
  ~Forwarded() = default;
  Completion* const to_;
  const bool ok_;
  grpc::Alarm alarm_;
};

}  // namespace

Poller::Poller(int threads) : queue_(builder_.AddCompletionQueue()) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { poll(); });
}

Poller::~Poller() { shutdown(); }

void Poller::poll() {
  pthread_setname_np(pthread_self(), "sinew-grpc");
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<Completion*>(tag)->on_completion(ok);
}

std::optional<bool> Poller::try_now(Completion* tag, absl::FunctionRef<void()> start) {
  // gRPC keeps one ended operation of the calling thread from the queue; CompletionQueue itself
  // offers that only together with polling.
  grpc_completion_queue_thread_local_cache_init(queue_->cq());
  start();
  void* ended = nullptr;
  int success = 0;
  if (grpc_completion_queue_thread_local_cache_flush(queue_->cq(), &ended, &success) == 0) {
    return std::nullopt;
  }
  bool ok = success != 0;
  auto* operation = static_cast<grpc::internal::CompletionQueueTag*>(ended);
  if (!operation->FinalizeResult(&ended, &ok)) return std::nullopt;
  auto* const completion = static_cast<Completion*>(ended);
  if (completion == tag) return ok;
  // gRPC has done another call's work on this thread.
  Forwarded::send(queue_.get(), completion, ok);
  return std::nullopt;
}

void Poller::shutdown() {
  if (threads_.empty()) return;
  queue_->Shutdown();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace sinew::internal
