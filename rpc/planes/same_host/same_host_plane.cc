#include "sinew/rpc/planes/same_host/same_host_plane.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "sinew/plane.pb.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/challenge.h"
#include "sinew/rpc/planes/same_host/copy_team.h"

namespace sinew::internal {
namespace {

constexpr std::uint32_t kNumber = 1;

// Tells the machines apart, and one from itself before it was started anew.
const std::string& boot_id() {
  static const std::string id = [] {
    std::string line;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), line);
    return line;
  }();
  return id;
}

absl::Status unreachable(pid_t process, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("process ", process, ": ", what));
}

void* address_of(std::uint64_t number) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
}

/// What a peer reads: the digest, all zero when there is none. The memory of a link that is gone
/// shows nothing else for long: a peer that looks late should see that it is gone, and not what
/// malloc put there.
class ShownDigest {
 public:
  ShownDigest() : cell_(take()) {}
  ~ShownDigest() {
    clear();
    Resting& all = resting();
    MutexLock lock(all.mutex);
    all.cells.push_back(std::move(cell_));
  }
  ShownDigest(const ShownDigest&) = delete;
  ShownDigest& operator=(const ShownDigest&) = delete;

  const void* address() const { return cell_->data(); }
  void show(const Digest& digest) {
    for (std::size_t i = 0; i < kDigestBytes; ++i) (*cell_)[i] = digest[i];
  }
  void clear() {
    // Exchanges, not stores: what the caller frees afterwards must not be written to before them.
    for (std::atomic<char>& byte : *cell_) byte.exchange(0);
  }

 private:
  using Cell = std::array<std::atomic<char>, kDigestBytes>;
  struct Resting {
    Mutex mutex;
    std::deque<std::unique_ptr<Cell>> cells ABSL_GUARDED_BY(mutex);
  };
  static constexpr std::size_t kResting = 1024;

  static Resting& resting() {
    static auto& all = *new Resting();
    return all;
  }
  static std::unique_ptr<Cell> take() {
    Resting& all = resting();
    MutexLock lock(all.mutex);
    if (all.cells.size() < kResting) return std::make_unique<Cell>();
    std::unique_ptr<Cell> rested = std::move(all.cells.front());
    all.cells.pop_front();
    return rested;
  }

  std::unique_ptr<Cell> cell_;
};

class SameHostLink final : public PullLink {
 public:
  SameHostLink(std::string local_hello, std::string remote_hello, std::shared_ptr<CopyTeam> team)
      : team_(std::move(team)),
        challenge_(new_challenge()),
        local_hello_(std::move(local_hello)),
        remote_hello_(std::move(remote_hello)) {}
  ~SameHostLink() override { close(); }

  const std::string& challenge() const override { return challenge_; }
  absl::StatusOr<std::string> prove(absl::string_view challenge) override;
  void verify(absl::string_view proof, OnEnd on_end) override {
    std::move(on_end)(verify_now(proof));
  }
  std::optional<std::string> locate(const absl::Cord& payload) override;
  void release(absl::string_view) override {}
  void fetch(absl::string_view location, PullTarget target, OnEnd on_end) override {
    std::move(on_end)(fetch_now(location, target.to, target.size_bytes));
  }
  bool fetches_in_place() const override { return true; }
  void close() override;

 private:
  absl::Status verify_now(absl::string_view proof);
  absl::Status check_owner(pid_t process) const;
  absl::Status fetch_now(absl::string_view location, char* to, std::size_t size_bytes) const;
  absl::Status read(void* from, char* to, std::size_t size_bytes) const;

  const std::shared_ptr<CopyTeam> team_;
  const std::string challenge_;
  const std::string local_hello_;
  const std::string remote_hello_;
  absl::Mutex mutex_;
  bool proved_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  ShownDigest shown_;

  // The peer, written by verify().
  pid_t process_ = 0;
  void* shown_there_ = nullptr;
  Digest expected_{};
};

absl::StatusOr<std::string> SameHostLink::prove(absl::string_view challenge) {
  if (challenge.size() != kChallengeBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a challenge of ", challenge.size(), " bytes, not ", kChallengeBytes));
  }
  const absl::StatusOr<Digest> digest = digest_of(challenge, local_hello_);
  if (!digest.ok()) return digest.status();
  absl::MutexLock lock(&mutex_);
  if (closed_ || std::exchange(proved_, true)) {
    return absl::FailedPreconditionError("this end has answered a challenge before, or is closed");
  }
  shown_.show(*digest);
  proto::SameHostProof proof;
  proof.set_process(::getpid());
  proof.set_address(reinterpret_cast<std::uintptr_t>(shown_.address()));
  proof.set_boot_id(boot_id());
  return proof.SerializeAsString();
}

absl::Status SameHostLink::verify_now(absl::string_view bytes) {
  proto::SameHostProof proof;
  if (!proof.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || proof.process() <= 0) {
    return absl::InvalidArgumentError("malformed proof of the same-host plane");
  }
  if (boot_id().empty() || proof.boot_id() != boot_id()) {
    return absl::NotFoundError("the peer is on another host");
  }
  const absl::StatusOr<Digest> expected = digest_of(challenge_, remote_hello_);
  if (!expected.ok()) return expected.status();
  if (absl::Status status = check_owner(proof.process()); !status.ok()) return status;
  process_ = proof.process();
  shown_there_ = address_of(proof.address());
  expected_ = *expected;
  char nothing = 0;
  return read(shown_there_, &nothing, 1);
}

// The system lets root read everybody's memory, but a worker of root has no business there.
absl::Status SameHostLink::check_owner(pid_t process) const {
  struct stat status {};
  if (::stat(absl::StrCat("/proc/", process).c_str(), &status) != 0) {
    return unreachable(process, "not visible here; it may be in another container");
  }
  if (status.st_uid != ::geteuid()) return unreachable(process, "belongs to another user");
  return absl::OkStatus();
}

std::optional<std::string> SameHostLink::locate(const absl::Cord& payload) {
  const absl::optional<absl::string_view> bytes = payload.TryFlat();
  if (!bytes.has_value()) return std::nullopt;
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(bytes->data());
  std::string location(sizeof address, '\0');
  std::memcpy(location.data(), &address, sizeof address);
  return location;
}

absl::Status SameHostLink::fetch_now(absl::string_view location, char* to,
                                     std::size_t size_bytes) const {
  std::uint64_t address = 0;
  if (location.size() != sizeof address) {
    return absl::InvalidArgumentError("malformed location of the same-host plane");
  }
  std::memcpy(&address, location.data(), sizeof address);
  if (size_bytes > UINT64_MAX - address) {
    return absl::InvalidArgumentError("a location of the same-host plane beyond all memory");
  }
  return team_->copy(size_bytes, [&](std::size_t offset, std::size_t piece_bytes) {
    return read(address_of(address + offset), to + offset, piece_bytes);
  });
}

absl::Status SameHostLink::read(void* from, char* to, std::size_t size_bytes) const {
  Digest shown{};
  const std::array<iovec, 2> here = {{{to, size_bytes}, {shown.data(), shown.size()}}};
  // In this order: the digest is still there, so the data were.
  const std::array<iovec, 2> there = {{{from, size_bytes}, {shown_there_, shown.size()}}};
  const ssize_t copied = ::process_vm_readv(process_, here.data(), 2, there.data(), 2, 0);
  if (copied < 0) return unreachable(process_, std::strerror(errno));
  if (static_cast<std::size_t>(copied) != size_bytes + shown.size()) {
    return unreachable(process_, "its memory ends early");
  }
  // What close() leaves behind.
  if (shown == Digest{}) return absl::NotFoundError("the peer has closed the connection");
  if (shown != expected_) return unreachable(process_, "it does not have the proof");
  return absl::OkStatus();
}

void SameHostLink::close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  shown_.clear();
}

class SameHostPlane final : public PullPlane {
 public:
  std::uint32_t number() const override { return kNumber; }
  absl::string_view name() const override { return "same-host memory"; }
  std::unique_ptr<PullLink> open(std::string local_hello, std::string remote_hello) override {
    return std::make_unique<SameHostLink>(std::move(local_hello), std::move(remote_hello), team_);
  }

 private:
  const std::shared_ptr<CopyTeam> team_ = CopyTeam::for_this_machine();
};

}  // namespace

std::unique_ptr<PullPlane> make_same_host_plane() { return std::make_unique<SameHostPlane>(); }

}  // namespace sinew::internal
