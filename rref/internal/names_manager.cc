#include "sinew/rref/internal/names_manager.h"
#include "sinew/rpc/calls/layers.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/names.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/calls/state_report.h"
#include "sinew/rpc/calls/type_text.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/rref/internal/layer.h"
#include "sinew/rref/internal/name_search.h"

namespace sinew::internal {
namespace {

std::string published_text() {
  proto::NameState state;
  state.set_is_published(true);
  return state.SerializeAsString();
}

}  // namespace

std::shared_ptr<Extension> make_names(WorkerServices& services) {
  return NamesManager::make(services);
}

std::shared_ptr<NamesManager> NamesManager::make(WorkerServices& services) {
  std::shared_ptr<NamesManager> manager(new NamesManager(services));
  services.add_control_method(
      std::string(kWaitMethod), [weak = std::weak_ptr<NamesManager>(manager)](
                                    const WorkerInfo& from, const std::string& body) {
        const auto self = weak.lock();
        return self == nullptr ? make_failed_future<std::string>(
                                     make_error(absl::UnavailableError("the worker ends")))
                               : self->on_query(from, body);
      });
  return manager;
}

std::shared_ptr<NamesManager> NamesManager::of(const WorkerServices& services) {
  return require_layer<NamesManager>(services, "names");
}

// ---- What is published.

void NamesManager::publish(const std::string& name, std::shared_ptr<ReferenceHandle> handle,
                           const std::type_info& type, WhenTaken when_taken) {
  if (const absl::Status valid = validate_object_name(name); !valid.ok()) throw_error(valid);
  if (const absl::Status evicted = services_.evicted(); !evicted.ok()) throw_error(evicted);
  if (handle->owner() != services_.self()) {
    throw RpcError(
        ErrorCode::kInvalidArgument,
        absl::StrFormat("'%s' cannot be published by worker '%s', since %s is a value of worker "
                        "'%s': named objects live at their worker, so publish it there",
                        name, services_.self().name, handle->to_string(), handle->owner().name));
  }
  absl::StatusOr<NameTable::Changed> changed;
  std::vector<Waiter> satisfied;
  {
    MutexLock lock(mutex_);
    if (closed_) throw_error(services_.ended("nothing can be published there any more"));
    changed = table_.publish(name, {std::move(handle), type_text(type)}, when_taken);
    if (changed.ok()) satisfied = take_waiters_locked(changed->satisfied);
  }
  if (!changed.ok()) throw_error(changed.status());
  for (const Waiter& waiter : satisfied) waiter.answer.try_set_value(published_text());
}

bool NamesManager::unpublish(std::string_view name) {
  // It goes when the lock has been released.
  std::shared_ptr<ReferenceHandle> dropped;
  MutexLock lock(mutex_);
  dropped = table_.unpublish(name);
  return dropped != nullptr;
}

absl::StatusOr<std::shared_ptr<ReferenceHandle>> NamesManager::find(const std::string& name) const {
  if (absl::Status valid = validate_object_name(name); !valid.ok()) return valid;
  MutexLock lock(mutex_);
  absl::StatusOr<NameTable::Object> found = table_.find(name);
  if (!found.ok()) return found.status();
  return std::move(found->handle);
}

// ---- Those who seek it.

Future<std::string> NamesManager::on_query(const WorkerInfo& from, const std::string& body) {
  const auto refuse = [](const absl::Status& status) {
    return make_failed_future<std::string>(make_error(status));
  };
  proto::NameQuery query;
  if (!query.ParseFromString(body)) {
    return refuse(absl::InvalidArgumentError("a NameQuery that cannot be parsed"));
  }
  const std::string& name = query.name();
  if (const absl::Status valid = validate_object_name(name); !valid.ok()) return refuse(valid);
  const auto most = std::chrono::duration_cast<std::chrono::microseconds>(NameSearch::kMostHold);
  const std::chrono::microseconds hold(
      std::min(query.hold_us(), static_cast<std::uint64_t>(most.count())));
  const Answer answer(&services_.control_executor());
  MutexLock lock(mutex_);
  if (closed_) return refuse(ends());
  if (table_.contains(name)) return make_ready_future(published_text());
  const absl::StatusOr<NameTable::WaiterId> waiter = table_.wait(name, from.incarnation);
  if (!waiter.ok()) return refuse(waiter.status());
  const Timers::TimerId timer = services_.timers().run_at(
      services_.clock().now() + hold, [weak = weak_from_this(), waiter = *waiter] {
        if (const auto self = weak.lock()) self->on_overdue(waiter);
      });
  waiters_.emplace(*waiter, Waiter{answer, name, timer});
  return answer.future();
}

// Not for long: who asks may have died, and may ask again.
void NamesManager::on_overdue(NameTable::WaiterId waiter) {
  std::vector<Waiter> overdue;
  proto::NameState state;
  {
    MutexLock lock(mutex_);
    if (!table_.end_wait(waiter)) return;
    overdue = take_waiters_locked({waiter});
    state.set_published(table_.size());
    for (std::string& each : table_.nearest(overdue.front().name)) {
      state.add_nearest(std::move(each));
    }
  }
  overdue.front().answer.try_set_value(state.SerializeAsString());
}

std::vector<NamesManager::Waiter> NamesManager::take_waiters_locked(
    const std::vector<NameTable::WaiterId>& ended) {
  std::vector<Waiter> taken;
  for (const NameTable::WaiterId each : ended) {
    const auto found = waiters_.find(each);
    services_.timers().cancel(found->second.timer);
    taken.push_back(std::move(found->second));
    waiters_.erase(found);
  }
  return taken;
}

void NamesManager::serve_get(const std::shared_ptr<Invocation>& call) {
  using Values = std::tuple<std::string, std::string>;
  auto values = read_arguments<Values>(*call, std::index_sequence<0, 1>());
  call->when_ready([call, values = std::move(values)] {
    const std::shared_ptr<NamesManager> self = of(call->services());
    absl::StatusOr<std::shared_ptr<ReferenceHandle>> found;
    {
      MutexLock lock(self->mutex_);
      found = self->table_.find(std::get<0>(values), std::get<1>(values));
    }
    if (!found.ok()) throw_error(found.status());
    ValueWriter writer = call->result();
    write_reference(writer, *found, typeid(void));
    call->finish();
  });
}

std::vector<Extension::Method> NamesManager::methods() const {
  return {{kGetMethod, &NamesManager::serve_get}};
}

// ---- The end.

void NamesManager::on_worker_fenced(const WorkerInfo& worker) {
  std::vector<Waiter> ended;
  {
    MutexLock lock(mutex_);
    ended = take_waiters_locked(table_.end_waits_of(worker.incarnation));
  }
  fail(ended, absl::UnavailableError(absl::StrFormat("worker '%s' is lost", worker.name)));
}

absl::Status NamesManager::ends() const {
  return absl::UnavailableError(absl::StrFormat("worker '%s' ends", services_.self().name));
}

void NamesManager::fail(const std::vector<Waiter>& waiters, const absl::Status& reason) {
  for (const Waiter& waiter : waiters) waiter.answer.try_set_error(make_error(reason));
}

void NamesManager::close() {
  NameTable::Remains remains;
  std::vector<Waiter> ended;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    remains = table_.clear();
    ended = take_waiters_locked(remains.waiters);
  }
  // They seek the next incarnation.
  fail(ended, ends());
}

Future<std::vector<std::string>> NamesManager::drain_async(DrainScope, Clock::TimePoint) {
  close();
  return make_ready_future(std::vector<std::string>());
}

void NamesManager::stop() { close(); }

void NamesManager::add_counters(Counters& counters) const {
  MutexLock lock(mutex_);
  counters["names.published"] = static_cast<std::int64_t>(table_.size());
  counters["names.waiters"] = static_cast<std::int64_t>(table_.waiters());
}

void NamesManager::report(StateReport& report) const {
  if (!report.wants("names")) return;
  MutexLock lock(mutex_);
  for (const auto& [name, object] : table_.objects()) {
    proto::PublishedName* const published = report.add(*report.state().mutable_names(), "names");
    if (published == nullptr) continue;
    published->set_name(name);
    published->set_type(object.type);
  }
}

}  // namespace sinew::internal
