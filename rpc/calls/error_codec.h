#pragma once

#include <cstddef>
#include <string_view>

#include "sinew/rpc.pb.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

/// What travels of an error's causes, and of the methods that led to a call, at most: each call of
/// a chain adds to them.
inline constexpr std::size_t kMaxCauses = 16;
inline constexpr std::size_t kMaxChain = 16;

/// What travels of an error: texts are made printable and cut.
void write_error(const ErrorInfo& info, proto::Error& error);
/// What a peer said of a failed call. Its texts are hostile: they are made printable, and an
/// unknown code becomes kUnknown.
ErrorInfo read_error(const proto::Error& error, std::string_view peer, std::string_view method);

}  // namespace sinew::internal
