#include "sinew/rpc/link/link_secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kDigestBytes = 32;

std::string hash(const std::string& bytes) {
  std::string digest(kDigestBytes, '\0');
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
             EVP_sha256(), nullptr);
  return digest;
}

// Runs when the program is loaded, since the first use decides. By itself OpenSSL is destroyed at
// the beginning of exit(), before what is static in the program, whose destructors may still use
// workers, and before other threads that do stand still (ADR 20).
__attribute__((constructor(101))) void on_load() {
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
}

}  // namespace

LinkSecret::LinkSecret(Incarnation self, Incarnation peer)
    : self_(self), peer_(peer), own_half_(kHalfBytes, '\0') {
  if (RAND_bytes(reinterpret_cast<unsigned char*>(own_half_.data()),
                 static_cast<int>(own_half_.size())) != 1) {
    throw RpcError(ErrorCode::kInternal, "the system has no random numbers to give");
  }
}

bool LinkSecret::learn(const std::string& their_half) {
  if (their_half.size() != kHalfBytes) return false;
  if (is_shared()) {
    return CRYPTO_memcmp(their_half.data(), their_half_.data(), kHalfBytes) == 0;
  }
  their_half_ = their_half;
  key_ = hash(self_ < peer_ ? own_half_ + their_half_ : their_half_ + own_half_);
  return true;
}

std::string LinkSecret::prove(const std::string& message) const {
  std::string mac(kDigestBytes, '\0');
  unsigned int size = 0;
  HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &size);
  return mac;
}

bool LinkSecret::check(const std::string& message, const std::string& proof) const {
  if (!is_shared() || proof.size() != kDigestBytes) return false;
  return CRYPTO_memcmp(prove(message).data(), proof.data(), kDigestBytes) == 0;
}

}  // namespace sinew::internal
