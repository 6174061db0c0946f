#include "sinew/rpc/membership/registry/keys.h"

#include "absl/strings/str_cat.h"
#include "sinew/rpc/membership/registry/registry_bugs.h"

namespace sinew::internal::registry {

using Verb = KeyRequest::Verb;

absl::Status Keys::check(const WorkerInfo& from, const KeyRequest& request) const {
  if (request.key.size() > limits_.key_bytes || request.value.size() > limits_.value_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a key has at most ", limits_.key_bytes,
                                                   " bytes, and a value ", limits_.value_bytes));
  }
  if (request.verb == Verb::kGet || request.verb == Verb::kWait) return absl::OkStatus();
  const auto key = keys_.find(request.key);
  const bool is_new = key == keys_.end();
  if (!is_new && key->second.owner.value != 0 && key->second.owner != from.incarnation) {
    return absl::PermissionDeniedError(absl::StrCat("key '", request.key, "' is another worker's"));
  }
  const auto share = shares_.find(from.incarnation);
  const bool is_first = share == shares_.end();
  if (is_new && (keys_.size() >= limits_.keys ||
                 (!is_first && share->second.keys.size() >= limits_.keys_each))) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are too many keys for one more of worker '", from.name, "'"));
  }
  if (!is_first && share->second.bytes + request.value.size() > limits_.bytes_each) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the keys of worker '", from.name, "' have too many bytes"));
  }
  return absl::OkStatus();
}

void Keys::handle(const WorkerInfo& from, const KeyRequest& request, std::uint64_t token,
                  Effects& out) {
  Finished end{request.id, check(from, request), {}};
  const auto key = keys_.find(request.key);
  if (!end.status.ok()) {
    // As it is.
  } else if (request.verb == Verb::kPut || request.verb == Verb::kCompare) {
    end = set(from, request, token, out);
  } else if (request.verb == Verb::kRemove) {
    if (key == keys_.end())
      end.status = absl::NotFoundError(absl::StrCat("there is no key '", request.key, "'"));
    erase(request.key);
  } else if (key != keys_.end()) {
    end.values = {key->second.value};
  } else if (request.verb == Verb::kGet) {
    end.status = absl::NotFoundError(absl::StrCat("there is no key '", request.key, "'"));
  } else {
    Share& share = shares_[from.incarnation];
    if (share.waits.size() < limits_.waits_each || share.waits.count(request.id) > 0) {
      cancel(from.incarnation, request.id);
      share.waits[request.id] = request.key;
      waiters_[request.key].insert({from.incarnation, request.id});
      return;
    }
    end.status = absl::ResourceExhaustedError(
        absl::StrCat("worker '", from.name, "' waits for too many keys"));
  }
  out.push_back({{from.incarnation}, token, std::move(end)});
}

Finished Keys::set(const WorkerInfo& from, const KeyRequest& request, std::uint64_t token,
                   Effects& out) {
  const auto found = keys_.find(request.key);
  const bool is_there = found != keys_.end();
  if (request.verb == Verb::kCompare && (is_there != request.expected.has_value() ||
                                         (is_there && found->second.value != *request.expected))) {
    Finished end{request.id,
                 absl::AbortedError(absl::StrCat("key '", request.key, "' has another value")),
                 {}};
    if (is_there) end.values = {found->second.value};
    return end;
  }
  erase(request.key);
  keys_[request.key] = {request.value, request.is_kept ? Incarnation{} : from.incarnation,
                        from.incarnation};
  Share& share = shares_[from.incarnation];
  share.keys.insert(request.key);
  share.bytes += request.value.size();
  const auto waiters = waiters_.find(request.key);
  if (waiters != waiters_.end()) {
    for (const auto& [waiter, id] : waiters->second) {
      shares_[waiter].waits.erase(id);
      out.push_back({{waiter}, token, Finished{id, absl::OkStatus(), {request.value}}});
    }
    waiters_.erase(waiters);
  }
  return {request.id, absl::OkStatus(), {}};
}

void Keys::erase(const std::string& key) {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return;
  const auto share = shares_.find(found->second.setter);
  if (share != shares_.end() && share->second.keys.erase(key) > 0) {
    share->second.bytes -= found->second.value.size();
  }
  keys_.erase(found);
}

void Keys::cancel(Incarnation from, std::uint64_t id) {
  const auto share = shares_.find(from);
  if (share == shares_.end()) return;
  const auto wait = share->second.waits.find(id);
  if (wait == share->second.waits.end()) return;
  const auto waiters = waiters_.find(wait->second);
  waiters->second.erase({from, id});
  if (waiters->second.empty()) waiters_.erase(waiters);
  share->second.waits.erase(wait);
}

void Keys::on_gone(Incarnation owner) {
  const auto found = shares_.find(owner);
  if (found == shares_.end()) return;
  const Share share = found->second;
  for (const auto& [id, key] : share.waits) cancel(owner, id);
  for (const std::string& key : share.keys) {
    if (keys_.at(key).owner == owner && !SINEW_REGISTRY_BUG(kKeysStay)) erase(key);
  }
  shares_.erase(owner);
}

}  // namespace sinew::internal::registry
