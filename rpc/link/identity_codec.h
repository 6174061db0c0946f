#pragma once

#include "sinew/rpc/base/ids.h"
#include "sinew/value.pb.h"

namespace sinew::internal {

inline void write_identity(const WorkerInfo& worker, proto::WorkerIdentity& identity) {
  identity.set_name(worker.name);
  identity.set_rank(worker.rank);
  identity.set_incarnation(worker.incarnation.value);
}

/// Nothing is checked here.
inline WorkerInfo read_identity(const proto::WorkerIdentity& identity) {
  return {identity.name(), identity.rank(), {identity.incarnation()}};
}

}  // namespace sinew::internal
