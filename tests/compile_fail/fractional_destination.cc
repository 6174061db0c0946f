#include "sinew/sinew.h"

namespace app {
int add(int a, int b);
}
SINEW_METHOD(app::add);

int call(const sinew::Worker& worker) { return worker.rpc_sync<&app::add>(1.5, 1, 2); }
