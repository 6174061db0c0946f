#include "sinew/streams/stream.h"

#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/extension.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/rpc/worker.h"
#include "sinew/streams/internal/streams_manager.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kIdBytes = 16;

MessageRoute& route_with_stream(MessageRoute* route) {
  if (route == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a stream can be written and read only as part of a call");
  }
  return *route;
}

}  // namespace

void write_stream(ValueWriter& writer, const std::shared_ptr<StreamSource>& source) {
  if (source == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a stream that is empty, or that came from another worker, cannot be sent: make "
                   "one with sinew::make_stream()");
  }
  MessageRoute& route = route_with_stream(writer.context().route());
  writer.binary(StreamsManager::of(route.services())->send(source, route));
}

MessageRoute& stream_route(const ValueReader& reader) {
  return route_with_stream(reader.context().route());
}

std::string stream_id(const ValueReader& reader) {
  const std::string_view id = reader.binary();
  if (id.size() != kIdBytes) reader.fail("the id of a stream has 16 bytes");
  return std::string(id);
}

void run_stream_writer(absl::AnyInvocable<void() &&> write) {
  const Worker worker = current_worker();
  WorkerAccess::services(worker)->executor()->post(
      [context = ThreadContext::current(), write = std::move(write)]() mutable {
        const ThreadContext::Scope scope(std::move(context));
        // In the scope: what it holds may be the last of a stream.
        auto run = std::move(write);
        std::move(run)();
      });
}

void throw_no_stream() {
  throw RpcError(ErrorCode::kFailedPrecondition,
                 "there is no stream to read or write here: it is empty, or was moved from, or is "
                 "read by the worker that it is sent to");
}

std::exception_ptr abandoned_stream() {
  return std::make_exception_ptr(
      RpcError(ErrorCode::kAborted, "the writer of the stream went away without having ended it"));
}

}  // namespace sinew::internal
