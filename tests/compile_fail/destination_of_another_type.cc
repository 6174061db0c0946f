#include "sinew/sinew.h"

namespace app {
int add(int a, int b);
struct Address {};
}  // namespace app
SINEW_METHOD(app::add);

int call(const sinew::Worker& worker) { return worker.rpc_sync<&app::add>(app::Address(), 1, 2); }
