#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "sinew/groups/internal/store_backend.h"
#include "sinew/groups/store.h"

namespace sinew::internal {

/// See Store::tcp().
absl::StatusOr<std::shared_ptr<StoreBackend>> open_tcp_store(const std::string& address,
                                                             Store::TcpRole role,
                                                             Store::TcpReach reach,
                                                             Clock::TimePoint deadline);

/// No further process can connect from now on, and the port is free for others; open connections go
/// on. Does nothing for other kinds of stores and at clients.
void stop_listening(StoreBackend& store);

}  // namespace sinew::internal
