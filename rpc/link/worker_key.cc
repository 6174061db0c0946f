#include "sinew/rpc/link/worker_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/freeing.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kSignatureBytes = 64;
constexpr std::size_t kDigestBytes = 32;

using Key = std::unique_ptr<EVP_PKEY, Freeing<&EVP_PKEY_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Freeing<&EVP_PKEY_CTX_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Freeing<&EVP_MD_CTX_free>>;

const unsigned char* bytes_of(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string public_half_of(EVP_PKEY* pair) {
  std::array<unsigned char, kKeyBytes> half{};
  std::size_t size = half.size();
  if (EVP_PKEY_get_raw_public_key(pair, half.data(), &size) != 1 || size != kKeyBytes) return "";
  return std::string(half.begin(), half.end());
}

// The first eight bytes of its SHA-256; 0, which no worker has, where there is none.
Incarnation incarnation_of(absl::string_view public_half) {
  std::array<unsigned char, kDigestBytes> digest{};
  unsigned int size = 0;
  if (EVP_Digest(public_half.data(), public_half.size(), digest.data(), &size, EVP_sha256(),
                 nullptr) != 1) {
    return {};
  }
  Incarnation incarnation;
  for (int i = 0; i < 8; ++i) incarnation.value = (incarnation.value << 8) | digest[i];
  return incarnation;
}

// Runs when the program is loaded, since the first use decides. By itself OpenSSL is destroyed at
// the beginning of exit(), before what is static in the program, whose destructors may still use
// workers, and before other threads that do stand still (ADR 20).
__attribute__((constructor(101))) void on_load() {
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
}

}  // namespace

void WorkerKey::FreePair::operator()(evp_pkey_st* pair) const { EVP_PKEY_free(pair); }

WorkerKey::WorkerKey(Pair pair)
    : pair_(std::move(pair)),
      public_half_(public_half_of(pair_.get())),
      incarnation_(incarnation_of(public_half_)) {}

std::shared_ptr<const WorkerKey> WorkerKey::draw() {
  const KeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, nullptr));
  EVP_PKEY* drawn = nullptr;
  const bool is_drawn = context != nullptr && EVP_PKEY_keygen_init(context.get()) == 1 &&
                        EVP_PKEY_keygen(context.get(), &drawn) == 1;
  Pair pair(drawn);
  if (!is_drawn) throw RpcError(ErrorCode::kInternal, "OpenSSL draws no key for this worker");
  std::shared_ptr<const WorkerKey> key(new WorkerKey(std::move(pair)));
  return key->incarnation().value != 0 ? key : draw();
}

std::string WorkerKey::sign(absl::string_view message) const {
  std::string signature(kSignatureBytes, '\0');
  std::size_t size = signature.size();
  const DigestContext context(EVP_MD_CTX_new());
  const bool is_signed =
      context != nullptr &&
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, pair_.get()) == 1 &&
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     bytes_of(message), message.size()) == 1;
  if (!is_signed) throw RpcError(ErrorCode::kInternal, "OpenSSL does not sign a hello");
  return signature;
}

bool is_signed_by(Incarnation signer, absl::string_view public_half, absl::string_view message,
                  absl::string_view signature) {
  if (public_half.size() != kKeyBytes || signature.size() != kSignatureBytes) return false;
  if (signer.value == 0 || incarnation_of(public_half) != signer) return false;
  const Key key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes_of(public_half),
                                            public_half.size()));
  const DigestContext context(EVP_MD_CTX_new());
  return key != nullptr && context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), bytes_of(signature), signature.size(), bytes_of(message),
                          message.size()) == 1;
}

std::string mac_of(absl::string_view secret, absl::string_view message) {
  std::string mac(kDigestBytes, '\0');
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), bytes_of(message),
       message.size(), reinterpret_cast<unsigned char*>(mac.data()), &size);
  return mac;
}

bool are_equal_secrets(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace sinew::internal
