#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "sinew/autograd/context_id.h"
#include "sinew/autograd/internal/pass_id.h"
#include "sinew/autograd/internal/pass_part.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

// Which workers may tell this one what about contexts and passes; docs/autograd.md has the table.
// Pure. To name a context takes its secret, so a sender that names a known one has been given it.
// All fail with kPermissionDenied and a text that names `from`.

/// Whether a worker has exchanged messages of the context with the one that asks.
enum class Part { kNone, kTakesPart };

/// Anything at all: members of the job, and neither clients nor workers that have not joined.
absl::Status check_member(const WorkerInfo& from);

/// An AutogradRun: the initiator asks by itself.
absl::Status check_asks(const WorkerInfo& from, const PassId& pass);

/// An AutogradDelivery; ContextState::check_brings() looks at what is brought. Answers in steps
/// hold what the initiator is to get.
absl::Status check_brings(const WorkerInfo& from, const PassId& pass, Answering answering,
                          Part part);

/// An AutogradAbort.
absl::Status check_aborts(const WorkerInfo& from, const PassId& pass);

/// Whether `from` may end a context that is known here.
bool may_end(const WorkerInfo& from, const autograd::ContextId& context, Part part);

}  // namespace sinew::internal
