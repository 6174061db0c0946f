#include "sinew/optim/internal/publication_core.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/thread_context.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref/names.h"

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;

// A reader asks again before its call ends.
constexpr auto kHold = 20s;
constexpr auto kTick = 5s;
// Beyond these a reader says what cannot be.
constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 62;
constexpr std::size_t kMostReaders = 65'536;
constexpr std::size_t kMostText = 256;

void check(const PublicationTable::Ask& ask) {
  if (ask.reader > PublicationTable::kWriter && ask.has.number <= kMostNumber &&
      ask.pod.size() <= kMostText && ask.has.digest.size() <= kMostText) {
    return;
  }
  throw RpcError(ErrorCode::kInvalidArgument,
                 "weights: this is no question of a reader of this version of Sinew");
}

std::shared_ptr<WorkerServices> services_of(const Worker& worker) {
  auto services = WorkerAccess::services(worker);
  if (services == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "a publication needs a worker, and this one is none");
  }
  return services;
}

}  // namespace

PublicationCore::PublicationCore(std::string name, const optim::PublicationOptions& options)
    : name_(std::move(name)),
      options_(options),
      table_(random_secret(), sharing_pod(), options.fan_out, options.above) {
  if (options.kept == 0 || options.fan_out == 0 || options.above > kMostNumber) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("publication '%s': kept (%d) and fan_out (%d) are at least 1, "
                                   "and above (%d) is at most 2^62",
                                   name_, options.kept, options.fan_out, options.above));
  }
}

void PublicationCore::move_to(const Worker& worker) {
  const std::shared_ptr<WorkerServices> services = services_of(worker);
  watch_ = worker.on_member([weak = weak_from_this()](const MemberEvent& event) {
    if (const auto self = weak.lock()) self->on_member(event);
  });
  {
    MutexLock lock(mutex_);
    worker_ = worker;
    sealing_ = std::make_shared<Strand>(services->executor()->runner());
    // What was held was another worker's.
    for (const auto& [id, reader] : std::exchange(readers_, {})) {
      PublicationTable::Answers answers;
      table_.on_left(id, services->clock().now(), answers);
    }
    if (current_) current_->source.snapshot = share_rref(worker, current_->snapshot);
    is_armed_ = false;
    if (pending_) {
      sealing_->post([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->seal_pending();
      });
    }
  }
  worker.publish(name_, std::static_pointer_cast<WeightsWriter>(shared_from_this()));
}

std::uint64_t PublicationCore::publish(const optim::StateDict& tensors) {
  absl::StatusOr<UnsealedWeights> copy = copy_weights(tensors, options_.as_bf16);
  if (!copy.ok()) throw_error(copy.status());
  MutexLock lock(mutex_);
  if (is_closed_) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   absl::StrFormat("publication '%s' has ended", name_));
  }
  const std::uint64_t number = table_.reserve();
  const bool is_posted = pending_.has_value();
  pending_.emplace(
      Pending{number, std::move(*copy), std::chrono::system_clock::now(), Clock::system().now()});
  if (!is_posted) {
    sealing_->post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->seal_pending();
    });
  }
  return number;
}

void PublicationCore::seal_pending() {
  std::optional<Pending> pending;
  {
    MutexLock lock(mutex_);
    pending.swap(pending_);
  }
  if (!pending) return;
  absl::StatusOr<WeightsContent> content = seal_weights(std::move(pending->weights));
  std::shared_ptr<WorkerServices> services;
  {
    MutexLock lock(mutex_);
    services = WorkerAccess::services(worker_);
  }
  if (!content.ok()) {
    services->log(absl::StrFormat("version %d of publication '%s' is left out: %s", pending->number,
                                  name_, std::string(content.status().message())));
    return;
  }
  set_current(*pending, std::move(*content), services->clock().now());
}

void PublicationCore::set_current(const Pending& pending, WeightsContent content,
                                  Clock::TimePoint now) {
  Deliveries deliveries;
  std::optional<Current> former;
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    if (current_) bases_.push_back(current_->snapshot->content());
    while (bases_.size() >= options_.kept) bases_.pop_front();
    const std::string digest = content.digest;
    const SharedPlace place = content.bytes->place();
    auto snapshot = std::make_shared<WeightsSnapshot>(
        std::move(content), std::vector<WeightsContent>(bases_.begin(), bases_.end()));
    RRef<WeightsSnapshot> shared;
    try {
      shared = share_rref(worker_, snapshot);
    } catch (const RpcError&) {
      // The worker has ended, and no reader asks: move_to() shares it.
    }
    former = std::exchange(
        current_, Current{std::move(snapshot), {shared, place}, pending.published, pending.since});
    PublicationTable::Answers answers;
    table_.on_published(pending.number, digest, now, answers);
    deliver_locked(answers, deliveries);
  }
  complete(std::move(deliveries));
}

Future<std::optional<WeightsOffer>> PublicationCore::ask(const WeightsAsk& ask) {
  check(ask.ask);
  const WorkerInfo caller = CallContext::current().caller();
  Deliveries deliveries;
  Future<std::optional<WeightsOffer>> future;
  {
    MutexLock lock(mutex_);
    if (is_closed_) {
      throw Rejected(ErrorCode::kUnavailable, absl::StrFormat("publication '%s' has ended", name_));
    }
    if (readers_.size() >= kMostReaders && readers_.count(ask.ask.reader) == 0) {
      throw Rejected(ErrorCode::kResourceExhausted,
                     absl::StrFormat("publication '%s' has %d readers, which is the most", name_,
                                     kMostReaders));
    }
    const std::shared_ptr<WorkerServices> services = WorkerAccess::services(worker_);
    Reader& reader = readers_[ask.ask.reader];
    // Others know its number, as that of a source.
    if (reader.worker.incarnation.value != 0 &&
        reader.worker.incarnation.value != caller.incarnation.value) {
      throw Rejected(ErrorCode::kPermissionDenied,
                     absl::StrFormat("publication '%s' has such a reader at worker '%s'", name_,
                                     reader.worker.name));
    }
    reader.worker = caller;
    reader.source = ask.source;
    reader.since = services->clock().now();
    if (reader.waiting) deliveries.emplace_back(*reader.waiting, std::nullopt);
    reader.waiting.emplace(services->executor().get());
    future = reader.waiting->future();
    PublicationTable::Answers answers;
    table_.on_ask(ask.ask, reader.since, answers);
    deliver_locked(answers, deliveries);
  }
  complete(std::move(deliveries));
  arm();
  return future;
}

void PublicationCore::leave(std::uint64_t reader) {
  const WorkerInfo caller = CallContext::current().caller();
  Deliveries deliveries;
  {
    MutexLock lock(mutex_);
    const auto found = readers_.find(reader);
    if (found == readers_.end() || found->second.worker.incarnation != caller.incarnation) return;
    if (found->second.waiting) deliveries.emplace_back(*found->second.waiting, std::nullopt);
    readers_.erase(found);
    PublicationTable::Answers answers;
    table_.on_left(reader, WorkerAccess::services(worker_)->clock().now(), answers);
    deliver_locked(answers, deliveries);
  }
  complete(std::move(deliveries));
}

void PublicationCore::on_member(const MemberEvent& event) {
  if (event.kind != MemberEvent::Kind::kLost && event.kind != MemberEvent::Kind::kLeft) return;
  Deliveries deliveries;
  std::vector<Reader> lost;
  {
    MutexLock lock(mutex_);
    PublicationTable::Answers answers;
    for (auto it = readers_.begin(); it != readers_.end();) {
      if (it->second.worker.incarnation != event.worker.incarnation) {
        ++it;
        continue;
      }
      const std::uint64_t id = it->first;
      lost.push_back(std::move(it->second));
      it = readers_.erase(it);
      table_.on_left(id, WorkerAccess::services(worker_)->clock().now(), answers);
    }
    deliver_locked(answers, deliveries);
  }
  complete(std::move(deliveries));
}

// One timer, while anybody waits.
void PublicationCore::arm() {
  std::shared_ptr<WorkerServices> services;
  {
    MutexLock lock(mutex_);
    const bool is_awaited = std::any_of(readers_.begin(), readers_.end(), [](const auto& entry) {
      return entry.second.waiting.has_value();
    });
    if (!is_awaited || is_closed_ || std::exchange(is_armed_, true)) return;
    services = WorkerAccess::services(worker_);
  }
  // Of no call: one that was answered long ago would be kept until then.
  const ThreadContext::Scope outside(nullptr);
  services->wait_until(services->clock().now() + kTick)
      .on_done([weak = weak_from_this()](const Future<void>& over) {
        const auto self = weak.lock();
        // The worker has ended.
        if (self == nullptr || over.error() != nullptr) return;
        self->on_tick();
      });
}

void PublicationCore::on_tick() {
  Deliveries deliveries;
  {
    MutexLock lock(mutex_);
    is_armed_ = false;
    const Clock::TimePoint now = WorkerAccess::services(worker_)->clock().now();
    PublicationTable::Answers answers;
    table_.on_time(now, answers);
    deliver_locked(answers, deliveries);
    for (auto& [id, reader] : readers_) {
      if (!reader.waiting || now < reader.since + kHold) continue;
      table_.on_overdue(id);
      deliveries.emplace_back(*reader.waiting, std::nullopt);
      reader.waiting.reset();
    }
  }
  complete(std::move(deliveries));
  arm();
}

void PublicationCore::deliver_locked(const PublicationTable::Answers& answers,
                                     Deliveries& deliveries) {
  for (const PublicationTable::Answer& answer : answers) {
    const auto found = readers_.find(answer.reader);
    if (found == readers_.end() || !found->second.waiting) continue;
    deliveries.emplace_back(*found->second.waiting, offer_locked(answer));
    found->second.waiting.reset();
  }
}

WeightsOffer PublicationCore::offer_locked(const PublicationTable::Answer& answer) const {
  WeightsOffer offer;
  offer.version = answer.version;
  offer.source_id = answer.source;
  offer.is_shared = answer.is_shared;
  offer.published_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(current_->published.time_since_epoch())
          .count();
  offer.age_ns = (Clock::system().now() - current_->since).count();
  offer.tensors = current_->snapshot->content().layout.tensors();
  if (answer.source == PublicationTable::kWriter) {
    offer.source = current_->source;
  } else if (answer.source != PublicationTable::kNobody) {
    // One that names no source of its own is none, and fails: the reader asks again.
    const auto source = readers_.find(answer.source);
    if (source != readers_.end()) offer.source = source->second.source;
  }
  return offer;
}

void PublicationCore::complete(Deliveries deliveries) {
  for (auto& [promise, offer] : deliveries) promise.try_set_value(std::move(offer));
}

void PublicationCore::close() {
  watch_.end();
  std::map<std::uint64_t, Reader> readers;
  std::optional<Current> current;
  std::deque<WeightsContent> bases;
  Worker worker;
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    readers.swap(readers_);
    current.swap(current_);
    bases.swap(bases_);
    worker = worker_;
  }
  try {
    if (worker.is_running()) worker.unpublish(name_);
  } catch (const RpcError&) {
    // It has ended meanwhile, and its names with it.
  }
  for (auto& [id, reader] : readers) {
    if (!reader.waiting) continue;
    reader.waiting->try_set_error(
        RpcError(ErrorCode::kUnavailable, absl::StrFormat("publication '%s' has ended", name_)));
  }
}

optim::PublicationStatus PublicationCore::status() const {
  MutexLock lock(mutex_);
  optim::PublicationStatus status;
  status.version = table_.current().number;
  if (current_) status.age = Clock::system().now() - current_->since;
  for (const auto& [id, reader] : table_.readers()) {
    const auto found = readers_.find(id);
    if (found == readers_.end()) continue;
    status.readers.push_back({found->second.worker.name, reader.has.number});
  }
  return status;
}

}  // namespace sinew::internal
