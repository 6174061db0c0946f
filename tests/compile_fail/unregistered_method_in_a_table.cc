#include "sinew/sinew.h"

namespace app {
int add(int a, int b);
}

void fill(sinew::MethodTable& methods) { methods.add<&app::add>(); }
