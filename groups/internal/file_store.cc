#include "sinew/groups/internal/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/store_table.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "torch/csrc/distributed/c10d/FileStore.hpp"

namespace sinew::internal {
namespace {

// How often a file is looked at for a key; LibTorch's own wait does so every 10 ms.
constexpr std::chrono::milliseconds kFileLook{5};

std::vector<std::uint8_t> file_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

/// Whose file it is. A missing one is made by the store, in a folder whose rights are the user's
/// matter.
absl::Status check_owner(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the store's file ", path, " cannot be used: ", std::strerror(errno)));
  }
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("the store's file ", path, " is no file"));
  }
  if (found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the store's file ", path,
        found.st_uid != geteuid() ? " belongs to another user" : " can be written by others",
        ", who could give this process any value: use a path in a folder of your own"));
  }
  return absl::OkStatus();
}

/// LibTorch's file store. It waits by looking, so waits are made of looks here: others can use the
/// store meanwhile.
class FileStore final : public StoreBackend {
 public:
  FileStore(const std::string& path, int users)
      : path_(path), store_(c10::make_intrusive<c10d::FileStore>(path, users)) {}

  absl::StatusOr<proto::StoreReply> call(proto::StoreRequest request,
                                         Clock::TimePoint deadline) override {
    try {
      for (;;) {
        std::vector<std::string> missing;
        {
          MutexLock lock(mutex_);
          store_->setTimeout(
              std::chrono::milliseconds(std::max<std::uint64_t>(milliseconds_until(deadline), 1)));
          missing = missing_of_locked(request);
          if (missing.empty()) return apply_locked(request);
        }
        if (Clock::system().now() >= deadline) return missing_keys_error(missing);
        std::this_thread::sleep_for(kFileLook);
      }
    } catch (const std::exception& error) {
      return absl::UnavailableError(
          absl::StrCat("the store's file ", path_, " cannot be used: ", error.what()));
    }
  }

 private:
  std::vector<std::string> missing_of_locked(const proto::StoreRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> missing;
    if (request.kind() != proto::StoreRequest::GET && request.kind() != proto::StoreRequest::WAIT) {
      return missing;
    }
    for (const std::string& key : request.keys()) {
      if (!store_->check({key})) missing.push_back(key);
    }
    return missing;
  }

  absl::StatusOr<proto::StoreReply> apply_locked(const proto::StoreRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    proto::StoreReply reply;
    switch (request.kind()) {
      case proto::StoreRequest::SET:
        store_->set(request.keys(0), file_bytes(request.value()));
        break;
      case proto::StoreRequest::GET:
        reply.set_value(text_of(store_->get(request.keys(0))));
        break;
      case proto::StoreRequest::ADD:
        return add_locked(request);
      case proto::StoreRequest::CHECK:
        reply.set_number(store_->check({request.keys().begin(), request.keys().end()}) ? 1 : 0);
        break;
      case proto::StoreRequest::COMPARE_SET:
        reply.set_value(text_of(store_->compareSet(request.keys(0), file_bytes(request.expected()),
                                                   file_bytes(request.value()))));
        break;
      case proto::StoreRequest::DELETE:
        // It goes by what it has read last, and check() reads.
        reply.set_number(
            store_->check({request.keys(0)}) && store_->deleteKey(request.keys(0)) ? 1 : 0);
        break;
      case proto::StoreRequest::COUNT_KEYS:
        reply.set_number(store_->getNumKeys());
        break;
      default:
        break;
    }
    return reply;
  }

  absl::StatusOr<proto::StoreReply> add_locked(const proto::StoreRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    proto::StoreReply reply;
    try {
      reply.set_number(store_->add(request.keys(0), request.amount()));
    } catch (const std::logic_error&) {  // what std::stoll throws
      return absl::InvalidArgumentError(absl::StrCat("the value of '",
                                                     printable(request.keys(0), 128),
                                                     "' is no number: nothing can be added to it"));
    }
    return reply;
  }

  const std::string path_;
  Mutex mutex_;
  const c10::intrusive_ptr<c10d::FileStore> store_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<StoreBackend>> open_file_store(const std::string& path, int users) {
  if (!absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("the store's file '", printable(path, 256), "' is no absolute path"));
  }
  if (users < 0) {
    return absl::InvalidArgumentError(absl::StrCat("a file store cannot have ", users, " users"));
  }
  const absl::Status owned = check_owner(path);
  if (!owned.ok()) return owned;
  // LibTorch's store makes it when it writes, and takes it for an error that there is none to read.
  const FileDescriptor made(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!made.valid()) {
    return absl::UnavailableError(
        absl::StrCat("the store's file ", path, " cannot be made: ", std::strerror(errno)));
  }
  try {
    return std::make_shared<FileStore>(path, users);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("the store's file ", path, " cannot be used: ", error.what()));
  }
}

}  // namespace sinew::internal
