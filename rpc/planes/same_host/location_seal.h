#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// Makes locations of addresses, and addresses of locations. They go over the connection, whose
/// other end may be another process than the one that was met (without credentials there may be a
/// man in the middle). So they tell nothing without the key, and no other process can forge one.
/// Thread-safe.
class LocationSeal {
 public:
  static constexpr std::size_t kKeyBytes = 16;

  /// `key` has kKeyBytes.
  explicit LocationSeal(absl::string_view key);
  ~LocationSeal();
  LocationSeal(const LocationSeal&) = delete;
  LocationSeal& operator=(const LocationSeal&) = delete;

  /// Nothing when OpenSSL offers no AES.
  std::optional<std::string> seal(std::uint64_t address, std::uint64_t size_bytes);
  /// The address; nothing unless `location` was sealed with this key for so many bytes.
  std::optional<std::uint64_t> open(absl::string_view location, std::uint64_t size_bytes);

 private:
  struct Cipher;

  Mutex mutex_;
  std::unique_ptr<Cipher> sealing_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Cipher> opening_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
