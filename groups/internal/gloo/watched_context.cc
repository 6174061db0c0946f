#include "sinew/groups/internal/gloo/watched_context.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <mutex>
#include <typeinfo>
#include <utility>

#include "gloo/transport/tcp/context.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/tcp/pair.h"

namespace sinew::internal {
namespace {

namespace tcp = gloo::transport::tcp;

/// While it lives, this thread gets no SIGPIPE, which would end the process.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    // Then a pending one may belong to other code.
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const int error = errno;
    const timespec now{};
    while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

/// Gloo's own pair over TLS overrides the same functions.
class WatchedPair final : public tcp::Pair {
 public:
  WatchedPair(tcp::Context* context, tcp::Device* device, int rank,
              std::chrono::milliseconds timeout, const OnBroken& on_broken)
      : Pair(context, device, rank, timeout), on_broken_(on_broken) {}

  /// Gloo holds this lock from before it wakes the buffers until the connection is closed.
  void await_on_broken() { const std::lock_guard<std::mutex> lock(m_); }

 private:
  // All that Gloo writes goes through here, and without MSG_NOSIGNAL.
  bool write(tcp::Op& op) override {
    const NoSigpipe quiet;
    return Pair::write(op);
  }

  void changeState(state next) noexcept override {
    // Without an exception it is closed here.
    if (next == CLOSED && ex_ != nullptr) on_broken_(rank_);
    Pair::changeState(next);
  }

  const OnBroken& on_broken_;
};

class WatchedContext final : public tcp::Context {
 public:
  WatchedContext(std::shared_ptr<tcp::Device> device, int self, int ranks, OnBroken on_broken)
      : Context(std::move(device), self, ranks), on_broken_(std::move(on_broken)) {}
  ~WatchedContext() override {
    // They refer to what is destroyed here.
    pairs_.clear();
  }

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    std::unique_ptr<gloo::transport::Pair>& pair = pairs_[static_cast<std::size_t>(peer)];
    pair = std::make_unique<WatchedPair>(this, device_.get(), peer, getTimeout(), on_broken_);
    return pair;
  }

  void await_on_broken() {
    for (const auto& pair : pairs_) {
      if (pair != nullptr) static_cast<WatchedPair&>(*pair).await_on_broken();
    }
  }

 private:
  const OnBroken on_broken_;
};

}  // namespace

std::shared_ptr<gloo::transport::Context> make_watched_context(
    const std::shared_ptr<gloo::transport::Device>& device, int rank, int size,
    OnBroken on_broken) {
  // Not of what derives from it: TLS has pairs of its own.
  const gloo::transport::Device& made = *device;
  if (typeid(made) != typeid(tcp::Device)) return device->createContext(rank, size);
  return std::make_shared<WatchedContext>(std::static_pointer_cast<tcp::Device>(device), rank, size,
                                          std::move(on_broken));
}

void await_on_broken(gloo::transport::Context& context) {
  if (auto* const watched = dynamic_cast<WatchedContext*>(&context)) watched->await_on_broken();
}

}  // namespace sinew::internal
