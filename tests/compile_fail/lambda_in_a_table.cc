#include "sinew/sinew.h"

namespace app {
inline constexpr auto kTwice = [](int number) { return 2 * number; };
}

void fill(sinew::MethodTable& methods) { methods.add<&app::kTwice>(); }
