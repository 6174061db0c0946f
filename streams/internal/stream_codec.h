#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "sinew/rpc/wire/value_reader.h"
#include "sinew/rpc/wire/value_writer.h"
#include "sinew/streams/internal/layer.h"
#include "sinew/streams/internal/stream_reader.h"
#include "sinew/streams/internal/stream_source.h"

namespace sinew::internal {

/// Sends the stream that `source` writes: from now on the receiver of the message reads it. Null:
/// throws, as for a stream that came from elsewhere.
void write_stream(ValueWriter& writer, const std::shared_ptr<StreamSource>& source);

/// The message that is read, and the id of the stream in it. Throws where it is no part of one.
MessageRoute& stream_route(const ValueReader& reader);
std::string stream_id(const ValueReader& reader);

/// Runs `write` as a task of the current worker, in the context of the call that it serves, if it
/// serves one. Throws kFailedPrecondition where there is no worker, or several.
void run_stream_writer(absl::AnyInvocable<void() &&> write);

[[noreturn]] void throw_no_stream();
std::exception_ptr abandoned_stream();

}  // namespace sinew::internal
