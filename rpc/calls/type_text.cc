#include "sinew/rpc/calls/type_text.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace sinew::internal {

std::string type_text(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : type.name();
}

}  // namespace sinew::internal
