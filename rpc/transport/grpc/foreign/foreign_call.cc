#include "sinew/rpc/transport/grpc/foreign/foreign_call.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/slice.h"
#include "sinew/rpc.pb.h"
#include "sinew/rpc/transport/origin.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;

absl::Status of_callee(absl::Status status, proto::ExecutionState execution) {
  proto::Error error;
  error.set_code(static_cast<int>(status.code()));
  error.set_execution(execution);
  error.set_origin(proto::ORIGIN_CALLEE);
  status.SetPayload(kErrorPayload, absl::Cord(error.SerializeAsString()));
  return status;
}

}  // namespace

void ForeignCalls::start() {
  core_->run_after(core_->options().tuning.unary_transfer_timeout / 4, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->end_overdue();
    self->start();
  });
}

void ForeignCalls::end_overdue() {
  absl::flat_hash_set<std::shared_ptr<ForeignCall>> calls;
  {
    MutexLock lock(mutex_);
    calls = calls_;
  }
  const ForeignCall::Time limit =
      std::chrono::steady_clock::now() - core_->options().tuning.unary_transfer_timeout;
  for (const auto& call : calls) call->end_if_waiting_since(limit);
}

absl::Status ForeignCalls::add(const std::shared_ptr<ForeignCall>& call) {
  Quota::Share share = Quota::take(call->quota_, call->origin_, 1);
  if (!share) {
    strangers().refusals.add(absl::StrCat("a call from ", call->origin_, " was refused: there are ",
                                          call->quota_->used(), " already"));
    return absl::ResourceExhaustedError(
        absl::StrCat("this worker serves ", call->quota_->in_all(), " calls of clients at a time, ",
                     call->quota_->per_origin(), " of them from one address: try again later"));
  }
  MutexLock lock(mutex_);
  if (closed_) return absl::UnavailableError("the worker shuts down");
  calls_.insert(call);
  MutexLock call_lock(call->mutex_);
  call->share_ = std::move(share);
  return absl::OkStatus();
}

void ForeignCalls::remove(const std::shared_ptr<ForeignCall>& call) {
  MutexLock lock(mutex_);
  calls_.erase(call);
}

void ForeignCalls::end_all(const absl::Status& status) {
  absl::flat_hash_set<std::shared_ptr<ForeignCall>> calls;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    calls = calls_;
  }
  for (const auto& call : calls) call->end(status);
}

ForeignCall::ForeignCall(std::shared_ptr<ForeignCalls> calls, std::unique_ptr<ServerCall> call,
                         std::shared_ptr<Quota> quota)
    : calls_(std::move(calls)),
      quota_(std::move(quota)),
      origin_(origin_of(call->context().peer())),
      call_(std::move(call)) {}

void ForeignCall::start(const std::shared_ptr<ForeignCall>& call) {
  if (absl::Status refused = call->calls_->add(call); !refused.ok()) {
    ServerCall::refuse(std::move(call->call_), did_not_run(refused));
    return;
  }
  // The call may end from here on.
  call->call_->bind(call.get());
  call->read_next();
}

void ForeignCall::read_next() {
  std::uint64_t read = 0;
  {
    MutexLock lock(mutex_);
    if (finished_) return;
    waits_since_ = std::chrono::steady_clock::now();
    read = ++reads_begun_;
  }
  const std::uint64_t turn =
      strangers().receiving->enter(origin_, [self = shared_from_this()] { self->read_in_turn(); });
  {
    MutexLock lock(mutex_);
    if (reads_ended_ < read) {
      turn_ = turn;
      return;
    }
  }
  strangers().receiving->leave(turn);
}

void ForeignCall::read_in_turn() {
  MutexLock lock(mutex_);
  if (!finished_) call_->read(&incoming_);
}

void ForeignCall::end_turn() {
  std::uint64_t turn = 0;
  {
    MutexLock lock(mutex_);
    reads_ended_ = reads_begun_;
    turn = std::exchange(turn_, 0);
  }
  strangers().receiving->leave(turn);
}

void ForeignCall::end_if_waiting_since(Time limit) {
  bool answered = false;
  {
    MutexLock lock(mutex_);
    if (!waits_since_.has_value() || *waits_since_ > limit) return;
    answered = writing_ || finished_;
    // What gRPC still has to send it drops.
    if (answered && call_ != nullptr) call_->context().TryCancel();
  }
  strangers().refusals.add(absl::StrCat(
      "a call from ", origin_,
      " was ended: ", answered ? "its result was not taken" : "no request arrived", " in time"));
  if (!answered) end(absl::DeadlineExceededError("no request arrived in time"));
}

void ForeignCall::write(grpc::ByteBuffer message) {
  MutexLock lock(mutex_);
  if (finished_) return;
  waits_since_ = std::chrono::steady_clock::now();
  writing_ = true;
  outgoing_.Swap(&message);
  call_->write(outgoing_);
}

void ForeignCall::write_and_finish(grpc::ByteBuffer message) {
  MutexLock lock(mutex_);
  if (std::exchange(finished_, true)) return;
  waits_since_ = std::chrono::steady_clock::now();
  if (writing_) {
    last_ = std::move(message);
    return;
  }
  outgoing_.Swap(&message);
  call_->write_and_finish(outgoing_);
}

void ForeignCall::finish(const absl::Status& status) {
  MutexLock lock(mutex_);
  if (std::exchange(finished_, true)) return;
  waits_since_ = std::chrono::steady_clock::now();
  call_->finish(status);
}

void ForeignCall::on_read_done(bool ok) {
  {
    MutexLock lock(mutex_);
    if (!finished_) waits_since_.reset();
  }
  end_turn();
  if (!ok) {
    on_messages_end();
    return;
  }
  grpc::ByteBuffer message;
  message.Swap(&incoming_);
  on_message(message);
}

void ForeignCall::on_write_done(bool ok) {
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!finished_) waits_since_.reset();
    if (last_.has_value()) {
      outgoing_.Swap(&*last_);
      last_.reset();
      // Fails like the write before it if the caller is gone, and ends the call all the same.
      call_->write_and_finish(outgoing_);
      return;
    }
  }
  if (ok) {
    on_written();
  } else {
    finish(absl::CancelledError("the caller is gone"));
  }
}

void ForeignCall::on_done() {
  // Last: whatever else holds this object touches nothing of gRPC any more.
  const std::shared_ptr<ForeignCall> self = shared_from_this();
  end_turn();
  release();
  calls_->remove(self);
  std::unique_ptr<ServerCall> call;
  Quota::Share share;
  MutexLock lock(mutex_);
  waits_since_.reset();
  call = std::move(call_);
  share = std::move(share_);
}

absl::Status did_not_run(absl::Status status) {
  return of_callee(std::move(status), proto::DID_NOT_RUN);
}

absl::Status result_not_sent(absl::Status status) {
  return of_callee(std::move(status), proto::MAY_HAVE_RUN);
}

absl::Status parse_message(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message) {
  if (bytes.Length() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a request of ", bytes.Length(), " bytes is larger than the limit of ", kMaxMessageBytes));
  }
  grpc::Slice flat;
  if (!bytes.DumpToSingleSlice(&flat).ok() ||
      !message.ParseFromArray(flat.begin(), static_cast<int>(flat.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("not a ", message.GetTypeName()));
  }
  return absl::OkStatus();
}

grpc::ByteBuffer serialize_message(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace sinew::internal
