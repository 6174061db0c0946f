#include "sinew/rpc/base/json_text.h"

namespace sinew::internal {

std::string json_text(std::string_view text) {
  std::string out;
  for (const char each : text) {
    if (each == '"' || each == '\\') out += '\\';
    out += static_cast<unsigned char>(each) < 0x20 ? ' ' : each;
  }
  return out;
}

}  // namespace sinew::internal
