#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sinew::internal {

constexpr std::size_t kChallengeBytes = 16;
constexpr std::size_t kDigestBytes = 32;

using Digest = std::array<char, kDigestBytes>;

/// Bytes that cannot be predicted.
std::string new_challenge();

/// What the end with this hello shows when it is challenged: SHA256(challenge, hello).
absl::StatusOr<Digest> digest_of(absl::string_view challenge, absl::string_view hello);

/// HMAC-SHA256 of `text` under `key`.
absl::StatusOr<Digest> mac_of(absl::string_view key, absl::string_view text);

/// Takes as long wherever they differ.
bool are_same(const Digest& digest, absl::string_view bytes);

}  // namespace sinew::internal
