#include "sinew/rpc/calls/method_load.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace sinew::internal {

MethodLoad::Share::Share(std::shared_ptr<MethodLoad> load, std::int64_t bytes)
    : load_(std::move(load)), bytes_(bytes) {}

MethodLoad::Share& MethodLoad::Share::operator=(Share&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  load_ = std::move(other.load_);
  bytes_ = other.bytes_;
  return *this;
}

void MethodLoad::Share::give_back() {
  if (const auto load = std::exchange(load_, nullptr)) load->end(bytes_);
}

absl::StatusOr<MethodLoad::Share> MethodLoad::admit(std::int64_t bytes) {
  {
    MutexLock lock(mutex_);
    if (calls_ >= max_calls_) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("it serves %d calls at once, and that many are under way", max_calls_));
    }
    if (bytes > max_bytes_) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("this call has %d bytes of arguments, and it takes %d at once at most",
                          bytes, max_bytes_));
    }
    if (bytes_ > max_bytes_ - bytes) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("it takes %d bytes of arguments at once, and with this call's %d there "
                          "would be %d",
                          max_bytes_, bytes, bytes_ + bytes));
    }
    ++calls_;
    bytes_ += bytes;
  }
  return Share(shared_from_this(), bytes);
}

void MethodLoad::end(std::int64_t bytes) {
  MutexLock lock(mutex_);
  --calls_;
  bytes_ -= bytes;
}

std::int64_t MethodLoad::calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

std::int64_t MethodLoad::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace sinew::internal
