#include "sinew/optim/remote_device.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/call_context.h"

namespace sinew {

RemoteDevice::RemoteDevice(Peer at, std::string on) : peer(std::move(at)), device(std::move(on)) {}

RemoteDevice::RemoteDevice(const Worker& worker, std::string_view where) {
  const std::string place(where);
  const std::vector<std::string> parts = absl::StrSplit(place, '/');
  const auto fail = [&place](const char* why) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("'%s' is no place for a module: %s; write \"worker\", "
                                   "\"worker/cuda:0\" or \"rank:1/cpu\"",
                                   absl::CHexEscape(place), why));
  };
  if (parts.size() > 2) fail("it has more than one '/'");
  if (parts[0].empty()) fail("it names no worker");
  if (parts.size() == 2 && parts[1].empty()) fail("it names no device after the '/'");
  device = parts.size() == 2 ? parts[1] : "cpu";
  absl::string_view rank_text = parts[0];
  if (absl::ConsumePrefix(&rank_text, "rank:")) {
    int rank = -1;
    if (!absl::SimpleAtoi(rank_text, &rank) || rank < 0) fail("its rank is no number");
    peer = worker.peer(rank);
  } else {
    peer = worker.peer(parts[0]);
  }
}

RemoteDevice::RemoteDevice(const std::string& where) : RemoteDevice(current_worker(), where) {}
RemoteDevice::RemoteDevice(const char* where) : RemoteDevice(current_worker(), where) {}

}  // namespace sinew
