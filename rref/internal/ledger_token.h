#pragma once

#include <cstdint>

#include "sinew/rpc/base/ids.h"
#include "sinew/rref/internal/ledger_messages.h"

namespace sinew::internal::ledger {

/// What a token vouches for: the holder of `parent` gave `child` of `rref` to `receiver`, this
/// process of it.
struct TokenInput {
  std::uint64_t parent_secret = 0;
  RRefId rref;
  ForkId parent;  // the secret of `parent` and `child` is not read
  ForkId child;
  WorkerInfo receiver;
};

/// Makes the token for an input. A pure function; equal inputs give equal tokens.
using TokenFunction = Token (*)(const TokenInput&);

/// HMAC-SHA256 keyed with the parent's secret, truncated to 128 bits. Who does not know the secret
/// can neither make a token nor use a seen one for another receiver, child or reference.
Token hmac_token(const TokenInput& input);

/// Compares in a time that does not depend on where the tokens differ.
bool tokens_equal(const Token& a, const Token& b);

}  // namespace sinew::internal::ledger
