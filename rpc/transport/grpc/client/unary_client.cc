#include "sinew/rpc/transport/grpc/client/unary_client.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/transport/grpc/connection/channel.h"

namespace sinew::internal {
namespace {

// What is cancelled ends soon.
constexpr auto kForEver = std::chrono::system_clock::time_point::max();
constexpr char kCallPath[] = "/sinew.proto.Worker/Call";

struct Attempt {
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericStub> stub;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer response;
  grpc::Status status;
};

GrpcTransportOptions transport_options(const UnaryClientOptions& options) {
  GrpcTransportOptions transport;
  transport.credentials = options.credentials;
  // Sockets of this user's processes: the worker may be another user's.
  transport.tuning.local_sockets = false;
  return transport;
}

grpc::ByteBuffer serialise(const proto::Call& call) {
  proto::CallRequest request;
  *request.mutable_call() = call;
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status too_late(std::chrono::nanoseconds patience) {
  return absl::DeadlineExceededError(
      absl::StrFormat("no answer within %.3g s", std::chrono::duration<double>(patience).count()));
}

absl::StatusOr<proto::Value> value_of(Attempt& attempt) {
  if (!attempt.status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(attempt.status.error_code()),
                        printable(attempt.status.error_message(), 1024));
  }
  grpc::Slice slice;
  proto::CallResponse response;
  if (!attempt.response.DumpToSingleSlice(&slice).ok() ||
      !response.ParseFromArray(slice.begin(), static_cast<int>(slice.size())) ||
      !response.reply().has_value()) {
    return absl::InternalError("it answered with what is no value");
  }
  return std::move(*response.mutable_reply()->mutable_value());
}

}  // namespace

std::vector<absl::StatusOr<proto::Value>> call_all(const std::vector<UnaryRequest>& requests,
                                                   const UnaryClientOptions& options,
                                                   std::chrono::nanoseconds patience) {
  const GrpcTransportOptions transport = transport_options(options);
  const auto deadline = std::chrono::system_clock::now() + patience;
  std::vector<absl::StatusOr<proto::Value>> values(requests.size(),
                                                   absl::UnavailableError("it was not asked"));
  std::vector<Attempt> attempts(requests.size());
  grpc::CompletionQueue queue;
  std::size_t under_way = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const UnaryRequest& request = requests[i];
    const auto channel =
        make_channel(request.address, transport, request.expected_name, Carries::kLittle);
    if (!channel.ok()) {
      values[i] = channel.status();
      continue;
    }
    Attempt& attempt = attempts[i];
    attempt.context.set_deadline(deadline);
    if (!options.token.empty()) {
      attempt.context.AddMetadata("authorization", absl::StrCat("Bearer ", options.token));
    }
    attempt.stub = std::make_unique<grpc::GenericStub>(*channel);
    attempt.reader = attempt.stub->PrepareUnaryCall(&attempt.context, kCallPath,
                                                    serialise(request.call), &queue);
    attempt.reader->StartCall();
    attempt.reader->Finish(&attempt.response, &attempt.status, reinterpret_cast<void*>(i + 1));
    ++under_way;
  }
  bool is_late = false;
  while (under_way > 0) {
    void* tag = nullptr;
    bool ok = false;
    // Such channels leave deadlines to who uses them.
    const auto next = queue.AsyncNext(&tag, &ok, is_late ? kForEver : deadline);
    if (next == grpc::CompletionQueue::TIMEOUT) {
      is_late = true;
      for (Attempt& attempt : attempts) attempt.context.TryCancel();
      continue;
    }
    const std::size_t i = reinterpret_cast<std::size_t>(tag) - 1;
    values[i] = value_of(attempts[i]);
    if (is_late && absl::IsCancelled(values[i].status())) values[i] = too_late(patience);
    --under_way;
  }
  queue.Shutdown();
  return values;
}

}  // namespace sinew::internal
