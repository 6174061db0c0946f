#include "sinew/testing/faults.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/worker/worker_parts.h"
#include "sinew/testing/internal/fault_table.h"
#include "sinew/testing/internal/faulty_sink.h"

namespace sinew::testing {

using internal::FaultTable;

int Fault::hits() const { return static_cast<int>(table_->hits(number_)); }

void Fault::wait_for_hits(int count, std::chrono::nanoseconds patience) const {
  if (table_->wait_for_hits(number_, count, patience)) return;
  throw Failure(absl::StrCat("waited in vain until a fault has hit ", count,
                             count == 1 ? " message" : " messages", "; it has hit ", hits()));
}

int Fault::release(int most) const { return table_->release(number_, most); }

void Fault::remove() const { table_->remove(number_); }

Faults::Faults() : table_(std::make_shared<FaultTable>()) {}

Faults::~Faults() { clear(); }

Fault Faults::fail(const Messages& messages, ErrorCode code) {
  if (code == ErrorCode::kOk) {
    throw RpcError(ErrorCode::kInvalidArgument, "Faults::fail() takes the code of an error");
  }
  return {table_, table_->add({FaultTable::Action::kFail, messages, code})};
}

Fault Faults::drop(const Messages& messages) {
  return {table_, table_->add({FaultTable::Action::kDrop, messages})};
}

Fault Faults::delay(const Messages& messages, std::chrono::nanoseconds by) {
  if (by.count() < 0) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrCat("Faults::delay() takes a time that is not negative, not ", by.count(), " ns"));
  }
  return {table_, table_->add({FaultTable::Action::kDelay, messages, ErrorCode::kUnavailable, by})};
}

Fault Faults::hold(const Messages& messages) {
  return {table_, table_->add({FaultTable::Action::kHold, messages})};
}

Fault Faults::break_connection(const Messages& messages) {
  return {table_, table_->add({FaultTable::Action::kBreak, messages})};
}

void Faults::clear() { table_->clear(); }

void Faults::install(WorkerOptions& options) const {
  internal::parts_of(options).wrap_reply_sink = internal::make_faulty_sinks(table_, nullptr);
}

}  // namespace sinew::testing
