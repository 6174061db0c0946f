#pragma once

#include <optional>
#include <string>

#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

/// The secret that the two ends of a link share from their first contact on (rule L1). Each draws a
/// half and tells it once. Who knows both made the link: a later connection proves itself by a MAC.
/// Whoever reads the network of insecure credentials learns it too; who only reaches the port does
/// not. Not thread-safe.
class LinkSecret {
 public:
  static constexpr std::size_t kHalfBytes = 32;

  /// Draws this end's half.
  LinkSecret(Incarnation self, Incarnation peer);

  const std::string& own_half() const { return own_half_; }
  /// The other end's half has come: false when it is not one, or is another one than before.
  bool learn(const std::string& their_half);
  bool is_shared() const { return !key_.empty(); }

  /// HMAC-SHA256 under the secret; only once it is shared.
  std::string prove(const std::string& message) const;
  bool check(const std::string& message, const std::string& proof) const;

 private:
  const Incarnation self_;
  const Incarnation peer_;
  std::string own_half_;
  std::string their_half_;
  std::string key_;
};

}  // namespace sinew::internal
