#include "sinew/sinew.h"

namespace app {
inline constexpr auto kTwice = [](int number) { return 2 * number; };
}
SINEW_METHOD(app::kTwice);
