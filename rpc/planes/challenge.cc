#include "sinew/rpc/planes/challenge.h"

#include <openssl/evp.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

std::string new_challenge() {
  std::string challenge(kChallengeBytes, '\0');
  for (std::size_t at = 0; at < kChallengeBytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t secret = random_secret();
    std::memcpy(&challenge[at], &secret, sizeof secret);
  }
  return challenge;
}

absl::StatusOr<Digest> digest_of(absl::string_view challenge, absl::string_view hello) {
  const std::string text = absl::StrCat(challenge, hello);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1 ||
      size != kDigestBytes) {
    return absl::InternalError("OpenSSL offers no SHA-256");
  }
  Digest result{};
  std::memcpy(result.data(), digest.data(), kDigestBytes);
  return result;
}

}  // namespace sinew::internal
