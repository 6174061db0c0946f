#include "sinew/rpc/planes/same_host/remote_memory.h"

#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sinew/rpc/base/internal/system_call.h"
#include "sinew/rpc/planes/same_host/shown_word.h"

namespace sinew::internal {
namespace {

void* address_of(std::uint64_t number) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
}

}  // namespace

RemoteMemory::RemoteMemory(std::shared_ptr<const PeerProcess> process, MemoryAccess access,
                           std::shared_ptr<CopyTeam> team)
    : process_(std::move(process)),
      word_(std::move(access.word)),
      word_address_(access.word_address),
      seal_(access.key),
      team_(std::move(team)) {}

absl::Status RemoteMemory::check() const {
  char nothing = 0;
  absl::Status status = read(word_address_, &nothing, 1);
  return status.ok() ? check_owner() : status;
}

absl::Status RemoteMemory::fetch(absl::string_view location, char* to, std::size_t size_bytes) {
  const std::optional<std::uint64_t> from = seal_.open(location, size_bytes);
  if (!from.has_value()) {
    return absl::InvalidArgumentError(
        "a location of the same-host plane that the process which was met has not made");
  }
  absl::Status status = team_->copy(size_bytes, [&](std::size_t offset, std::size_t piece_bytes) {
    return read(*from + offset, to + offset, piece_bytes);
  });
  return status.ok() ? check_owner() : status;
}

// After all has been read: the process had its number until now, so no other process was read.
absl::Status RemoteMemory::check_owner() const {
  return process_->is_alive() ? absl::OkStatus() : process_->unreachable("has ended");
}

absl::Status RemoteMemory::read(std::uint64_t from, char* to, std::size_t size_bytes) const {
  std::array<char, ShownWord::kBytes> shown{};
  const std::array<iovec, 2> here = {{{to, size_bytes}, {shown.data(), shown.size()}}};
  // In this order: the word is still there, so the data were.
  const std::array<iovec, 2> there = {
      {{address_of(from), size_bytes}, {address_of(word_address_), shown.size()}}};
  const ssize_t copied = ::process_vm_readv(process_->number(), here.data(), here.size(),
                                            there.data(), there.size(), 0);
  if (copied < 0) return process_->unreachable(call_failure("process_vm_readv", errno));
  if (static_cast<std::size_t>(copied) != size_bytes + shown.size()) {
    return process_->unreachable("its memory ends early");
  }
  // What close() leaves behind.
  if (shown == std::array<char, ShownWord::kBytes>{}) {
    return absl::NotFoundError("the peer has closed the connection");
  }
  if (std::memcmp(shown.data(), word_.data(), shown.size()) != 0) {
    return process_->unreachable("its memory is not what it was");
  }
  return absl::OkStatus();
}

}  // namespace sinew::internal
