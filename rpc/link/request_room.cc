#include "sinew/rpc/link/request_room.h"

#include "sinew/rpc/link/link_runner.h"

namespace sinew::internal {

void RequestRoom::give_back() {
  if (const auto runner = std::exchange(runner_, nullptr)) runner->return_room(room_);
}

}  // namespace sinew::internal
