// What the plane of a worker carries: offers, arrivals, and the other road for what it drops.

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/calls/invocation.h"
#include "sinew/rpc/calls/pending_call.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/device/device_runtime.h"
#include "sinew/rpc/device/layer/device_layer.h"
#include "sinew/rpc/device/layer/device_part.h"

namespace sinew::internal {
namespace {

constexpr std::string_view kBytesMethod = "sinew.device.fetch";
// For the receiver of a reply to ask for what the plane has not brought.
constexpr auto kKeepTime = std::chrono::seconds(60);

// `owner` keeps the tensors, for a device that does not come to an end with them.
std::vector<DeviceBuffer> buffers_of(const std::vector<at::Tensor>& tensors, c10::Stream stream,
                                     const std::shared_ptr<const void>& owner) {
  void* const handle = find_device_runtime(stream.device_type())->handle(stream);
  std::vector<DeviceBuffer> buffers;
  buffers.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    buffers.push_back({tensor.data_ptr(), tensor.nbytes(), tensor.device().index(), handle, owner});
  }
  return buffers;
}

void serve_fetch(const std::shared_ptr<Invocation>& call) {
  call->check_argument_count(1);
  const auto kept = call->argument(0).natural();
  call->when_ready([call, kept] {
    // This method is the layer's own.
    auto& layer = static_cast<DeviceLayer&>(*call->services().extension(DeviceLayer::kLayer));
    const std::vector<at::Tensor> tensors = layer.staged(call->caller(), kept);
    {
      ValueWriter writer = call->result();
      ListWriter list = writer.list(tensors.size());
      for (const at::Tensor& tensor : tensors) list.next().tensor_to(tensor, c10::kCPU);
    }
    call->finish();
  });
}

}  // namespace

// ---- The plane.

void DeviceLayer::start_plane() {
  if (make_plane_ == nullptr) return;
  const std::weak_ptr<WorkerServices> weak = services_.weak_services();
  DevicePlaneContext context;
  context.self = services_.self();
  context.send = [weak](const WorkerInfo& to, std::string message, std::function<void()> on_end) {
    const auto services = weak.lock();
    if (services == nullptr) return on_end();
    services->send_note(to, kLayer, std::move(message),
                        [on_end = std::move(on_end)](CarrierEnd) { on_end(); });
  };
  context.log = [weak](const std::string& text) {
    if (auto services = weak.lock()) services->log(text);
  };
  context.peer_has_plane = [weak](const WorkerInfo& peer) {
    const auto services = weak.lock();
    if (services == nullptr) return false;
    const absl::StatusOr<Member> member = services->directory().find(peer);
    return member.ok() && member->has_device_plane;
  };
  plane_ = make_plane_(std::move(context));
}

DevicePlane* DeviceLayer::plane() const {
  MutexLock lock(mutex_);
  return stopped_ ? nullptr : plane_.get();
}

void DeviceLayer::on_note(const WorkerInfo& from, std::string body) {
  if (DevicePlane* plane = this->plane()) plane->on_message(from, body);
}

void DeviceLayer::on_worker_fenced(const WorkerInfo& worker) {
  if (DevicePlane* plane = this->plane()) plane->on_peer_lost(worker);
  // Destroyed without the lock.
  std::vector<std::shared_ptr<const std::vector<at::Tensor>>> dropped;
  MutexLock lock(mutex_);
  for (auto each = kept_.begin(); each != kept_.end();) {
    const auto next = std::next(each);
    if (each->second.peer == worker && each->second.ended) {
      dropped.push_back(std::move(each->second.tensors));
      kept_.erase(each);
    }
    each = next;
  }
}

std::vector<Extension::Method> DeviceLayer::methods() const {
  return {{kBytesMethod, &serve_fetch}};
}

void DeviceLayer::stop() {
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
  }
  if (plane_ != nullptr) plane_->stop();
}

void DeviceLayer::add_counters(Counters& counters) const {
  if (plane_ != nullptr) plane_->add_counters(counters);
  MutexLock lock(mutex_);
  counters["device.open_offers"] = open_offers_;
  counters["device.kept"] = static_cast<std::int64_t>(kept_.size());
  counters["device.arriving"] = arriving_;
  counters["device.transfers"] = transfers_;
  counters["device.fetches"] = fetches_;
}

bool DeviceLayer::is_drained_locked(DrainScope scope) const {
  // When the whole job ends no worker leaves before the others have what they wait for.
  return arriving_ == 0 && (scope == DrainScope::kWholeJob || open_offers_ == 0);
}

Future<std::vector<std::string>> DeviceLayer::drain_async(DrainScope scope,
                                                          Clock::TimePoint deadline) {
  Promise<std::vector<std::string>> promise(services_.executor().get());
  {
    MutexLock lock(mutex_);
    drains_.push_back({promise, scope});
  }
  if (deadline != Clock::TimePoint::max()) {
    services_.timers().run_at(deadline, [promise] { promise.try_set_value({}); });
  }
  finish_drains();
  return promise.future();
}

void DeviceLayer::finish_drains() {
  std::vector<Promise<std::vector<std::string>>> done;
  {
    MutexLock lock(mutex_);
    for (auto each = drains_.begin(); each != drains_.end();) {
      if (!is_drained_locked(each->scope)) {
        ++each;
        continue;
      }
      done.push_back(each->promise);
      each = drains_.erase(each);
    }
  }
  for (const auto& promise : done) promise.try_set_value({});
}

// ---- The sender.

DeviceLayer::Offered DeviceLayer::offer(MessageRoute& route, Group group) {
  const bool of_reply = route.call() != nullptr;
  const auto tensors = std::make_shared<const std::vector<at::Tensor>>(std::move(group.tensors));
  Offered offered;
  {
    MutexLock lock(mutex_);
    offered.kept = next_kept_++;
    kept_.emplace(offered.kept, Kept{route.peer(), 0, tensors, group.stream, of_reply, false});
    ++open_offers_;
    ++transfers_;
  }
  // The plane may read the tensors even when they are not needed otherwise any more.
  offered.ticket = plane_->offer(
      route.peer(), group.to.index(), buffers_of(*tensors, group.stream, tensors),
      [weak = weak_from_this(), kept = offered.kept, tensors](const absl::Status& status) {
        if (auto self = weak.lock()) self->offer_ended(kept, status);
      });
  {
    MutexLock lock(mutex_);
    const auto found = kept_.find(offered.kept);
    if (found != kept_.end()) found->second.ticket = offered.ticket;
  }
  route.when_dealt_with([weak = weak_from_this(), kept = offered.kept](CarrierEnd how) {
    if (auto self = weak.lock()) self->message_ended(kept, how);
  });
  return offered;
}

void DeviceLayer::offer_ended(std::uint64_t kept, const absl::Status& status) {
  bool keeps = false;
  {
    MutexLock lock(mutex_);
    --open_offers_;
    const auto found = kept_.find(kept);
    if (found != kept_.end()) {
      found->second.ended = true;
      keeps = !status.ok() && found->second.of_reply;
      // A call's are dropped when it is answered.
      if (status.ok()) kept_.erase(found);
    }
  }
  if (keeps && !services_.is_running()) return forget(kept);
  if (keeps) {
    services_.timers().run_at(services_.clock().now() + kKeepTime, [weak = weak_from_this(), kept] {
      if (auto self = weak.lock()) self->forget(kept);
    });
  }
  finish_drains();
}

void DeviceLayer::message_ended(std::uint64_t kept, CarrierEnd how) {
  WorkerInfo peer;
  std::uint64_t ticket = 0;
  {
    MutexLock lock(mutex_);
    const auto found = kept_.find(kept);
    if (found == kept_.end()) return;
    // The receiver of a reply reads it after it has acknowledged it.
    if (found->second.of_reply && how == CarrierEnd::kAnswered) return;
    peer = found->second.peer;
    ticket = found->second.ended ? 0 : found->second.ticket;
  }
  forget(kept);
  if (DevicePlane* plane = this->plane(); plane != nullptr && ticket != 0) {
    plane->withdraw(peer, ticket);
  }
}

void DeviceLayer::forget(std::uint64_t kept) {
  // Destroyed without the lock.
  std::shared_ptr<const std::vector<at::Tensor>> tensors;
  MutexLock lock(mutex_);
  const auto found = kept_.find(kept);
  if (found == kept_.end()) return;
  tensors = std::move(found->second.tensors);
  kept_.erase(found);
}

std::vector<at::Tensor> DeviceLayer::staged(const WorkerInfo& peer, std::uint64_t kept) {
  std::optional<Kept> found;
  {
    MutexLock lock(mutex_);
    const auto at = kept_.find(kept);
    if (at != kept_.end() && at->second.peer == peer) found = at->second;
  }
  if (!found.has_value()) {
    throw RpcError(ErrorCode::kNotFound,
                   absl::StrFormat("worker '%s' does not have the tensors any more", self_name_));
  }
  if (DevicePlane* plane = this->plane(); plane != nullptr && !found->ended && found->ticket != 0) {
    plane->withdraw(peer, found->ticket);
  }
  const auto runtime = find_device_runtime(found->stream.device_type());
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : *found->tensors) {
    tensors.push_back(runtime->to_host(tensor, found->stream));
  }
  if (found->of_reply) forget(kept);
  return tensors;
}

// ---- The receiver.

void DeviceLayer::Part::accept_transfers(MessageRoute& route) {
  if (incoming.empty()) return;
  const std::shared_ptr<DeviceLayer> owner = layer.lock();
  if (owner == nullptr) {
    route.wait_for(
        make_failed_future<void>(make_error(absl::CancelledError("the worker was shut down"))));
    return;
  }
  for (Incoming& each : std::exchange(incoming, {})) owner->begin_arrival(route, std::move(each));
}

void DeviceLayer::begin_arrival(MessageRoute& route, Incoming incoming) {
  const auto is_read = [](const at::Tensor& tensor) { return tensor.defined(); };
  const std::vector<at::Tensor>& tensors = incoming.tensors;
  const bool any = std::any_of(tensors.begin(), tensors.end(), is_read);
  const bool all = std::all_of(tensors.begin(), tensors.end(), is_read);
  DevicePlane* plane = this->plane();
  if (plane != nullptr && !all) plane->decline(route.peer(), incoming.ticket);
  if (!any) return;
  const auto runtime = find_device_runtime(incoming.to.type());
  const auto arrival = std::make_shared<Arrival>(
      Arrival{route.peer(), incoming.kept, tensors, runtime->current_stream(incoming.to),
              route.deadline(), Promise<void>(services_.executor().get()), 0});
  route.wait_for(arrival->promise.future());
  {
    MutexLock lock(mutex_);
    ++arriving_;
  }
  if (arrival->deadline != Clock::TimePoint::max()) watch_deadline(arrival);
  if (plane == nullptr || !all) {
    return fetch(arrival, absl::UnavailableError(all ? "the worker has no plane for them"
                                                     : "not all of them are used"));
  }
  plane->accept(route.peer(), incoming.ticket, buffers_of(tensors, arrival->stream, arrival),
                [weak = weak_from_this(), arrival](const absl::Status& status) {
                  if (auto self = weak.lock()) self->plane_ended(arrival, status);
                });
}

// The plane has deadlines of its own, which may be later.
void DeviceLayer::watch_deadline(const std::shared_ptr<Arrival>& arrival) {
  arrival->timer = services_.timers().run_at(
      arrival->deadline, [weak = weak_from_this(), weak_arrival = std::weak_ptr<Arrival>(arrival)] {
        const auto self = weak.lock();
        const auto late = weak_arrival.lock();
        if (self == nullptr || late == nullptr) return;
        self->finish_arrival(late, make_error(absl::DeadlineExceededError(
                                                  "tensors that come from device to device did not "
                                                  "arrive within the time of the call"),
                                              late->peer.name));
      });
}

void DeviceLayer::plane_ended(const std::shared_ptr<Arrival>& arrival, const absl::Status& status) {
  if (status.ok()) return end_arrival(arrival, nullptr);
  if (absl::IsDataLoss(status)) {
    // What came by another road would be written over.
    return end_arrival(arrival, make_error(status, arrival->peer.name));
  }
  services_.executor()->post(
      [worker = services_.weak_services(), weak = weak_from_this(), arrival, status] {
        const auto services = worker.lock();
        const auto self = weak.lock();
        if (services != nullptr && self != nullptr) self->fetch(arrival, status);
      });
}

void DeviceLayer::fetch(const std::shared_ptr<Arrival>& arrival, const absl::Status& why) {
  const auto fail = [this, arrival, why](const std::exception_ptr& error) {
    ErrorInfo info = describe(error);
    info.message = absl::StrFormat(
        "tensors of worker '%s' came neither from device to device (%s) nor through host memory: "
        "%s",
        arrival->peer.name, why.message(), info.message);
    end_arrival(arrival, make_error(std::move(info)));
  };
  {
    MutexLock lock(mutex_);
    ++fetches_;
  }
  try {
    // It belongs to no call that is being served, and to no context.
    const ThreadContext::Scope outside(nullptr);
    absl::StatusOr<std::shared_ptr<CallLink>> link = services_.link(arrival->peer);
    if (!link.ok()) throw_error(link.status());
    CallOptions options;
    if (arrival->deadline != Clock::TimePoint::max()) {
      options.timeout = std::max<std::chrono::nanoseconds>(
          arrival->deadline - services_.clock().now(), std::chrono::microseconds(1));
    }
    const Peer peer = PeerAccess::make(services_.shared_services(), *std::move(link)).with(options);
    CallBuilder call(peer, kBytesMethod, "");
    call.argument().natural(arrival->kept);
    auto pending = std::make_unique<TypedPendingCall<std::vector<at::Tensor>>>(call.runner());
    Future<std::vector<at::Tensor>> answer = pending->future();
    call.send(std::move(pending));
    answer.on_done(
        [self = shared_from_this(), arrival, fail](const Future<std::vector<at::Tensor>>& done) {
          try {
            fill(*arrival, done.value());
            self->end_arrival(arrival, nullptr);
          } catch (...) {
            fail(std::current_exception());
          }
        });
  } catch (...) {
    fail(std::current_exception());
  }
}

void DeviceLayer::fill(const Arrival& arrival, const std::vector<at::Tensor>& bytes) {
  bool fits = bytes.size() == arrival.tensors.size();
  for (std::size_t i = 0; fits && i < bytes.size(); ++i) {
    fits = !arrival.tensors[i].defined() ||
           (bytes[i].defined() && bytes[i].device().is_cpu() && !bytes[i].is_sparse() &&
            bytes[i].nbytes() == arrival.tensors[i].nbytes());
  }
  if (!fits) {
    throw RpcError(ErrorCode::kInvalidArgument, "what came has another size than was announced");
  }
  const auto runtime = find_device_runtime(arrival.stream.device_type());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const at::Tensor& tensor = arrival.tensors[i];
    if (!tensor.defined()) continue;
    const at::Tensor host = runtime->allocate_host(tensor.nbytes());
    host.copy_(bytes_of(bytes[i].contiguous()));
    runtime->to_device(host, tensor, arrival.stream);
  }
}

void DeviceLayer::end_arrival(const std::shared_ptr<Arrival>& arrival, std::exception_ptr error) {
  if (arrival->timer != 0) services_.timers().cancel(arrival->timer);
  finish_arrival(arrival, std::move(error));
}

void DeviceLayer::finish_arrival(const std::shared_ptr<Arrival>& arrival,
                                 std::exception_ptr error) {
  const bool first = error == nullptr ? arrival->promise.try_set_value()
                                      : arrival->promise.try_set_error(std::move(error));
  if (!first) return;
  {
    MutexLock lock(mutex_);
    --arriving_;
  }
  finish_drains();
}

}  // namespace sinew::internal
