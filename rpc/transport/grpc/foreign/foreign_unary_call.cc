#include "sinew/rpc/transport/grpc/foreign/foreign_unary_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/transport/grpc/connection/grpc_status.h"
#include "sinew/rpc/transport/grpc/connection/packet_codec.h"
#include "sinew/rpc/transport/grpc/connection/peer_identity.h"

namespace sinew::internal {
namespace {

/// The worker's side.
class GrpcUnaryCall final : public UnaryCall {
 public:
  GrpcUnaryCall(std::shared_ptr<ForeignUnaryCall> call, Metadata metadata, Frame request)
      : call_(std::move(call)), metadata_(std::move(metadata)), request_(std::move(request)) {}
  ~GrpcUnaryCall() override {
    call_->answer(absl::InternalError("the worker dropped the call unanswered"), {});
  }

  const AuthenticatedPeer& remote() const override { return call_->remote(); }
  const Metadata& metadata() const override { return metadata_; }
  Frame& request() override { return request_; }
  std::chrono::nanoseconds time_left() const override { return call_->time_left(); }
  void notify_on_cancel(absl::AnyInvocable<void() &&> on_cancel) override {
    call_->notify_on_cancel(std::move(on_cancel));
  }
  void reply(Frame reply) override { call_->answer(absl::OkStatus(), std::move(reply)); }
  void fail(const absl::Status& status) override {
    call_->answer(status.ok() ? absl::InternalError("the worker failed the call with OK") : status,
                  {});
  }

 private:
  const std::shared_ptr<ForeignUnaryCall> call_;
  const Metadata metadata_;
  Frame request_;
};

// A message of gRPC is less than 2 GiB for most of its libraries; headers of fields come on top.
constexpr std::size_t kMaxResultBytes = (std::size_t{2} << 30) - (std::size_t{4} << 20);

bool is_binary(grpc::string_ref key) { return key.ends_with("-bin"); }

// As gRPC wants them; others its parser lets through.
bool is_metadata(grpc::string_ref key, grpc::string_ref value) {
  const auto of_a_key = [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '_' || c == '.';
  };
  return !key.empty() && std::all_of(key.begin(), key.end(), of_a_key) &&
         (is_binary(key) || std::all_of(value.begin(), value.end(), absl::ascii_isprint));
}

// How large it is as a whole, the server's limit of GRPC_ARG_MAX_METADATA_SIZE bounds.
absl::StatusOr<UnaryCall::Metadata> read_metadata(const grpc::ServerContext& context,
                                                  bool has_token) {
  UnaryCall::Metadata metadata;
  for (const auto& [key, value] : context.client_metadata()) {
    std::string name(key.data(), key.size());
    // Methods may write down what they are told.
    if (has_token && name == "authorization") continue;
    if (!is_metadata(key, value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata \"", printable(name, 128),
                       "\" is not fit for gRPC: keys are of a-z 0-9 _ - . and values of printable "
                       "ASCII, or of any bytes where the key ends in \"-bin\""));
    }
    metadata.emplace(std::move(name), std::string(value.data(), value.size()));
  }
  return metadata;
}

}  // namespace

ForeignUnaryCall::ForeignUnaryCall(std::shared_ptr<TransportCore> core,
                                   const std::shared_ptr<ForeignCalls>& calls,
                                   UnaryHandler* handler, std::unique_ptr<ServerCall> server_call)
    : ForeignCall(calls, std::move(server_call), calls->strangers().calls),
      core_(std::move(core)),
      handler_(handler),
      deadline_(call().context().deadline()),
      remote_(peer_identity(call().context().auth_context().get(), call().context().peer())) {}

void ForeignUnaryCall::start(const std::shared_ptr<TransportCore>& core,
                             const std::shared_ptr<ForeignCalls>& calls, UnaryHandler* handler,
                             std::unique_ptr<ServerCall> call) {
  if (handler == nullptr) {
    ServerCall::refuse(std::move(call),
                       did_not_run(absl::UnimplementedError("this worker takes no unary calls")));
    return;
  }
  ForeignCall::start(std::shared_ptr<ForeignUnaryCall>(
      new ForeignUnaryCall(core, calls, handler, std::move(call))));
}

void ForeignUnaryCall::on_message(const grpc::ByteBuffer& message) {
  const std::size_t limit = core_->options().tuning.max_unary_bytes;
  if (message.Length() > limit) {
    refuse(absl::ResourceExhaustedError(
        absl::StrCat("a request of ", message.Length(), " bytes is larger than the limit of ",
                     limit, " bytes (WorkerOptions::max_client_request_bytes)")));
    return;
  }
  if (absl::Status full = hold(message.Length(), "requests", Quota::IfAlone::kMustFit);
      !full.ok()) {
    refuse(full);
    return;
  }
  absl::StatusOr<UnaryCall::Metadata> metadata =
      read_metadata(call().context(), !core_->options().client_token.empty());
  if (!metadata.ok()) {
    refuse(metadata.status());
    return;
  }
  absl::StatusOr<Frame> frame = decode_unary(message, core_->limits());
  if (!frame.ok()) {
    refuse(frame.status());
    return;
  }
  handler_->on_unary_call(std::make_unique<GrpcUnaryCall>(
      std::static_pointer_cast<ForeignUnaryCall>(shared_from_this()), *std::move(metadata),
      *std::move(frame)));
}

void ForeignUnaryCall::on_messages_end() {
  refuse(absl::InvalidArgumentError("a call without a request"));
}

std::chrono::nanoseconds ForeignUnaryCall::time_left() const {
  if (deadline_ == std::chrono::system_clock::time_point::max()) {
    return std::chrono::nanoseconds::max();
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(deadline_ -
                                                              std::chrono::system_clock::now());
}

void ForeignUnaryCall::notify_on_cancel(absl::AnyInvocable<void() &&> on_cancel) {
  {
    MutexLock lock(mutex_);
    if (!cancelled_) {
      if (!answered_) on_cancel_ = std::move(on_cancel);
      return;
    }
  }
  // The caller may hold locks that the callback wants.
  core_->post([on_cancel = std::move(on_cancel)]() mutable { std::move(on_cancel)(); });
}

void ForeignUnaryCall::answer(const absl::Status& status, Frame reply) {
  // Outlives the lock: what it holds is destroyed without it.
  absl::AnyInvocable<void() &&> on_cancel;
  {
    MutexLock lock(mutex_);
    if (std::exchange(answered_, true)) return;
    on_cancel = std::exchange(on_cancel_, nullptr);
  }
  if (!status.ok()) {
    finish(status);
    return;
  }
  if (reply.size_bytes() > kMaxResultBytes) {
    finish(result_not_sent(absl::ResourceExhaustedError(absl::StrCat(
        "the result has ", reply.size_bytes(), " bytes, and a message of gRPC at most ",
        kMaxResultBytes, ": return it in parts"))));
    return;
  }
  // A client that takes nothing must not fill this worker with what it has asked for.
  if (absl::Status full =
          hold(reply.size_bytes(), "results that are not taken", Quota::IfAlone::kFitsAlways);
      !full.ok()) {
    finish(result_not_sent(full));
    return;
  }
  write_and_finish(encode_unary(reply));
}

void ForeignUnaryCall::refuse(const absl::Status& status) { answer(did_not_run(status), {}); }

// Instead of what it held so far.
absl::Status ForeignUnaryCall::hold(std::size_t bytes, const char* what, Quota::IfAlone if_alone) {
  const std::shared_ptr<Quota>& quota = strangers().bytes;
  Quota::Share share;
  MutexLock lock(mutex_);
  held_.reset();
  share = Quota::take(quota, origin(), bytes, if_alone);
  if (share) {
    held_ = std::move(share);
    return absl::OkStatus();
  }
  const std::string text =
      absl::StrCat("no room for ", bytes, " bytes: this worker holds ", what, " up to ",
                   quota->in_all(), " bytes, and ", quota->per_origin(), " of one address");
  strangers().refusals.add(absl::StrCat("a call from ", origin(), " was refused: ", text));
  return absl::ResourceExhaustedError(text);
}

void ForeignUnaryCall::release() {
  MutexLock lock(mutex_);
  held_.reset();
}

void ForeignUnaryCall::on_cancelled() {
  absl::AnyInvocable<void() &&> on_cancel;
  {
    MutexLock lock(mutex_);
    if (answered_) return;
    cancelled_ = true;
    on_cancel = std::exchange(on_cancel_, nullptr);
  }
  if (on_cancel) std::move(on_cancel)();
}

}  // namespace sinew::internal
