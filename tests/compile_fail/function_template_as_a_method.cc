#include "sinew/sinew.h"

namespace app {
template <class T>
T twice(T number);
}
SINEW_METHOD(app::twice);
