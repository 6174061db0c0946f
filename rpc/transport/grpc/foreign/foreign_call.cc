#include "sinew/rpc/transport/grpc/foreign/foreign_call.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/slice.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;

}  // namespace

bool ForeignCalls::add(std::shared_ptr<ForeignCall> call) {
  absl::MutexLock lock(&mutex_);
  if (!closed_) calls_.insert(std::move(call));
  return !closed_;
}

void ForeignCalls::remove(const std::shared_ptr<ForeignCall>& call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(call);
}

void ForeignCalls::end_all(const absl::Status& status) {
  absl::flat_hash_set<std::shared_ptr<ForeignCall>> calls;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    calls = calls_;
  }
  for (const auto& call : calls) call->end(status);
}

void ForeignCall::start(const std::shared_ptr<ForeignCall>& call) {
  if (!call->calls_->add(call)) {
    ServerCall::refuse(std::move(call->call_), absl::UnavailableError("the worker shuts down"));
    return;
  }
  call->call_->bind(call.get());
  call->read_next();
}

void ForeignCall::read_next() {
  absl::MutexLock lock(&mutex_);
  if (!finished_) call_->read(&incoming_);
}

void ForeignCall::write(grpc::ByteBuffer message) {
  absl::MutexLock lock(&mutex_);
  if (finished_) return;
  writing_ = true;
  outgoing_.Swap(&message);
  call_->write(outgoing_);
}

void ForeignCall::write_and_finish(grpc::ByteBuffer message) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(finished_, true)) return;
  if (writing_) {
    last_ = std::move(message);
    return;
  }
  outgoing_.Swap(&message);
  call_->write_and_finish(outgoing_);
}

void ForeignCall::finish(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!std::exchange(finished_, true)) call_->finish(status);
}

void ForeignCall::on_read_done(bool ok) {
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
    absl::MutexLock lock(&mutex_);
    writing_ = false;
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
  calls_->remove(self);
  call_.reset();
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
