#include "sinew/sinew.h"

namespace app {
int add(int a, int b);
double add(double a, double b);
}  // namespace app
SINEW_METHOD(app::add);
