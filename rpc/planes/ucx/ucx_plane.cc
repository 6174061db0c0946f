#include "sinew/rpc/planes/ucx/ucx_plane.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "sinew/plane.pb.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/challenge.h"
#include "sinew/rpc/planes/ucx/ucx_engine.h"
#include "sinew/rpc/planes/ucx/ucx_peer.h"

namespace sinew::internal {
namespace {

constexpr std::uint32_t kUcxNumber = 2;
constexpr std::size_t kMaxWorkerAddressBytes = std::size_t{8} << 10;

UcxToken token_of(absl::string_view bytes) {
  UcxToken token{};
  static_assert(sizeof token == kChallengeBytes);
  std::memcpy(token.data(), bytes.data(), token.size());
  return token;
}

class UcxLink final : public PullLink {
 public:
  UcxLink(std::shared_ptr<UcxEngine> engine, std::string local_hello, std::string remote_hello);
  ~UcxLink() override { close(); }

  const std::string& challenge() const override { return challenge_; }
  absl::StatusOr<std::string> prove(absl::string_view challenge) override;
  void verify(absl::string_view proof, OnEnd on_end) override;
  std::optional<std::string> locate(const absl::Cord& payload) override;
  void release(absl::string_view location) override;
  void fetch(absl::string_view location, PullTarget target, OnEnd on_end) override;
  bool fetches_in_place() const override { return false; }
  void close() override;

 private:
  static std::optional<std::uint64_t> handle_of(absl::string_view location);

  const std::shared_ptr<UcxEngine> engine_;
  const std::string local_hello_;
  const std::string remote_hello_;
  const std::string nonce_ = new_challenge();
  const UcxToken token_ = token_of(new_challenge());
  const std::shared_ptr<UcxPeer> peer_;
  std::string challenge_;
  Mutex mutex_;
  bool proved_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

UcxLink::UcxLink(std::shared_ptr<UcxEngine> engine, std::string local_hello,
                 std::string remote_hello)
    : engine_(std::move(engine)),
      local_hello_(std::move(local_hello)),
      remote_hello_(std::move(remote_hello)),
      peer_(std::make_shared<UcxPeer>(engine_, token_)) {
  proto::UcxChallenge challenge;
  challenge.set_nonce(nonce_);
  challenge.set_worker(engine_->worker_address());
  challenge.set_token(std::string(token_.data(), token_.size()));
  challenge_ = challenge.SerializeAsString();
}

absl::StatusOr<std::string> UcxLink::prove(absl::string_view bytes) {
  proto::UcxChallenge challenge;
  if (!challenge.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      challenge.nonce().size() != kChallengeBytes || challenge.token().size() != kChallengeBytes ||
      challenge.worker().empty() || challenge.worker().size() > kMaxWorkerAddressBytes) {
    return absl::InvalidArgumentError("malformed challenge of the UCX plane");
  }
  const absl::StatusOr<Digest> shown = digest_of(challenge.nonce(), local_hello_);
  if (!shown.ok()) return shown.status();
  MutexLock lock(mutex_);
  if (closed_ || std::exchange(proved_, true)) {
    return absl::FailedPreconditionError("this end has answered a challenge before, or is closed");
  }
  engine_->post([peer = peer_, worker = challenge.worker(), token = token_of(challenge.token()),
                 shown = *shown]() mutable { peer->open(std::move(worker), token, shown); });
  // The digest itself goes by UCX, when the other end asks for it there.
  return std::string();
}

void UcxLink::verify(absl::string_view proof, OnEnd on_end) {
  bool makes_sense = proof.empty();
  {
    MutexLock lock(mutex_);
    // The challenge says where the peer is.
    makes_sense = makes_sense && proved_;
  }
  if (!makes_sense) {
    std::move(on_end)(absl::InvalidArgumentError("malformed proof of the UCX plane"));
    return;
  }
  absl::StatusOr<Digest> expected = digest_of(nonce_, remote_hello_);
  if (!expected.ok()) {
    std::move(on_end)(expected.status());
    return;
  }
  engine_->post([peer = peer_, expected = *expected, on_end = std::move(on_end)]() mutable {
    peer->check(expected, std::move(on_end));
  });
}

std::optional<std::string> UcxLink::locate(const absl::Cord& payload) {
  if (!payload.TryFlat().has_value()) return std::nullopt;
  const std::uint64_t handle = peer_->add(payload);
  std::string location(sizeof handle, '\0');
  std::memcpy(location.data(), &handle, sizeof handle);
  return location;
}

std::optional<std::uint64_t> UcxLink::handle_of(absl::string_view location) {
  std::uint64_t handle = 0;
  if (location.size() != sizeof handle) return std::nullopt;
  std::memcpy(&handle, location.data(), sizeof handle);
  return handle;
}

void UcxLink::release(absl::string_view location) {
  if (const std::optional<std::uint64_t> handle = handle_of(location)) peer_->remove(*handle);
}

void UcxLink::fetch(absl::string_view location, PullTarget target, OnEnd on_end) {
  const std::optional<std::uint64_t> handle = handle_of(location);
  if (!handle.has_value()) {
    std::move(on_end)(absl::InvalidArgumentError("malformed location of the UCX plane"));
    return;
  }
  engine_->post([peer = peer_, handle = *handle, target = std::move(target),
                 on_end = std::move(on_end)]() mutable {
    peer->fetch(handle, std::move(target), std::move(on_end));
  });
}

void UcxLink::close() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
  }
  // What UCX still reads does not count any more, and stays in memory until it is done with it.
  peer_->close();
  engine_->post([peer = peer_] { peer->shut(); });
}

/// Outlives its links, by what the transport does.
class UcxPlane final : public PullPlane {
 public:
  explicit UcxPlane(std::shared_ptr<UcxEngine> engine) : engine_(std::move(engine)) {}
  ~UcxPlane() override { engine_->stop(); }

  std::uint32_t number() const override { return kUcxNumber; }
  absl::string_view name() const override { return "UCX"; }
  std::unique_ptr<PullLink> open(ConnectionEnds ends) override {
    return std::make_unique<UcxLink>(engine_, std::move(ends.local_hello),
                                     std::move(ends.remote_hello));
  }

 private:
  const std::shared_ptr<UcxEngine> engine_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<PullPlane>> make_ucx_plane(const UcxOptions& options) {
  absl::StatusOr<std::shared_ptr<UcxEngine>> engine = UcxEngine::start(options);
  if (!engine.ok()) return engine.status();
  const std::size_t size_bytes = (*engine)->worker_address().size();
  if (size_bytes > kMaxWorkerAddressBytes) {
    (*engine)->stop();
    return absl::FailedPreconditionError(
        absl::StrCat("UCX: the address of its worker has ", size_bytes, " bytes, more than ",
                     kMaxWorkerAddressBytes, ": name fewer devices in UCX_NET_DEVICES"));
  }
  return std::make_shared<UcxPlane>(*std::move(engine));
}

}  // namespace sinew::internal
