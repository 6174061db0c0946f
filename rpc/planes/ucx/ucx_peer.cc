#include "sinew/rpc/planes/ucx/ucx_peer.h"

#include <cstring>
#include <utility>

#include "absl/strings/string_view.h"

namespace sinew::internal {
namespace {

// What any fabric moves in a second.
constexpr std::size_t kSlowestBytesPerSecond = std::size_t{16} << 20;

}  // namespace

std::chrono::nanoseconds UcxPeer::time_for(std::size_t size_bytes) const {
  return engine_->options().timeout + std::chrono::seconds(size_bytes / kSlowestBytesPerSecond);
}

// ---- located payloads

std::uint64_t UcxPeer::add(const absl::Cord& payload) {
  MutexLock lock(mutex_);
  if (!closed_) located_[++last_handle_].payload = payload;
  return last_handle_;
}

// What a payload refers to is freed where it is dropped, which may run code of LibTorch: never
// under the lock.

void UcxPeer::remove(std::uint64_t handle) {
  absl::Cord dropped;
  MutexLock lock(mutex_);
  const auto found = located_.find(handle);
  if (found == located_.end()) return;
  dropped = std::move(found->second.payload);
  located_.erase(found);
}

void UcxPeer::close() {
  absl::flat_hash_map<std::uint64_t, Located> dropped;
  MutexLock lock(mutex_);
  closed_ = true;
  dropped.swap(located_);
}

std::optional<absl::Cord> UcxPeer::begin_serving(const UcxHeader& question) {
  MutexLock lock(mutex_);
  const auto found = located_.find(question.handle);
  if (found == located_.end() || found->second.payload.size() != question.size_bytes ||
      std::exchange(found->second.is_served, true)) {
    return std::nullopt;
  }
  return found->second.payload;
}

bool UcxPeer::is_located(std::uint64_t handle) {
  MutexLock lock(mutex_);
  return located_.contains(handle);
}

// ---- the way to the peer

void UcxPeer::open(std::string worker_address, const UcxToken& token, const Digest& shown) {
  if (shut_) return;
  remote_address_ = std::move(worker_address);
  remote_token_ = token;
  shown_ = shown;
  engine_->enter(token_, weak_from_this());
}

absl::StatusOr<UcxEndpoint*> UcxPeer::endpoint() {
  if (shut_ || remote_address_.empty()) return absl::UnavailableError("the connection is closed");
  if (endpoint_ != nullptr) return endpoint_;
  absl::StatusOr<UcxEndpoint*> made = engine_->connect(remote_address_);
  if (made.ok()) endpoint_ = *made;
  return made;
}

void UcxPeer::end_all(const absl::Status& status) {
  while (!asks_.empty()) end(asks_.begin()->first, status);
}

void UcxPeer::on_endpoint_error(UcxEndpoint* endpoint, const absl::Status& status) {
  if (endpoint != endpoint_) return;
  endpoint_ = nullptr;
  end_all(status);
}

void UcxPeer::shut() {
  shut_ = true;
  engine_->leave(token_);
  end_all(absl::UnavailableError("the connection is closed"));
}

void UcxPeer::on_message(const UcxMessage& message) {
  switch (message.header.kind) {
    case UcxHeader::kCheck:
      answer(message.header, UcxHeader::kDigest, std::string(shown_.data(), shown_.size()));
      return;
    case UcxHeader::kFetch:
      serve(message.header);
      return;
    default:
      break;
  }
  const auto found = asks_.find(message.header.sequence);
  // Given up meanwhile.
  if (found == asks_.end()) return;
  const std::shared_ptr<Ask> ask = found->second;
  switch (message.header.kind) {
    case UcxHeader::kDigest:
      on_digest(message, ask);
      return;
    case UcxHeader::kData:
      on_data(message, ask);
      return;
    case UcxHeader::kDone:
      ask->is_done = true;
      on_progress(ask);
      return;
    default:
      end(message.header.sequence, absl::UnavailableError("the peer does not offer it any more"));
      return;
  }
}

// ---- as the owner

void UcxPeer::answer(UcxHeader question, UcxHeader::Kind kind, std::string text) {
  const absl::StatusOr<UcxEndpoint*> to = endpoint();
  // Without an answer the peer gives up after a while.
  if (!to.ok()) return;
  question.token = remote_token_;
  question.kind = kind;
  const auto kept = std::make_shared<const std::string>(std::move(text));
  engine_->send(*to, question, *kept, false, [kept](const absl::Status&) {});
}

void UcxPeer::serve(const UcxHeader& question) {
  std::optional<absl::Cord> payload = begin_serving(question);
  if (payload.has_value()) {
    send_data(question, *std::move(payload));
  } else {
    answer(question, UcxHeader::kGone);
  }
}

void UcxPeer::send_data(const UcxHeader& question, absl::Cord payload) {
  const absl::StatusOr<UcxEndpoint*> to = endpoint();
  if (!to.ok()) return;
  UcxHeader header = question;
  header.token = remote_token_;
  header.kind = UcxHeader::kData;
  const auto kept = std::make_shared<const absl::Cord>(std::move(payload));
  engine_->send(*to, header, *kept->TryFlat(), true,
                [this, self = shared_from_this(), question, kept](const absl::Status& status) {
                  const bool counts = status.ok() && is_located(question.handle);
                  answer(question, counts ? UcxHeader::kDone : UcxHeader::kGone);
                });
}

// ---- as the reader

void UcxPeer::check(const Digest& expected, OnEnd on_end) {
  auto question = std::make_shared<Ask>();
  question->header.kind = UcxHeader::kCheck;
  question->expected = expected;
  question->on_end = std::move(on_end);
  ask(std::move(question));
}

void UcxPeer::fetch(std::uint64_t handle, PullTarget target, OnEnd on_end) {
  auto question = std::make_shared<Ask>();
  question->header.kind = UcxHeader::kFetch;
  question->header.handle = handle;
  question->header.size_bytes = target.size_bytes;
  question->target = std::move(target);
  question->on_end = std::move(on_end);
  ask(std::move(question));
}

void UcxPeer::ask(std::shared_ptr<Ask> ask) {
  const absl::StatusOr<UcxEndpoint*> to = endpoint();
  if (!to.ok()) {
    std::move(ask->on_end)(to.status());
    return;
  }
  UcxHeader& header = ask->header;
  header.token = remote_token_;
  header.sequence = ++last_sequence_;
  const std::uint64_t sequence = header.sequence;
  ask->timer = engine_->run_after(time_for(header.size_bytes), [weak = weak_from_this(), sequence] {
    if (const auto self = weak.lock()) {
      self->end(sequence, absl::UnavailableError("UCX: the peer did not answer in time"));
    }
  });
  asks_[sequence] = ask;
  engine_->send(*to, header, {}, false,
                [this, self = shared_from_this(), sequence](const absl::Status& status) {
                  if (!status.ok()) end(sequence, status);
                });
}

void UcxPeer::on_digest(const UcxMessage& message, const std::shared_ptr<Ask>& ask) {
  const bool proves = ask->header.kind == UcxHeader::kCheck && !message.by_rendezvous &&
                      message.size_bytes == kDigestBytes &&
                      std::memcmp(message.data, ask->expected.data(), kDigestBytes) == 0;
  end(ask->header.sequence,
      proves ? absl::OkStatus() : absl::UnavailableError("the peer does not have the proof"));
}

void UcxPeer::on_data(const UcxMessage& message, const std::shared_ptr<Ask>& ask) {
  if (ask->header.kind != UcxHeader::kFetch || std::exchange(ask->data_began, true) ||
      message.size_bytes != ask->target.size_bytes) {
    end(ask->header.sequence, absl::UnavailableError("the peer sent other data than were asked"));
    return;
  }
  if (!message.by_rendezvous) {
    std::memcpy(ask->target.to, message.data, message.size_bytes);
    ask->data_ended = true;
    on_progress(ask);
    return;
  }
  // Keeps the target until UCX has let go of it, also when the fetch has failed by then.
  engine_->receive(message, ask->target.to,
                   [this, self = shared_from_this(), ask](const absl::Status& status) {
                     if (!status.ok()) {
                       end(ask->header.sequence, status);
                       return;
                     }
                     ask->data_ended = true;
                     on_progress(ask);
                   });
}

void UcxPeer::on_progress(const std::shared_ptr<Ask>& ask) {
  if (ask->data_ended && ask->is_done) end(ask->header.sequence, absl::OkStatus());
}

void UcxPeer::end(std::uint64_t sequence, absl::Status status) {
  const auto found = asks_.find(sequence);
  if (found == asks_.end()) return;
  const std::shared_ptr<Ask> ask = std::move(found->second);
  asks_.erase(found);
  engine_->cancel(ask->timer);
  std::move(ask->on_end)(std::move(status));
}

}  // namespace sinew::internal
