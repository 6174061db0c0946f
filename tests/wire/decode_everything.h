#pragma once

#include <cstddef>
#include <string_view>

namespace sinew::testing {

/// Takes any bytes for a message of one value and its payloads, and decodes it as many types. Wrong
/// bytes must end in an RpcError; any other outcome is the finding of whoever calls this. Returns
/// how many of the types took the value.
///
/// The form: three bytes, the sizes of up to three payloads in units of 8 bytes, those payloads (as
/// far as there are bytes), then the serialised Value.
std::size_t decode_everything(std::string_view bytes);

}  // namespace sinew::testing
