#pragma once

#include "absl/status/statusor.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rref.pb.h"
#include "sinew/rref/internal/ledger_messages.h"
#include "sinew/value.pb.h"

namespace sinew::internal {

void write_id(Incarnation creator, std::uint64_t serial, std::uint64_t secret,
              proto::GlobalId& out);
template <class Tag>
void write_id(const GlobalId<Tag>& id, proto::GlobalId& out) {
  write_id(id.creator, id.serial, id.secret, out);
}
template <class Id>
Id read_id(const proto::GlobalId& id) {
  return Id{{id.creator()}, id.serial(), id.secret()};
}

void write_record(const ledger::ForkRecord& record, proto::Reference& out);
/// Checks sizes only: what the record claims is the ledger's to check.
absl::StatusOr<ledger::ForkRecord> read_record(const proto::Reference& reference);

void write_message(const ledger::LedgerMessage& message, proto::LedgerMessage& out);
absl::StatusOr<ledger::LedgerMessage> read_message(const proto::LedgerMessage& message);

}  // namespace sinew::internal
