#include "sinew/rref/internal/ledger_token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

namespace sinew::internal::ledger {

namespace {

void append(std::string& out, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

}  // namespace

Token hmac_token(const TokenInput& input) {
  // Fixed-width fields first and the only variable one last: no two inputs share an encoding.
  std::string text = "sinew fork token 1";
  append(text, input.rref.creator.value);
  append(text, input.rref.serial);
  append(text, input.rref.secret);
  append(text, input.parent.creator.value);
  append(text, input.parent.serial);
  append(text, input.child.creator.value);
  append(text, input.child.serial);
  append(text, input.receiver.incarnation.value);
  text += input.receiver.name;

  std::string key;
  append(key, input.parent_secret);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int digest_bytes = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   digest.data(), &digest_bytes);
  Token token{};
  // Fails only without memory. An all-zero token would be one that anybody can make.
  if (made == nullptr || digest_bytes < token.size()) std::abort();
  std::copy_n(digest.begin(), token.size(), token.begin());
  return token;
}

bool tokens_equal(const Token& a, const Token& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace sinew::internal::ledger
