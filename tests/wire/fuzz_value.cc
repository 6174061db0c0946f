// For libFuzzer (clang, -fsanitize=fuzzer,address): feeds any bytes to the decoding of values.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "google/protobuf/stubs/logging.h"
#include "sinew/tests/wire/decode_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Protocol Buffers would log each text that is not UTF-8.
  static const google::protobuf::LogSilencer silencer;
  sinew::testing::decode_everything({reinterpret_cast<const char*>(data), size});
  return 0;
}
