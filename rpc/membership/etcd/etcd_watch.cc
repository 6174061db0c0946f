#include "absl/strings/str_cat.h"
#include "sinew/rpc/membership/etcd/etcd_call.h"
#include "sinew/rpc/membership/etcd/etcd_client.h"

namespace sinew::internal::etcd {

EtcdClient::WatchId EtcdClient::watch(std::string key, std::string range_end,
                                      std::int64_t from_revision, Watcher watcher) {
  auto watch = std::make_shared<Watch>();
  watch->id = ++last_watch_;
  watch->key = std::move(key);
  watch->range_end = std::move(range_end);
  watch->next_revision = from_revision;
  watch->watcher = std::move(watcher);
  watches_[watch->id] = watch;
  // Not within this call: it may end at once.
  run_after(Time(0), [this, watch] { open(watch); });
  return watch->id;
}

void EtcdClient::unwatch(WatchId id) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  const std::shared_ptr<Watch> watch = found->second;
  watches_.erase(found);
  if (watch->stream != nullptr) watch->stream->context.TryCancel();
}

void EtcdClient::end_watch(Watch& watch, absl::Status why) {
  if (watches_.count(watch.id) == 0) return;
  unwatch(watch.id);
  watch.watcher.on_end(std::move(why));
}

void EtcdClient::open(std::shared_ptr<Watch> watch) {
  if (has_stopped_ || watches_.count(watch->id) == 0) return;
  const Clock::time_point now = Clock::now();
  if (now < not_before_) return run_after(not_before_ - now, [this, watch] { open(watch); });
  if (needs_token()) {
    wait_for_token_.push_back([this, watch] { open(watch); });
    return authenticate();
  }
  if (looks_up()) return run_after(kLookUp, [this, watch] { open(watch); });
  if (absl::Status status = connect(); !status.ok()) {
    if (!absl::IsUnavailable(status)) return end_watch(*watch, std::move(status));
    failed(generation_, status);
    return open(watch);
  }
  auto stream = std::make_shared<Stream>();
  watch->stream = stream;
  stream->generation = generation_;
  stream->endpoint = endpoint();
  stream->token = token_;
  pb::WatchCreateRequest& create = *stream->request.mutable_create_request();
  create.set_key(watch->key);
  create.set_range_end(watch->range_end);
  create.set_start_revision(watch->next_revision);
  create.set_fragment(true);
  prepare(stream->context, Clock::time_point::max());
  contexts_.insert(&stream->context);
  stream->calls = stub_->PrepareCall(&stream->context, kWatchPath, &queue_);
  stream->calls->StartCall(tag([this, watch, stream](bool ok) {
    if (!ok) return close(watch, stream);
    stream->calls->Write(stream->request, tag([this, watch, stream](bool has_written) {
                           has_written ? read(watch, stream) : close(watch, stream);
                         }));
  }));
  // A server that is stopped says nothing.
  run_after(options_.attempt_timeout, [weak = std::weak_ptr<Stream>(stream)] {
    const std::shared_ptr<Stream> late = weak.lock();
    if (late != nullptr && !late->is_created) late->context.TryCancel();
  });
}

void EtcdClient::read(std::shared_ptr<Watch> watch, std::shared_ptr<Stream> stream) {
  stream->calls->Read(&stream->response, tag([this, watch, stream](bool ok) {
    if (!ok || has_stopped_ || !take(*watch, *stream)) {
      return close(watch, stream);
    }
    read(watch, stream);
  }));
}

bool EtcdClient::take(Watch& watch, Stream& stream) {
  if (watches_.count(watch.id) == 0) return false;
  pb::WatchResponse& response = stream.response;
  if (response.compact_revision() > 0) {
    end_watch(watch,
              absl::OutOfRangeError(absl::StrCat(
                  "etcd at ", stream.endpoint, " has compacted revision ", watch.next_revision,
                  " (what it has begins with ", response.compact_revision(), ")")));
    return false;
  }
  if (response.canceled()) {
    Failure failure = explain_error(absl::PermissionDeniedError(response.cancel_reason()),
                                    stream.endpoint, options_);
    // etcd 3.4 says of an old token, too, that permission is denied.
    if (!stream.token.empty() && ++watch.refusals <= kMaxAuthentications) {
      drop_token(stream.token);
    } else {
      end_watch(watch, std::move(failure.status));
    }
    return false;
  }
  if (response.created()) {
    stream.is_created = true;
    answered(stream.generation);
    if (response.header().revision() + 1 < watch.next_revision) {
      end_watch(watch, absl::OutOfRangeError(absl::StrCat(
                           "etcd at ", stream.endpoint, " has only ", response.header().revision(),
                           " revisions, and had ", watch.next_revision - 1, ": it has lost data")));
      return false;
    }
  }
  for (Event& event : *response.mutable_events()) stream.events.push_back(std::move(event));
  if (response.fragment() || stream.events.empty()) return true;
  watch.refusals = 0;
  watch.next_revision = stream.events.back().kv().mod_revision() + 1;
  const std::vector<Event> events = std::exchange(stream.events, {});
  watch.watcher.on_events(events);
  return true;
}

void EtcdClient::close(std::shared_ptr<Watch> watch, std::shared_ptr<Stream> stream) {
  // What is not over yet ends by that.
  stream->context.TryCancel();
  stream->calls->Finish(&stream->status, tag([this, watch, stream](bool) {
    contexts_.erase(&stream->context);
    closed(watch, *stream);
  }));
}

void EtcdClient::closed(const std::shared_ptr<Watch>& watch, const Stream& stream) {
  watch->stream.reset();
  if (has_stopped_ || watches_.count(watch->id) == 0) return;
  // Not where it was ended here for another token.
  if (stream.token == token_) {
    const Failure failure = explain_error(to_absl(stream.status), stream.endpoint, options_);
    if (failure.remedy == Remedy::kAuthenticate) {
      drop_token(stream.token);
    } else {
      failed(stream.generation, failure.status);
    }
  }
  open(watch);
}

}  // namespace sinew::internal::etcd
