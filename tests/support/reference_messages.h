#pragma once

#include <string>

#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/transport/frame.h"
#include "sinew/rref.pb.h"
#include "sinew/rref/rref.h"

namespace sinew::testing {

/// The ids of a reference, as they stand in a message; secrets too.
template <class T>
proto::Reference ids_of(const RRef<T>& rref) {
  internal::CallBuilder call(rref.peer(), "nothing", "");
  RRefAccess::handle(rref)->write_target(call);
  return call.target();
}

/// The messages about references in a frame; none if it holds something else.
proto::LedgerNote ledger_note_in(internal::Lane lane, const std::string& envelope);

}  // namespace sinew::testing
