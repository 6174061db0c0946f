#include "sinew/groups/internal/gloo/guarded_transport.h"

#include <array>
#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "gloo/common/error.h"
#include "gloo/transport/context.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/unbound_buffer.h"
#include "gloo/types.h"
#include "sinew/groups/internal/gloo/watched_context.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {
namespace {

using gloo::transport::Pair;
using gloo::transport::UnboundBuffer;

// gloo::Slot, from the top: 8 bits of the algorithm, 32 of the operation, 16 that are free, 8 of
// the message within the operation. A user's tag has 32 bits, and nothing above.
constexpr int kAlgorithmShift = 56;
constexpr int kTagShift = 24;
constexpr int kDigestShift = 8;
constexpr int kUserDigestShift = 32;

/// Gloo's headers do not say how a slot is made, so it could be otherwise elsewhere.
bool slots_are_as_known() {
  const std::uint64_t slot = gloo::Slot::build(0xa5, 0x12345678) + std::uint8_t{3};
  return slot == (std::uint64_t{0xa5} << kAlgorithmShift | std::uint64_t{0x12345678} << kTagShift |
                  std::uint64_t{3});
}

// The group keeps time limits itself.
constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);

// Operations whose digests are kept; many fewer are under way at once.
constexpr std::size_t kKeptDigests = 8192;

thread_local std::uint16_t point_to_point_digest = 0;

class GuardedBuffer;

class Guard final : public TransportGuard {
 public:
  explicit Guard(int size) : waits_(static_cast<std::size_t>(size)) {}

  void abort(const std::string& reason) override;
  void expect(std::uint32_t tag, std::uint16_t digest) override {
    digests_[tag % kKeptDigests].store(digest, std::memory_order_release);
  }
  void expect_point_to_point(std::uint16_t digest) override { point_to_point_digest = digest; }
  std::vector<int> broken_ranks() const override {
    MutexLock lock(broken_mutex_);
    return broken_;
  }
  void watch_broken(std::function<void()> f) override {
    MutexLock lock(broken_mutex_);
    on_broken_ = std::move(f);
  }
  std::vector<int> awaited_ranks() const override {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < waits_.size(); ++rank) {
      if (waits_[rank].load(std::memory_order_relaxed) > 0) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  std::uint64_t slot_of(std::uint64_t slot, std::size_t nbytes) const {
    if (!uses_digests_) return slot;
    const bool is_collective = slot >> kAlgorithmShift != 0;
    const auto tag = static_cast<std::uint32_t>(slot >> kTagShift);
    const std::uint64_t digest = is_collective
                                     ? digests_[tag % kKeptDigests].load(std::memory_order_acquire)
                                     : point_to_point_digest;
    // Sizes that differ in little differ in these 16 bits.
    const std::uint64_t size = nbytes * 0x9e3779b97f4a7c15u >> 48;
    return slot | ((digest ^ size) & 0xffff) << (is_collective ? kDigestShift : kUserDigestShift);
  }
  void check() const {
    if (is_aborted_.load(std::memory_order_acquire)) throw_aborted();
  }
  void note_wait(int rank, int change) {
    if (rank >= 0) waits_[static_cast<std::size_t>(rank)].fetch_add(change);
  }
  void note_broken(int rank) {
    std::function<void()> told;
    {
      MutexLock lock(broken_mutex_);
      broken_.push_back(rank);
      told = on_broken_;
    }
    if (told) told();
  }
  void add(GuardedBuffer* buffer) {
    MutexLock lock(mutex_);
    buffers_.insert(buffer);
  }
  void remove(GuardedBuffer* buffer) {
    MutexLock lock(mutex_);
    buffers_.erase(buffer);
  }

 private:
  [[noreturn]] void throw_aborted() const {
    MutexLock lock(mutex_);
    throw gloo::IoException(reason_);
  }

  const bool uses_digests_ = slots_are_as_known();
  std::array<std::atomic<std::uint16_t>, kKeptDigests> digests_{};
  std::vector<std::atomic<int>> waits_;
  std::atomic<bool> is_aborted_{false};

  mutable Mutex broken_mutex_;
  std::vector<int> broken_ ABSL_GUARDED_BY(broken_mutex_);
  std::function<void()> on_broken_ ABSL_GUARDED_BY(broken_mutex_);

  mutable Mutex mutex_;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<GuardedBuffer*> buffers_ ABSL_GUARDED_BY(mutex_);
};

class GuardedBuffer final : public UnboundBuffer {
 public:
  GuardedBuffer(std::shared_ptr<Guard> guard, std::shared_ptr<gloo::transport::Context> context,
                std::unique_ptr<UnboundBuffer> inner)
      : UnboundBuffer(inner->ptr, inner->size),
        guard_(std::move(guard)),
        context_(std::move(context)),
        inner_(std::move(inner)) {
    guard_->add(this);
  }
  ~GuardedBuffer() override { guard_->remove(this); }

  bool waitRecv(int* rank, std::chrono::milliseconds) override {
    return wait(source_, [&] { return inner_->waitRecv(rank, kForEver); });
  }
  bool waitSend(int* rank, std::chrono::milliseconds) override {
    return wait(destination_, [&] { return inner_->waitSend(rank, kForEver); });
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }

  void send(int rank, std::uint64_t slot, std::size_t offset, std::size_t nbytes) override {
    guard_->check();
    destination_ = rank;
    const std::size_t count = nbytes == kUnspecifiedByteCount ? size - offset : nbytes;
    inner_->send(rank, guard_->slot_of(slot, count), offset, count);
  }
  void recv(int rank, std::uint64_t slot, std::size_t offset, std::size_t nbytes) override {
    guard_->check();
    source_ = rank;
    const std::size_t count = nbytes == kUnspecifiedByteCount ? size - offset : nbytes;
    inner_->recv(rank, guard_->slot_of(slot, count), offset, count);
  }
  void recv(std::vector<int> ranks, std::uint64_t slot, std::size_t offset,
            std::size_t nbytes) override {
    guard_->check();
    source_ = -1;
    const std::size_t count = nbytes == kUnspecifiedByteCount ? size - offset : nbytes;
    inner_->recv(std::move(ranks), guard_->slot_of(slot, count), offset, count);
  }

 private:
  template <class F>
  bool wait(int rank, F f) {
    guard_->check();
    guard_->note_wait(rank, 1);
    bool done = false;
    try {
      done = f();
    } catch (const gloo::IoException&) {
      guard_->note_wait(rank, -1);
      guard_->check();
      // The code that is told of this asks whose connection it was.
      await_on_broken(*context_);
      throw;
    }
    guard_->note_wait(rank, -1);
    // Gloo's algorithms would take an aborted wait for a finished one.
    if (!done) guard_->check();
    return done;
  }

  const std::shared_ptr<Guard> guard_;
  const std::shared_ptr<gloo::transport::Context> context_;
  const std::unique_ptr<UnboundBuffer> inner_;
  // Of the latest operation; -1: any. A buffer is for one thread at a time.
  int source_ = -1;
  int destination_ = -1;
};

void Guard::abort(const std::string& reason) {
  MutexLock lock(mutex_);
  if (is_aborted_.load(std::memory_order_relaxed)) return;
  reason_ = reason;
  is_aborted_.store(true, std::memory_order_release);
  for (GuardedBuffer* buffer : buffers_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

/// The inner context's pair, for those that ask the outer one.
class GuardedPair final : public Pair {
 public:
  explicit GuardedPair(Pair& inner) : inner_(inner) {}

  const gloo::transport::Address& address() const override { return inner_.address(); }
  void connect(const std::vector<char>& bytes) override { inner_.connect(bytes); }
  void close() override { inner_.close(); }
  void setSync(bool enable, bool busy_poll) override { inner_.setSync(enable, busy_poll); }
  std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int slot, void* ptr,
                                                            std::size_t size) override {
    return inner_.createSendBuffer(slot, ptr, size);
  }
  std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int slot, void* ptr,
                                                            std::size_t size) override {
    return inner_.createRecvBuffer(slot, ptr, size);
  }
  // Buffers pass to inner buffers, and these to inner pairs: this is never called with an outer
  // one.
  void send(UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t nbytes) override {
    inner_.send(buffer, tag, offset, nbytes);
  }
  void recv(UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t nbytes) override {
    inner_.recv(buffer, tag, offset, nbytes);
  }

 private:
  Pair& inner_;
};

class GuardedContext final : public gloo::transport::Context {
 public:
  GuardedContext(std::shared_ptr<gloo::transport::Context> inner, std::shared_ptr<Guard> guard)
      : gloo::transport::Context(inner->rank, inner->size),
        inner_(std::move(inner)),
        guard_(std::move(guard)) {}

  std::unique_ptr<Pair>& createPair(int peer) override {
    inner_->setTimeout(getTimeout());
    const auto at = static_cast<std::size_t>(peer);
    pairs_[at] = std::make_unique<GuardedPair>(*inner_->createPair(peer));
    return pairs_[at];
  }
  std::unique_ptr<UnboundBuffer> createUnboundBuffer(void* ptr, std::size_t nbytes) override {
    return std::make_unique<GuardedBuffer>(guard_, inner_,
                                           inner_->createUnboundBuffer(ptr, nbytes));
  }

 private:
  const std::shared_ptr<gloo::transport::Context> inner_;
  const std::shared_ptr<Guard> guard_;
};

class Device final : public gloo::transport::Device {
 public:
  Device(std::shared_ptr<gloo::transport::Device> inner, std::shared_ptr<Guard> guard)
      : inner_(std::move(inner)), guard_(std::move(guard)) {}

  std::string str() const override { return inner_->str(); }
  const std::string& getPCIBusID() const override { return inner_->getPCIBusID(); }
  int getInterfaceSpeed() const override { return inner_->getInterfaceSpeed(); }
  bool hasGPUDirect() const override { return inner_->hasGPUDirect(); }
  std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override {
    return std::make_shared<GuardedContext>(
        make_watched_context(inner_, rank, size,
                             [guard = guard_](int peer) { guard->note_broken(peer); }),
        guard_);
  }

 private:
  const std::shared_ptr<gloo::transport::Device> inner_;
  const std::shared_ptr<Guard> guard_;
};

}  // namespace

GuardedDevice guard_device(std::shared_ptr<gloo::transport::Device> device, int size) {
  auto guard = std::make_shared<Guard>(size);
  return {std::make_shared<Device>(std::move(device), guard), guard};
}

}  // namespace sinew::internal
