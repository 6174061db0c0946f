#include "sinew/sinew.h"

namespace app {
int add(int a, int b);
SINEW_METHOD(add);
}  // namespace app
