#include "sinew/sinew.h"

namespace app {
int length(const char* text);
}
SINEW_METHOD(app::length);

void fill(sinew::MethodTable& methods) { methods.add<&app::length>(); }
