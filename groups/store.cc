#include "sinew/groups/store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/groups/internal/file_store.h"
#include "sinew/groups/internal/group_runtime.h"
#include "sinew/groups/internal/store_service.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/groups/internal/tcp_store.h"
#include "sinew/groups/internal/worker_store.h"
#include "sinew/rpc/base/error.h"

namespace sinew {
namespace {

using internal::StoreBackend;
using proto::StoreRequest;

[[noreturn]] void refuse(ErrorCode code, std::string text) {
  throw RpcError(code, std::move(text));
}

void check_key(const std::string& key) {
  if (key.empty()) refuse(ErrorCode::kInvalidArgument, "a key of a store must not be empty");
  if (key.size() > Store::kMaxKeyBytes) {
    refuse(ErrorCode::kInvalidArgument,
           absl::StrFormat("the key '%s' has %d bytes with its prefix; %d are the most",
                           internal::printable(key, 128), key.size(), Store::kMaxKeyBytes));
  }
}

void check_value(const std::string& key, std::string_view value) {
  if (value.size() <= Store::kMaxValueBytes) return;
  refuse(ErrorCode::kInvalidArgument,
         absl::StrFormat("the value of the key '%s' has %d bytes; %d are the most",
                         internal::printable(key, 128), value.size(), Store::kMaxValueBytes));
}

void check_timeout(std::chrono::nanoseconds timeout) {
  if (timeout > std::chrono::nanoseconds(0)) return;
  refuse(ErrorCode::kInvalidArgument, "the timeout of a store must be more than 0");
}

/// A handle's part of a call.
class Request {
 public:
  Request(const std::shared_ptr<StoreBackend>& backend, const std::string& prefix,
          std::chrono::nanoseconds timeout, const StoreCallOptions& options)
      : backend_(backend), prefix_(prefix), timeout_(options.timeout.value_or(timeout)) {
    if (backend_ == nullptr) {
      refuse(ErrorCode::kFailedPrecondition,
             "this Store is empty: make one with Store::tcp(), file(), in_memory() or over()");
    }
    check_timeout(timeout_);
  }

  Request& key(std::string_view key) {
    std::string whole = absl::StrCat(prefix_, std::string(key));
    check_key(whole);
    message_.add_keys(std::move(whole));
    return *this;
  }
  Request& value(std::string_view value) {
    check_value(message_.keys(0), value);
    message_.set_value(std::string(value));
    return *this;
  }
  Request& expected(std::string_view expected) {
    check_value(message_.keys(0), expected);
    message_.set_expected(std::string(expected));
    return *this;
  }
  StoreRequest& message() { return message_; }

  proto::StoreReply run(StoreRequest::Kind kind) {
    message_.set_kind(kind);
    absl::StatusOr<proto::StoreReply> reply =
        backend_->call(std::move(message_), internal::deadline_after(timeout_));
    if (!reply.ok()) internal::throw_error(reply.status());
    return *std::move(reply);
  }

 private:
  const std::shared_ptr<StoreBackend>& backend_;
  const std::string& prefix_;
  const std::chrono::nanoseconds timeout_;
  StoreRequest message_;
};

}  // namespace

Store Store::in_memory() {
  return Store(internal::make_local_store(
      std::make_shared<internal::StoreService>(internal::GroupRuntime::get().timers())));
}

Store Store::file(const std::string& path, int users) {
  absl::StatusOr<std::shared_ptr<StoreBackend>> backend = internal::open_file_store(path, users);
  if (!backend.ok()) internal::throw_error(backend.status());
  return Store(*std::move(backend));
}

Store Store::tcp(const std::string& address, TcpRole role, TcpReach reach,
                 std::chrono::nanoseconds timeout) {
  check_timeout(timeout);
  absl::StatusOr<std::shared_ptr<StoreBackend>> backend =
      internal::open_tcp_store(address, role, reach, internal::deadline_after(timeout));
  if (!backend.ok()) internal::throw_error(backend.status());
  return Store(*std::move(backend)).within(timeout);
}

Store Store::over(const Worker& worker) { return Store(internal::open_worker_store(worker)); }

Store Store::with_prefix(std::string_view prefix) const {
  Store store = *this;
  store.prefix_ += prefix;
  return store;
}

Store Store::within(std::chrono::nanoseconds timeout) const {
  check_timeout(timeout);
  Store store = *this;
  store.timeout_ = timeout;
  return store;
}

void Store::set(std::string_view key, std::string_view value,
                const StoreCallOptions& options) const {
  Request(backend_, prefix_, timeout_, options).key(key).value(value).run(StoreRequest::SET);
}

std::string Store::get(std::string_view key, const StoreCallOptions& options) const {
  proto::StoreReply reply =
      Request(backend_, prefix_, timeout_, options).key(key).run(StoreRequest::GET);
  return std::move(*reply.mutable_value());
}

std::int64_t Store::add(std::string_view key, std::int64_t amount,
                        const StoreCallOptions& options) const {
  Request request(backend_, prefix_, timeout_, options);
  request.key(key).message().set_amount(amount);
  return request.run(StoreRequest::ADD).number();
}

void Store::wait(const std::vector<std::string>& keys, const StoreCallOptions& options) const {
  Request request(backend_, prefix_, timeout_, options);
  for (const std::string& key : keys) request.key(key);
  if (!keys.empty()) request.run(StoreRequest::WAIT);
}

bool Store::check(const std::vector<std::string>& keys, const StoreCallOptions& options) const {
  Request request(backend_, prefix_, timeout_, options);
  for (const std::string& key : keys) request.key(key);
  return keys.empty() || request.run(StoreRequest::CHECK).number() != 0;
}

std::string Store::compare_set(std::string_view key, std::string_view expected,
                               std::string_view desired, const StoreCallOptions& options) const {
  Request request(backend_, prefix_, timeout_, options);
  request.key(key).value(desired).expected(expected);
  proto::StoreReply reply = request.run(StoreRequest::COMPARE_SET);
  return std::move(*reply.mutable_value());
}

bool Store::delete_key(std::string_view key, const StoreCallOptions& options) const {
  return Request(backend_, prefix_, timeout_, options)
             .key(key)
             .run(StoreRequest::DELETE)
             .number() != 0;
}

std::int64_t Store::num_keys(const StoreCallOptions& options) const {
  return Request(backend_, prefix_, timeout_, options).run(StoreRequest::COUNT_KEYS).number();
}

int Store::port() const { return backend_ == nullptr ? 0 : backend_->port(); }

}  // namespace sinew
