#pragma once

#include <string>
#include <typeinfo>

namespace sinew::internal {

/// A type's name as it is written in C++, for texts.
std::string type_text(const std::type_info& type);

}  // namespace sinew::internal
