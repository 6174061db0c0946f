#include "sinew/rpc/planes/same_host/same_host_plane.h"

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "sinew/plane.pb.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/challenge.h"
#include "sinew/rpc/planes/same_host/copy_team.h"
#include "sinew/rpc/planes/same_host/meeting_place.h"
#include "sinew/rpc/planes/same_host/remote_memory.h"
#include "sinew/rpc/planes/same_host/shown_word.h"

namespace sinew::internal {
namespace {

constexpr std::uint32_t kSameHostNumber = 1;

// Tells the machines apart, and one from itself before it was started anew.
const std::string& boot_id() {
  // Never destroyed: threads look at it until the process is gone.
  static const auto& id = *[] {
    auto* const line = new std::string();
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), *line);
    return line;
  }();
  return id;
}

/// What became of a meeting, for who wants to know before or after it is known. Thread-safe.
class MeetingOutcome {
 public:
  using Memory = std::shared_ptr<RemoteMemory>;

  /// Once. Runs what waits.
  void set(absl::StatusOr<Memory> outcome) {
    std::optional<PullLink::OnEnd> waiting;
    absl::Status status = outcome.status();
    {
      MutexLock lock(mutex_);
      outcome_ = std::move(outcome);
      waiting.swap(waiting_);
    }
    if (waiting.has_value()) (*std::move(waiting))(std::move(status));
  }
  /// Once.
  void when_set(PullLink::OnEnd on_end) {
    absl::Status status;
    {
      MutexLock lock(mutex_);
      if (!outcome_.has_value()) {
        waiting_ = std::move(on_end);
        return;
      }
      status = outcome_->status();
    }
    std::move(on_end)(std::move(status));
  }
  /// Null while there is none.
  Memory memory() const {
    MutexLock lock(mutex_);
    return outcome_.has_value() && outcome_->ok() ? **outcome_ : nullptr;
  }
  /// Who was met, whether its memory can be read or not. Before set().
  void set_process(std::shared_ptr<const PeerProcess> process) {
    MutexLock lock(mutex_);
    process_ = std::move(process);
  }
  std::shared_ptr<const PeerProcess> process() const {
    MutexLock lock(mutex_);
    return process_;
  }

 private:
  mutable Mutex mutex_;
  std::optional<absl::StatusOr<Memory>> outcome_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const PeerProcess> process_ ABSL_GUARDED_BY(mutex_);
  std::optional<PullLink::OnEnd> waiting_ ABSL_GUARDED_BY(mutex_);
};

/// What the links of one plane share.
struct Shared {
  explicit Shared(const SameHostOptions& with) : options(with), meetings(with.meeting_timeout) {}

  const SameHostOptions options;
  const std::shared_ptr<CopyTeam> team = CopyTeam::for_this_machine();
  MeetingPlace meetings;
};

class SameHostLink final : public PullLink {
 public:
  SameHostLink(ConnectionEnds ends, std::shared_ptr<Shared> shared);
  ~SameHostLink() override { close(); }

  const std::string& challenge() const override { return challenge_; }
  absl::StatusOr<std::string> prove(absl::string_view challenge) override;
  void verify(absl::string_view proof, OnEnd on_end) override;
  std::optional<std::string> locate(const absl::Cord& payload) override;
  void release(absl::string_view) override {}
  void fetch(absl::string_view location, PullTarget target, OnEnd on_end) override;
  bool fetches_in_place() const override { return true; }
  std::shared_ptr<const ProcessHold> process() const override { return outcome_->process(); }
  void close() override;

 private:
  bool is_opener() const { return ends_.self == ConnectionEnds::Role::kOpener; }
  absl::StatusOr<std::string> host_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status visit_locked(absl::string_view place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<MeetingTerms> terms_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  MeetingPlace::OnMet on_met() const;

  const ConnectionEnds ends_;
  const std::shared_ptr<Shared> shared_;
  const std::string nonce_ = new_challenge();
  const std::string key_ = new_challenge();
  const std::shared_ptr<MeetingOutcome> outcome_ = std::make_shared<MeetingOutcome>();
  LocationSeal seal_{key_};
  ShownWord word_;
  std::string challenge_;
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  /// The peer's, once it has said it.
  std::optional<proto::SameHostChallenge> remote_ ABSL_GUARDED_BY(mutex_);
  MeetingPlace::Ticket meeting_ ABSL_GUARDED_BY(mutex_) = 0;
};

SameHostLink::SameHostLink(ConnectionEnds ends, std::shared_ptr<Shared> shared)
    : ends_(std::move(ends)), shared_(std::move(shared)) {
  static_assert(LocationSeal::kKeyBytes == kChallengeBytes);
  proto::SameHostChallenge challenge;
  challenge.set_nonce(nonce_);
  challenge.set_boot_id(boot_id());
  challenge_ = challenge.SerializeAsString();
}

absl::StatusOr<std::string> SameHostLink::prove(absl::string_view bytes) {
  proto::SameHostChallenge challenge;
  if (!challenge.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      challenge.nonce().size() != kChallengeBytes) {
    return absl::InvalidArgumentError("malformed challenge of the same-host plane");
  }
  absl::StatusOr<std::string> proof;
  {
    MutexLock lock(mutex_);
    if (closed_ || remote_.has_value()) {
      return absl::FailedPreconditionError(
          "this end has answered a challenge before, or is closed");
    }
    const bool is_here = !boot_id().empty() && challenge.boot_id() == boot_id();
    remote_ = std::move(challenge);
    if (!is_here) {
      proof = absl::NotFoundError("the peer is on another host");
    } else {
      // Who dialled comes to where he is told.
      proof = is_opener() ? std::string() : host_locked();
    }
  }
  if (!proof.ok()) outcome_->set(proof.status());
  return proof;
}

void SameHostLink::verify(absl::string_view proof, OnEnd on_end) {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    const std::size_t expected_bytes = is_opener() ? MeetingPlace::kPlaceBytes : 0;
    if (!remote_.has_value() || proof.size() != expected_bytes) {
      status = absl::InvalidArgumentError("malformed proof of the same-host plane");
    } else if (is_opener() && remote_->boot_id() == boot_id()) {
      status = visit_locked(proof);
    }
  }
  if (status.ok()) {
    outcome_->when_set(std::move(on_end));
  } else {
    std::move(on_end)(std::move(status));
  }
}

absl::StatusOr<std::string> SameHostLink::host_locked() {
  absl::StatusOr<MeetingTerms> terms = terms_locked();
  if (!terms.ok()) return terms.status();
  absl::StatusOr<MeetingPlace::Hosted> hosted = shared_->meetings.host(*std::move(terms), on_met());
  if (!hosted.ok()) return hosted.status();
  meeting_ = hosted->ticket;
  return std::move(hosted->place);
}

absl::Status SameHostLink::visit_locked(absl::string_view place) {
  if (closed_) return absl::NotFoundError("the connection is closed");
  absl::StatusOr<MeetingTerms> terms = terms_locked();
  if (!terms.ok()) return terms.status();
  const absl::StatusOr<MeetingPlace::Ticket> ticket =
      shared_->meetings.visit(place, *std::move(terms), on_met());
  if (!ticket.ok()) return ticket.status();
  meeting_ = *ticket;
  return absl::OkStatus();
}

absl::StatusOr<MeetingTerms> SameHostLink::terms_locked() const {
  absl::StatusOr<MeetingTerms> terms =
      MeetingTerms::make(ends_, nonce_, remote_->nonce(), {key_, word_.word(), word_.address()});
  if (terms.ok()) terms->source = shared_->options.process_source;
  return terms;
}

// The link may be gone by then.
MeetingPlace::OnMet SameHostLink::on_met() const {
  return [outcome = outcome_, team = shared_->team](absl::StatusOr<MetPeer> peer) {
    if (!peer.ok()) {
      outcome->set(absl::IsCancelled(peer.status())
                       ? absl::NotFoundError("the connection was closed")
                       : peer.status());
      return;
    }
    auto process = std::make_shared<const PeerProcess>(std::move(peer->process));
    outcome->set_process(process);
    auto memory = std::make_shared<RemoteMemory>(std::move(process), std::move(peer->access), team);
    absl::Status status = memory->check();
    if (status.ok()) {
      outcome->set(std::move(memory));
    } else {
      outcome->set(std::move(status));
    }
  };
}

std::optional<std::string> SameHostLink::locate(const absl::Cord& payload) {
  const absl::optional<absl::string_view> bytes = payload.TryFlat();
  if (!bytes.has_value()) return std::nullopt;
  return seal_.seal(reinterpret_cast<std::uintptr_t>(bytes->data()), bytes->size());
}

void SameHostLink::fetch(absl::string_view location, PullTarget target, OnEnd on_end) {
  const std::shared_ptr<RemoteMemory> memory = outcome_->memory();
  std::move(on_end)(
      memory == nullptr
          ? absl::InvalidArgumentError("a location of the same-host plane before the ends have met")
          : memory->fetch(location, target.to, target.size_bytes));
}

void SameHostLink::close() {
  MeetingPlace::Ticket meeting = 0;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    meeting = std::exchange(meeting_, 0);
    word_.clear();
  }
  shared_->meetings.cancel(meeting);
}

class SameHostPlane final : public PullPlane {
 public:
  explicit SameHostPlane(const SameHostOptions& options)
      : shared_(std::make_shared<Shared>(options)) {}

  std::uint32_t number() const override { return kSameHostNumber; }
  absl::string_view name() const override { return "same-host memory"; }
  std::unique_ptr<PullLink> open(ConnectionEnds ends) override {
    return std::make_unique<SameHostLink>(std::move(ends), shared_);
  }

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

std::unique_ptr<PullPlane> make_same_host_plane(const SameHostOptions& options) {
  return std::make_unique<SameHostPlane>(options);
}

}  // namespace sinew::internal
