// For libFuzzer: feeds one target, SINEW_FUZZ_TARGET. With SINEW_FUZZ_SEEDS, a folder, it writes
// the target's seeds there first.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "google/protobuf/stubs/logging.h"
#include "sinew/tests/fuzz/target.h"

namespace {

sinew::fuzz::Target chosen() {
  const std::string_view name = std::getenv("SINEW_FUZZ_TARGET");
  for (const sinew::fuzz::Target& target : sinew::fuzz::all_targets()) {
    if (name != target.name) continue;
    if (const char* const folder = std::getenv("SINEW_FUZZ_SEEDS")) {
      int number = 0;
      for (const std::string& seed : target.seeds()) {
        std::ofstream(std::string(folder) + "/seed" + std::to_string(number++)) << seed;
      }
    }
    return target;
  }
  std::fprintf(stderr, "there is no such target\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (std::getenv("SINEW_FUZZ_TARGET") != nullptr) {
    chosen();
    return 0;
  }
  for (const sinew::fuzz::Target& target : sinew::fuzz::all_targets()) std::puts(target.name);
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const google::protobuf::LogSilencer silencer;
  static const sinew::fuzz::Target target = chosen();
  target.feed({reinterpret_cast<const char*>(data), size});
  return 0;
}
