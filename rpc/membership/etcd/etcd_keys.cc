#include "sinew/rpc/membership/etcd/etcd_keys.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal::etcd {

using registry::KeyRequest;
using Verb = KeyRequest::Verb;

struct EtcdKeys::Work {
  KeyRequest request;
  std::chrono::steady_clock::time_point deadline;
  Then then;
  EtcdClient::WatchId watch = 0;
  bool has_ended = false;

  bool changes() const {
    return request.verb == Verb::kPut || request.verb == Verb::kCompare ||
           request.verb == Verb::kRemove;
  }
  Time left() const { return deadline - std::chrono::steady_clock::now(); }
};

void EtcdKeys::set_lease(std::int64_t lease) {
  if (std::exchange(lease_, lease) == lease) return;
  for (const auto& [key, value] : own_) {
    pb::TxnRequest txn;
    add(txn, is_absent(layout_.key(key)));
    add_success(txn, put(layout_.key(key), value, lease_));
    client_.call(std::move(txn), std::chrono::seconds(60), [](const auto&) {});
  }
}

absl::Status EtcdKeys::check(const KeyRequest& request) const {
  if (request.key.empty() || request.key.size() > kMaxKeyBytes ||
      request.value.size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a key has 1 to ", kMaxKeyBytes,
                                                   " bytes, and a value at most ", kMaxValueBytes));
  }
  return absl::OkStatus();
}

void EtcdKeys::end(Work& work, absl::Status status, std::vector<std::string> values) {
  if (std::exchange(work.has_ended, true)) return;
  client_.unwatch(work.watch);
  if (status.ok() && work.changes()) {
    own_.erase(work.request.key);
    if (work.request.verb != Verb::kRemove && !work.request.is_kept) {
      own_[work.request.key] = work.request.value;
    }
  }
  work.then(std::move(status), std::move(values));
}

void EtcdKeys::request(KeyRequest request, Time timeout, Then then) {
  auto work = std::make_shared<Work>();
  work->request = std::move(request);
  work->deadline = std::chrono::steady_clock::now() + timeout;
  work->then = std::move(then);
  if (absl::Status status = check(work->request); !status.ok()) return end(*work, status);
  begin(std::move(work));
}

void EtcdKeys::begin(WorkPtr work) {
  const KeyRequest& request = work->request;
  const std::string key = layout_.key(request.key);
  pb::TxnRequest txn;
  add(txn, is_absent(key));
  const bool sets = request.verb == Verb::kPut ||
                    (request.verb == Verb::kCompare && !request.expected.has_value());
  if (sets) add_success(txn, put(key, request.value, request.is_kept ? 0 : lease_));
  add_failure(txn, get(key));
  client_.call(std::move(txn), work->left(),
               [this, work, sets](absl::StatusOr<pb::TxnResponse> answer) {
                 if (!answer.ok()) return end(*work, answer.status());
                 if (answer->succeeded() && sets) return end(*work, absl::OkStatus());
                 const std::int64_t revision = answer->header().revision();
                 if (answer->succeeded()) return found(work, nullptr, revision);
                 const auto& kvs = answer->responses(0).response_range().kvs();
                 found(work, kvs.empty() ? nullptr : &kvs[0], revision);
               });
}

void EtcdKeys::found(WorkPtr work, const KeyValue* kv, std::int64_t revision) {
  const KeyRequest& request = work->request;
  if (kv == nullptr) {
    if (request.verb == Verb::kWait) return wait(std::move(work), revision + 1);
    if (request.verb == Verb::kCompare) {
      return end(*work, absl::AbortedError(absl::StrCat("there is no key '", request.key, "'")));
    }
    return end(*work, absl::NotFoundError(absl::StrCat("there is no key '", request.key, "'")));
  }
  if (!work->changes()) return end(*work, absl::OkStatus(), {kv->value()});
  if (kv->lease() != 0 && kv->lease() != lease_) {
    return end(*work, absl::PermissionDeniedError(
                          absl::StrCat("key '", request.key, "' is another worker's")));
  }
  if (request.verb == Verb::kCompare && request.expected != kv->value()) {
    return end(*work, absl::AbortedError(absl::StrCat("key '", request.key, "' has another value")),
               {kv->value()});
  }
  change(std::move(work), kv->mod_revision());
}

void EtcdKeys::change(WorkPtr work, std::int64_t mod_revision) {
  const KeyRequest& request = work->request;
  const std::string key = layout_.key(request.key);
  pb::TxnRequest txn;
  add(txn, is_unchanged(key, mod_revision));
  add_success(txn, request.verb == Verb::kRemove
                       ? remove(key)
                       : put(key, request.value, request.is_kept ? 0 : lease_));
  client_.call(std::move(txn), work->left(), [this, work](absl::StatusOr<pb::TxnResponse> answer) {
    if (!answer.ok()) return end(*work, answer.status());
    // Somebody was faster: what it has set counts.
    if (!answer->succeeded()) return begin(work);
    end(*work, absl::OkStatus());
  });
}

void EtcdKeys::wait(WorkPtr work, std::int64_t from_revision) {
  EtcdClient::Watcher watcher;
  watcher.on_events = [this, work](const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (event.type() == Event::PUT) return end(*work, absl::OkStatus(), {event.kv().value()});
    }
  };
  watcher.on_end = [this, work](absl::Status why) {
    if (why.code() == absl::StatusCode::kOutOfRange) return begin(work);
    end(*work, std::move(why));
  };
  work->watch =
      client_.watch(layout_.key(work->request.key), {}, from_revision, std::move(watcher));
  client_.run_after(work->left(), [this, work] {
    end(*work, absl::DeadlineExceededError(
                   absl::StrCat("nobody has set key '", work->request.key, "' in time")));
  });
}

}  // namespace sinew::internal::etcd
