#include "sinew/rpc/planes/challenge.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

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

absl::StatusOr<Digest> mac_of(absl::string_view key, absl::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(),
           &size) == nullptr ||
      size != kDigestBytes) {
    return absl::InternalError("OpenSSL offers no HMAC with SHA-256");
  }
  Digest result{};
  std::memcpy(result.data(), mac.data(), kDigestBytes);
  return result;
}

bool are_same(const Digest& digest, absl::string_view bytes) {
  return bytes.size() == digest.size() &&
         CRYPTO_memcmp(digest.data(), bytes.data(), digest.size()) == 0;
}

}  // namespace sinew::internal
