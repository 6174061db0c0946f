#include "sinew/tests/support/reference_messages.h"

#include "sinew/rpc.pb.h"

namespace sinew::testing {

proto::LedgerNote ledger_note_in(internal::Lane lane, const std::string& envelope) {
  proto::LedgerNote note;
  proto::Envelope parsed;
  if (lane == internal::Lane::kControl && parsed.ParseFromString(envelope) && parsed.has_note() &&
      parsed.note().layer() == "rref") {
    note.ParseFromString(parsed.note().body());
  }
  return note;
}

}  // namespace sinew::testing
