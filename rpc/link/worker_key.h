#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "sinew/rpc/base/ids.h"

struct evp_pkey_st;  // OpenSSL's.

namespace sinew::internal {

/// The key pair (Ed25519, RFC 8032) of one incarnation of a worker. The incarnation is a digest of
/// the public half. So a worker that has seen an incarnation in a list knows whose signature to ask
/// for, and no other process can say a hello in its name (rule L1). Immutable, so thread-safe.
class WorkerKey {
 public:
  /// Draws one. Throws RpcError kInternal where the system has no random numbers.
  static std::shared_ptr<const WorkerKey> draw();
  WorkerKey(const WorkerKey&) = delete;
  WorkerKey& operator=(const WorkerKey&) = delete;

  Incarnation incarnation() const { return incarnation_; }
  const std::string& public_half() const { return public_half_; }
  std::string sign(absl::string_view message) const;

 private:
  struct FreePair {
    void operator()(evp_pkey_st* pair) const;
  };
  using Pair = std::unique_ptr<evp_pkey_st, FreePair>;
  explicit WorkerKey(Pair pair);

  const Pair pair_;
  const std::string public_half_;
  const Incarnation incarnation_;
};

/// Whether the incarnation is that of the public half, and the signature its owner's. All are
/// anybody's bytes.
bool is_signed_by(Incarnation signer, absl::string_view public_half, absl::string_view message,
                  absl::string_view signature);

/// HMAC-SHA256 of a message under a secret that several processes have been given.
std::string mac_of(absl::string_view secret, absl::string_view message);
/// In a time that does not tell where they differ.
bool are_equal_secrets(absl::string_view a, absl::string_view b);

}  // namespace sinew::internal
