#include "sinew/rpc/planes/same_host/location_seal.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>

namespace sinew::internal {
namespace {

/// One block. Who has not the key makes blocks that open to numbers which he can neither choose nor
/// foresee, so that the size is right once in 2^64 attempts; the first wrong one ends the
/// connection.
struct Plain {
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;
};
using Block = std::array<unsigned char, sizeof(Plain)>;

}  // namespace

struct LocationSeal::Cipher {
  enum class Direction { kOpen = 0, kSeal = 1 };

  Cipher(absl::string_view key, Direction direction) : context(EVP_CIPHER_CTX_new()) {
    usable = context != nullptr &&
             EVP_CipherInit_ex(context, EVP_aes_128_ecb(), nullptr,
                               reinterpret_cast<const unsigned char*>(key.data()), nullptr,
                               static_cast<int>(direction)) == 1 &&
             EVP_CIPHER_CTX_set_padding(context, 0) == 1;
  }
  ~Cipher() { EVP_CIPHER_CTX_free(context); }
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  std::optional<Block> turn(const Block& block) const {
    Block turned{};
    int size = 0;
    if (!usable || EVP_CipherUpdate(context, turned.data(), &size, block.data(),
                                    static_cast<int>(block.size())) != 1) {
      return std::nullopt;
    }
    return turned;
  }

  EVP_CIPHER_CTX* const context;
  bool usable = false;
};

LocationSeal::LocationSeal(absl::string_view key)
    : sealing_(std::make_unique<Cipher>(key, Cipher::Direction::kSeal)),
      opening_(std::make_unique<Cipher>(key, Cipher::Direction::kOpen)) {}

LocationSeal::~LocationSeal() = default;

std::optional<std::string> LocationSeal::seal(std::uint64_t address, std::uint64_t size_bytes) {
  const Plain plain{address, size_bytes};
  Block block{};
  std::memcpy(block.data(), &plain, block.size());
  MutexLock lock(mutex_);
  const std::optional<Block> sealed = sealing_->turn(block);
  if (!sealed.has_value()) return std::nullopt;
  return std::string(sealed->begin(), sealed->end());
}

std::optional<std::uint64_t> LocationSeal::open(absl::string_view location,
                                                std::uint64_t size_bytes) {
  Block block{};
  if (location.size() != block.size()) return std::nullopt;
  std::memcpy(block.data(), location.data(), block.size());
  std::optional<Block> opened;
  {
    MutexLock lock(mutex_);
    opened = opening_->turn(block);
  }
  if (!opened.has_value()) return std::nullopt;
  Plain plain;
  std::memcpy(&plain, opened->data(), opened->size());
  if (plain.size_bytes != size_bytes || size_bytes > UINT64_MAX - plain.address) {
    return std::nullopt;
  }
  return plain.address;
}

}  // namespace sinew::internal
