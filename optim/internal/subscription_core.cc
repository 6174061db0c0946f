#include "sinew/optim/internal/subscription_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref/names.h"
#include "sinew/rref/remote.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;

// For a worker that has not come: it is sought again at once.
constexpr auto kSeek = 30s;
// The writer holds a question for less.
constexpr auto kAsk = 60s;
// Of one piece, or of changes, which have to be found out.
constexpr auto kFetch = 30s;
constexpr auto kPause = 200ms;

std::uint64_t draw_reader() {
  return std::max<std::uint64_t>(random_secret(), PublicationTable::kWriter + 1);
}

const char* text_of(SubscriptionState::Do what) {
  switch (what) {
    case SubscriptionState::Do::kNothing:
      return "it has not begun";
    case SubscriptionState::Do::kSeek:
      return "it seeks the writer";
    case SubscriptionState::Do::kPause:
      return "it tries again in a moment";
    case SubscriptionState::Do::kAsk:
      return "it waits for a later version";
    case SubscriptionState::Do::kShare:
    case SubscriptionState::Do::kFetchChanges:
    case SubscriptionState::Do::kFetchWhole:
      return "a version is on its way";
  }
  return "?";
}

/// What cannot even be sent, to one that is lost above all, fails as what was.
template <class T, class Call>
Future<T> started(const Call& call) {
  try {
    return call();
  } catch (const RpcError&) {
    return make_failed_future<T>(std::current_exception());
  }
}

SubscriptionState::Fault fault_of(const std::exception_ptr& error) {
  return to_status(error).code() == absl::StatusCode::kUnavailable
             ? SubscriptionState::Fault::kLost
             : SubscriptionState::Fault::kFailed;
}

}  // namespace

SubscriptionCore::SubscriptionCore(std::string address, optim::SubscriptionOptions options)
    : address_(std::move(address)), options_(std::move(options)), state_(draw_reader()) {}

void SubscriptionCore::move_to(const Worker& worker) {
  const std::shared_ptr<WorkerServices> services = WorkerAccess::services(worker);
  if (services == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a subscription needs a worker, and this one is none");
  }
  Step step;
  {
    MutexLock lock(mutex_);
    step = worker_.valid() ? state_.on_new_worker(draw_reader()) : state_.begin();
    worker_ = worker;
    events_ = std::make_shared<Strand>(services->executor()->runner());
    writer_.reset();
    offer_.reset();
    source_.reset();
    mistake_ = nullptr;
    // What the former worker was to run is gone with it.
    is_told_ = false;
  }
  take(step);
}

void SubscriptionCore::take(const Step& step) {
  // Also where it was made in a handler: it outlives that call, and its deadline.
  const ThreadContext::Scope outside(nullptr);
  try {
    perform(step);
  } catch (const std::exception& error) {
    // The worker has ended, or an address is none. The next step would fail in the same way: it
    // waits for move_to().
    note(error.what());
    MutexLock lock(mutex_);
    if (!worker_.is_running()) return;
    mistake_ = std::current_exception();
    for (const Waiter& each : std::exchange(waiters_, {})) each.promise.try_set_error(mistake_);
  }
}

void SubscriptionCore::perform(const Step& step) {
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
  }
  switch (step.what) {
    case SubscriptionState::Do::kNothing:
      return;
    case SubscriptionState::Do::kSeek:
      return seek(step.attempt);
    case SubscriptionState::Do::kPause:
      return pause(step.attempt);
    case SubscriptionState::Do::kAsk:
      return ask(step.attempt);
    case SubscriptionState::Do::kShare:
      return share(step.attempt);
    case SubscriptionState::Do::kFetchChanges:
      return fetch_changes(step.attempt);
    case SubscriptionState::Do::kFetchWhole:
      return fetch_whole(step.attempt);
  }
}

void SubscriptionCore::seek(Attempt attempt) {
  Worker worker;
  {
    MutexLock lock(mutex_);
    worker = worker_;
    writer_.reset();
  }
  worker.find_async<WeightsWriter>(address_, kSeek)
      .on_done([weak = weak_from_this(), attempt](const Future<RRef<WeightsWriter>>& done) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        Step step;
        const std::exception_ptr error = done.error();
        if (error != nullptr) self->note(std::string(to_status(error).message()));
        {
          MutexLock lock(self->mutex_);
          self->mistake_ = nullptr;
          if (error == nullptr) {
            self->writer_ = done.value().within(kAsk);
            step = self->state_.on_found(attempt);
          } else {
            step = self->state_.on_not_found(attempt);
            if (to_status(error).code() == absl::StatusCode::kInvalidArgument) {
              self->mistake_ = error;
              for (const Waiter& each : std::exchange(self->waiters_, {})) {
                each.promise.try_set_error(error);
              }
            }
          }
        }
        self->take(step);
      });
}

void SubscriptionCore::pause(Attempt attempt) {
  std::shared_ptr<WorkerServices> services;
  {
    MutexLock lock(mutex_);
    services = WorkerAccess::services(worker_);
  }
  services->wait_until(services->clock().now() + kPause)
      .on_done([weak = weak_from_this(), attempt](const Future<void>& over) {
        const auto self = weak.lock();
        // The worker has ended: move_to() goes on.
        if (self == nullptr || over.error() != nullptr) return;
        Step step;
        {
          MutexLock lock(self->mutex_);
          step = self->state_.on_pause_over(attempt);
        }
        self->take(step);
      });
}

void SubscriptionCore::ask(Attempt attempt) {
  WeightsAsk ask;
  RRef<WeightsWriter> writer;
  {
    MutexLock lock(mutex_);
    if (!writer_) return;
    writer = *writer_;
    ask.ask = state_.ask(options_.shares_memory ? sharing_pod() : "");
    if (snapshot_ != nullptr && !source_) {
      source_ = WeightsSource{share_rref(worker_, snapshot_), snapshot_->content().bytes->place()};
    }
    ask.source = source_;
    offer_.reset();
  }
  using Offered = std::optional<WeightsOffer>;
  started<Offered>([&] {
    return writer.async<&WeightsWriter::ask>(ask);
  }).on_done([weak = weak_from_this(), attempt](const Future<Offered>& done) {
    if (const auto self = weak.lock()) self->on_offer(attempt, done);
  });
}

void SubscriptionCore::on_offer(Attempt attempt, const Future<std::optional<WeightsOffer>>& done) {
  Step step;
  Reached reached;
  if (const std::exception_ptr error = done.error(); error != nullptr) {
    note(std::string(to_status(error).message()));
    MutexLock lock(mutex_);
    step = state_.on_ask_failed(attempt);
  } else if (!done.value()) {
    MutexLock lock(mutex_);
    step = state_.on_answer(attempt, std::nullopt);
  } else if (const absl::Status fit = check_offer(*done.value()); !fit.ok()) {
    note(std::string(fit.message()));
    MutexLock lock(mutex_);
    step = state_.on_ask_failed(attempt);
  } else {
    MutexLock lock(mutex_);
    const WeightsOffer& offer = *done.value();
    step = state_.on_answer(
        attempt, PublicationTable::Answer{0, offer.version, offer.source_id, offer.is_shared});
    if (step.switched) reached = switch_locked(*step.switched, nullptr);
  }
  tell(reached);
  take(step);
}

absl::Status SubscriptionCore::check_offer(const WeightsOffer& offer) {
  absl::StatusOr<WeightsLayout> layout = WeightsLayout::make(offer.tensors, options_.max_bytes);
  if (!layout.ok()) return layout.status();
  if (offer.version.number == 0 || offer.version.digest.empty()) {
    return absl::InvalidArgumentError("weights: a version has no number, or no checksum");
  }
  MutexLock lock(mutex_);
  offer_ = offer;
  offered_ = std::chrono::steady_clock::now();
  layout_ = std::move(*layout);
  return absl::OkStatus();
}

void SubscriptionCore::share(Attempt attempt) {
  SharedPlace place;
  WeightsLayout layout;
  {
    MutexLock lock(mutex_);
    if (offer_ && offer_->source) place = offer_->source->place;
    layout = *layout_;
  }
  absl::StatusOr<std::shared_ptr<const SharedBytes>> bytes =
      SharedBytes::open(place, layout.bytes());
  if (!bytes.ok()) return on_content(attempt, bytes.status(), std::nullopt);
  std::string digest = layout.digest({(*bytes)->data(), (*bytes)->size()});
  on_content(attempt, WeightsContent{std::move(layout), std::move(*bytes), std::move(digest)},
             std::nullopt);
}

void SubscriptionCore::fetch_changes(Attempt attempt) {
  std::optional<WeightsSource> source;
  std::string base;
  bool is_possible = false;
  {
    MutexLock lock(mutex_);
    if (offer_) source = offer_->source;
    is_possible = source && snapshot_ != nullptr && snapshot_->content().layout == *layout_;
    if (snapshot_ != nullptr) base = snapshot_->content().digest;
  }
  if (!is_possible) {
    Step step;
    {
      MutexLock lock(mutex_);
      step = state_.on_fetch_failed(attempt, source ? Fault::kNoChanges : Fault::kLost);
    }
    return take(step);
  }
  started<at::Tensor>([&] {
    return source->snapshot.within(kFetch).async<&WeightsSnapshot::changes>(base);
  }).on_done([weak = weak_from_this(), attempt](const Future<at::Tensor>& done) {
    if (const auto self = weak.lock()) self->on_changes(attempt, done);
  });
}

void SubscriptionCore::on_changes(Attempt attempt, const Future<at::Tensor>& done) {
  if (const std::exception_ptr error = done.error(); error != nullptr) {
    return fail(attempt, error);
  }
  const at::Tensor& changes = done.value();
  WeightsContent base;
  Step step;
  {
    MutexLock lock(mutex_);
    const bool is_there = changes.defined() && changes.scalar_type() == at::kByte &&
                          changes.is_contiguous() && changes.numel() > 0 && snapshot_ != nullptr;
    if (is_there) {
      base = snapshot_->content();
      counts_.received_bytes += changes.nbytes();
    } else {
      step = state_.on_fetch_failed(attempt, Fault::kNoChanges);
    }
  }
  if (base.bytes == nullptr) return take(step);
  const std::string_view text(static_cast<const char*>(changes.data_ptr()), changes.nbytes());
  on_content(attempt, change_weights(base, text), WeightsChanges{base.digest, changes});
}

void SubscriptionCore::fetch_whole(Attempt attempt) {
  WeightsLayout layout;
  {
    MutexLock lock(mutex_);
    layout = *layout_;
  }
  absl::StatusOr<SharedBytes::Writer> writer = SharedBytes::Writer::make(layout.bytes());
  if (!writer.ok()) return on_content(attempt, writer.status(), std::nullopt);
  read_next(std::make_shared<Whole>(
      Whole{attempt, UnsealedWeights{std::move(layout), std::move(*writer)}}));
}

void SubscriptionCore::read_next(const std::shared_ptr<Whole>& whole) {
  const std::uint64_t size = whole->weights.layout.bytes();
  if (whole->offset == size) {
    return on_content(whole->attempt, seal_weights(std::move(whole->weights)), std::nullopt);
  }
  std::optional<WeightsSource> source;
  {
    MutexLock lock(mutex_);
    if (offer_) source = offer_->source;
  }
  if (!source) {
    return on_content(whole->attempt,
                      absl::UnavailableError("weights: no worker has them any more"), std::nullopt);
  }
  const std::uint64_t count = std::min(size - whole->offset, WeightsSnapshot::kMostRead);
  started<at::Tensor>([&] {
    return source->snapshot.within(kFetch).async<&WeightsSnapshot::read>(whole->offset, count);
  }).on_done([weak = weak_from_this(), whole, count](const Future<at::Tensor>& done) {
    if (const auto self = weak.lock()) self->on_read(whole, count, done);
  });
}

void SubscriptionCore::on_read(const std::shared_ptr<Whole>& whole, std::uint64_t count,
                               const Future<at::Tensor>& done) {
  if (const std::exception_ptr error = done.error(); error != nullptr) {
    return fail(whole->attempt, error);
  }
  const at::Tensor& piece = done.value();
  absl::Status written = absl::InvalidArgumentError("weights: a piece is not what was asked for");
  if (piece.defined() && piece.is_contiguous() && piece.nbytes() == count) {
    written = whole->weights.writer.write(whole->offset, piece.data_ptr(), piece.nbytes());
    MutexLock lock(mutex_);
    counts_.received_bytes += count;
  }
  if (!written.ok()) return on_content(whole->attempt, written, std::nullopt);
  whole->offset += count;
  read_next(whole);
}

void SubscriptionCore::on_content(Attempt attempt, absl::StatusOr<WeightsContent> content,
                                  std::optional<WeightsChanges> changes) {
  absl::StatusOr<optim::StateDict> tensors =
      content.ok() ? tensors_of(*content) : absl::StatusOr<optim::StateDict>(content.status());
  if (!tensors.ok()) {
    return fail(attempt, make_error(tensors.status()));
  }
  const std::string digest = content->digest;
  Fetched fetched{std::make_shared<WeightsSnapshot>(
                      std::move(*content), std::vector<WeightsContent>(), std::move(changes)),
                  std::move(*tensors)};
  Step step;
  Reached reached;
  {
    MutexLock lock(mutex_);
    const SubscriptionState::Do doing = state_.doing();
    const std::uint64_t rejected = state_.rejected();
    step = state_.on_fetched(attempt, digest);
    if (state_.rejected() > rejected) {
      reason_ = absl::StrFormat("weights: version %d has another checksum than the writer said",
                                state_.wanted().version.number);
    }
    if (step.switched) {
      if (doing == SubscriptionState::Do::kShare) ++counts_.mapped;
      if (doing == SubscriptionState::Do::kFetchChanges) ++counts_.changed;
      if (doing == SubscriptionState::Do::kFetchWhole) ++counts_.whole;
      reached = switch_locked(*step.switched, &fetched);
    }
  }
  tell(reached);
  take(step);
}

void SubscriptionCore::fail(Attempt attempt, const std::exception_ptr& why) {
  note(std::string(to_status(why).message()));
  Step step;
  {
    MutexLock lock(mutex_);
    step = state_.on_fetch_failed(attempt, fault_of(why));
  }
  take(step);
}

// Everything that a reader sees of a version changes here, at once.
SubscriptionCore::Reached SubscriptionCore::switch_locked(const VersionLabel& version,
                                                          Fetched* fetched) {
  const auto next = std::make_shared<optim::Weights>();
  next->version = version.number;
  next->arrived = offered_;
  if (offer_) {
    next->published = std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(
            std::chrono::nanoseconds(offer_->published_ns)));
    next->age_at_arrival = std::chrono::nanoseconds(offer_->age_ns);
  }
  if (fetched != nullptr) {
    if (offer_ && offer_->source) counts_.source = offer_->source->snapshot.owner_name();
    next->tensors = std::move(fetched->tensors);
    snapshot_ = std::move(fetched->snapshot);
    source_.reset();
  } else if (latest_ != nullptr) {
    // Under another number: they are what users have.
    next->tensors = latest_->tensors;
  }
  latest_ = next;
  Reached reached;
  const auto is_reached = [&](const Waiter& each) { return each.version <= next->version; };
  for (const Waiter& each : waiters_) {
    if (is_reached(each)) reached.push_back(each.promise);
  }
  waiters_.erase(std::remove_if(waiters_.begin(), waiters_.end(), is_reached), waiters_.end());
  // One that waits to be run tells the newest one.
  if (options_.on_version && !std::exchange(is_told_, true)) {
    events_->post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->tell_newest();
    });
  }
  return reached;
}

void SubscriptionCore::tell(const Reached& reached) {
  if (reached.empty()) return;
  const WeightsPointer newest = latest();
  for (const Promise<WeightsPointer>& each : reached) each.try_set_value(newest);
}

void SubscriptionCore::tell_newest() {
  WeightsPointer newest;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    is_told_ = false;
    newest = latest_;
  }
  options_.on_version(newest);
}

std::shared_ptr<const optim::Weights> SubscriptionCore::latest() const {
  MutexLock lock(mutex_);
  return latest_;
}

std::shared_ptr<const optim::Weights> SubscriptionCore::wait_for(
    std::uint64_t version, std::optional<std::chrono::nanoseconds> timeout) {
  Future<WeightsPointer> future;
  std::chrono::nanoseconds time{0};
  std::uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    if (latest_ != nullptr && latest_->version >= version) return latest_;
    if (mistake_ != nullptr) std::rethrow_exception(mistake_);
    const std::shared_ptr<WorkerServices> services = WorkerAccess::services(worker_);
    time = timeout.value_or(services->default_timeout());
    Promise<WeightsPointer> promise(services->executor().get());
    future = promise.future();
    number = ++last_waiter_;
    waiters_.push_back({number, version, std::move(promise)});
  }
  try {
    return time == kNoTimeout ? future.wait() : future.wait_for(time);
  } catch (const RpcError& error) {
    MutexLock lock(mutex_);
    const auto is_it = [number](const Waiter& waiter) { return waiter.number == number; };
    waiters_.erase(std::remove_if(waiters_.begin(), waiters_.end(), is_it), waiters_.end());
    if (error.code() != ErrorCode::kDeadlineExceeded) throw;
    throw RpcError(
        ErrorCode::kDeadlineExceeded,
        absl::StrFormat("version %d of '%s' has not come: the newest here is %d, and %s", version,
                        address_, latest_ == nullptr ? 0 : latest_->version, doing_locked()));
  }
}

std::string SubscriptionCore::doing_locked() const {
  const std::string text = text_of(state_.doing());
  return reason_.empty() ? text : absl::StrCat(text, " (", reason_, ")");
}

optim::SubscriptionStatus SubscriptionCore::status() const {
  MutexLock lock(mutex_);
  optim::SubscriptionStatus status = counts_;
  if (latest_ != nullptr) {
    status.version = latest_->version;
    status.age = latest_->age();
  }
  status.rejected = state_.rejected();
  status.doing = doing_locked();
  return status;
}

void SubscriptionCore::note(const std::string& why) {
  MutexLock lock(mutex_);
  reason_ = why;
}

void SubscriptionCore::close() {
  std::optional<RRef<WeightsWriter>> writer;
  std::uint64_t reader = 0;
  std::vector<Waiter> waiters;
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    writer.swap(writer_);
    reader = state_.ask("").reader;
    waiters.swap(waiters_);
    offer_.reset();
    source_.reset();
  }
  for (const Waiter& each : waiters) {
    each.promise.try_set_error(
        RpcError(ErrorCode::kCancelled, "the subscription that waited has ended"));
  }
  try {
    // Otherwise the writer learns it when this worker ends.
    if (writer) static_cast<void>(writer->async<&WeightsWriter::leave>(reader));
  } catch (const RpcError&) {
    // One of the two has ended.
  }
}

}  // namespace sinew::internal
