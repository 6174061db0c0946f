#include "sinew/rref/internal/name_finder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "sinew/names.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/type_text.h"
#include "sinew/rpc/calls/wait_deadline.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rref/internal/name_search.h"
#include "sinew/rref/internal/name_table.h"
#include "sinew/rref/internal/names_manager.h"

namespace sinew::internal {
namespace {

using Handle = std::shared_ptr<ReferenceHandle>;

/// There is no link with a worker that is off the list of members, though it may not be known to be
/// lost yet.
absl::Status off_the_list(const absl::Status& status) {
  return absl::UnavailableError(status.message());
}

/// The reference that a worker gives for a name.
class GivenReference final : public PendingCall {
 public:
  GivenReference(const std::type_info& type, Executor* executor)
      : type_(type), promise_(executor) {}
  Future<Handle> future() const { return promise_.future(); }

  void on_reply(ReceivedReply reply) override {
    const auto handle = std::make_shared<Handle>();
    ReceivedReply::read_soon(
        std::make_shared<ReceivedReply>(std::move(reply)),
        [handle, &type = type_](ReceivedReply& received) {
          received.throw_if_error();
          try {
            *handle = read_reference(received.value(), type);
          } catch (...) {
            received.throw_unreadable(std::current_exception());
          }
        },
        [handle, promise = promise_](std::exception_ptr error) {
          error == nullptr ? promise.try_set_value(std::move(*handle))
                           : promise.try_set_error(std::move(error));
        });
  }
  void on_error(std::exception_ptr error) override { promise_.try_set_error(std::move(error)); }

 private:
  const std::type_info& type_;
  const Promise<Handle> promise_;
};

/// Takes the steps of one search. They come one after the other, each when the one before has
/// ended, so there is no lock. Does not keep its worker.
class NameFinder final : public std::enable_shared_from_this<NameFinder> {
 public:
  NameFinder(WorkerServices& services, NameSearch search, std::string object,
             const std::type_info& type, Clock::TimePoint deadline)
      : services_(services.weak_services()),
        search_(std::move(search)),
        object_(std::move(object)),
        type_(type),
        deadline_(deadline),
        promise_(services.executor().get()) {}

  Future<Handle> start() {
    take(search_.begin());
    return promise_.future();
  }

 private:
  using Fate = NameSearch::Fate;
  using Step = NameSearch::Step;

  void take(const Step& step);
  void seek(WorkerServices& services, const Step& step);
  void ask(WorkerServices& services, const Step& step);
  void fetch(const std::shared_ptr<WorkerServices>& services, const Step& step);
  absl::Status note(std::exception_ptr error);
  Fate fate_of(const WorkerInfo& worker) const;
  Step on_ask_failed(const WorkerInfo& asked, std::exception_ptr error);
  Step on_state(const std::string& answer);
  static Clock::TimePoint now() { return Clock::system().now(); }
  std::chrono::nanoseconds left() const;

  const std::weak_ptr<WorkerServices> services_;
  NameSearch search_;
  const std::string object_;
  const std::type_info& type_;
  const Clock::TimePoint deadline_;
  const Promise<Handle> promise_;
  // What the last step failed with.
  std::exception_ptr error_;
  Handle found_;
};

void NameFinder::take(const Step& step) {
  const std::shared_ptr<WorkerServices> services = services_.lock();
  if (services == nullptr) {
    promise_.try_set_error(RpcError(ErrorCode::kCancelled, "the worker that sought it is gone"));
    return;
  }
  switch (step.kind) {
    case Step::Kind::kSeek:
      return seek(*services, step);
    case Step::Kind::kAsk:
      return ask(*services, step);
    case Step::Kind::kFetch:
      return fetch(services, step);
    case Step::Kind::kSucceed:
      promise_.try_set_value(std::move(found_));
      return;
    case Step::Kind::kFail:
      promise_.try_set_error(make_error(about_peer(step.error, step.worker.name)));
      return;
    case Step::Kind::kFailLikewise:
      promise_.try_set_error(error_);
      return;
  }
}

void NameFinder::seek(WorkerServices& services, const Step& step) {
  const bool pauses = step.hold != NameSearch::Duration::max();
  const Clock::TimePoint until = pauses ? std::min(deadline_, now() + step.hold) : deadline_;
  services.wait_for_member(step.worker.name, step.worker.incarnation, until)
      .on_done([self = shared_from_this()](const Future<WorkerInfo>& member) {
        self->take(member.error() == nullptr
                       ? self->search_.on_member(member.value(), now())
                       : self->search_.on_seek_failed(self->note(member.error()), now()));
      });
}

void NameFinder::ask(WorkerServices& services, const Step& step) {
  proto::NameQuery query;
  query.set_name(object_);
  query.set_hold_us(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(step.hold).count()));
  services.control_call(step.worker, kWaitMethod, query.SerializeAsString(), left())
      .on_done([self = shared_from_this(), asked = step.worker](const Future<std::string>& answer) {
        self->take(answer.error() == nullptr ? self->on_state(answer.value())
                                             : self->on_ask_failed(asked, answer.error()));
      });
}

NameFinder::Step NameFinder::on_ask_failed(const WorkerInfo& asked, std::exception_ptr error) {
  const absl::Status status = note(std::move(error));
  return absl::IsNotFound(status) ? search_.on_ask_failed(off_the_list(status), Fate::kLost, now())
                                  : search_.on_ask_failed(status, fate_of(asked), now());
}

NameFinder::Step NameFinder::on_state(const std::string& answer) {
  proto::NameState state;
  if (!state.ParseFromString(answer)) {
    error_ = make_error(absl::InternalError("a NameState that cannot be parsed"));
    return search_.on_ask_failed(to_status(error_), Fate::kMayLive, now());
  }
  if (state.is_published()) return search_.on_published();
  std::vector<std::string> nearest;
  for (const std::string& name : state.nearest()) {
    if (nearest.size() < NameTable::kMostNearest) nearest.push_back(printable(name, 128));
  }
  return search_.on_absent(std::move(nearest), state.published(), now());
}

void NameFinder::fetch(const std::shared_ptr<WorkerServices>& services, const Step& step) {
  try {
    absl::StatusOr<std::shared_ptr<CallLink>> link = services->link(step.worker);
    if (!link.ok()) {
      error_ = make_error(link.status());
      return take(search_.on_fetch_failed(off_the_list(link.status()), Fate::kLost, now()));
    }
    CallOptions options;
    options.timeout = left();
    const Peer peer = PeerAccess::make(services, *std::move(link)).with(options);
    CallBuilder call(peer, kGetMethod, "");
    for (const std::string& argument : {object_, type_text(type_)}) {
      ValueWriter writer = call.argument();
      Codec<std::string>::encode(writer, argument);
    }
    auto pending = std::make_unique<GivenReference>(type_, services->executor().get());
    pending->future().on_done(
        [self = shared_from_this(), asked = step.worker](const Future<Handle>& given) {
          if (given.error() != nullptr) {
            const absl::Status status = self->note(given.error());
            return self->take(self->search_.on_fetch_failed(status, self->fate_of(asked), now()));
          }
          self->found_ = given.value();
          self->take(self->search_.on_fetched());
        });
    call.send(std::move(pending));
  } catch (...) {
    const absl::Status status = note(std::current_exception());
    take(search_.on_fetch_failed(status, fate_of(step.worker), now()));
  }
}

absl::Status NameFinder::note(std::exception_ptr error) {
  error_ = std::move(error);
  return to_status(error_);
}

NameSearch::Fate NameFinder::fate_of(const WorkerInfo& worker) const {
  const std::shared_ptr<WorkerServices> services = services_.lock();
  return services == nullptr || services->is_lost(worker) ? Fate::kLost : Fate::kMayLive;
}

std::chrono::nanoseconds NameFinder::left() const {
  if (deadline_ == Clock::TimePoint::max()) return kNoTimeout;
  return std::max<std::chrono::nanoseconds>(deadline_ - now(), std::chrono::microseconds(1));
}

const std::shared_ptr<WorkerServices>& services_of(
    const std::shared_ptr<WorkerServices>& services) {
  if (services == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   "this Worker is empty: start one with sinew::init_rpc()");
  }
  services->process().require();
  return services;
}

}  // namespace

void publish_value(const Worker& worker, std::string_view name, Handle handle,
                   const std::type_info& type, WhenTaken when_taken) {
  const auto services = services_of(WorkerAccess::services(worker));
  if (handle == nullptr) throw_empty_reference();
  NamesManager::of(*services)->publish(std::string(name), std::move(handle), type, when_taken);
}

Future<Handle> find_value(const Worker& worker, std::string_view address,
                          const std::type_info& type,
                          std::optional<std::chrono::nanoseconds> timeout) {
  const auto services = services_of(WorkerAccess::services(worker));
  const std::size_t slash = address.rfind('/');
  if (slash == std::string_view::npos) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("'%s' names no object of a worker: write 'worker/object'",
                                   printable(address, 256)));
  }
  const std::string member(address.substr(0, slash));
  std::string object(address.substr(slash + 1));
  for (const absl::Status& valid : {validate_worker_name(member), validate_object_name(object)}) {
    if (!valid.ok()) throw_error(valid);
  }
  // Without the layers of init_rpc() no reference can be had.
  NamesManager::of(*services);
  const Clock::TimePoint deadline = wait_deadline(*services, timeout);
  NameSearch search(member, object, services->clock().now(), deadline);
  return std::make_shared<NameFinder>(*services, std::move(search), std::move(object), type,
                                      deadline)
      ->start();
}

}  // namespace sinew::internal

namespace sinew {

bool Worker::unpublish(std::string_view name) const {
  return internal::NamesManager::of(*internal::services_of(WorkerAccess::services(*this)))
      ->unpublish(name);
}

}  // namespace sinew
