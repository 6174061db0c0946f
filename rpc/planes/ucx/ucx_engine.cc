#include "sinew/rpc/planes/ucx/ucx_engine.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/process_room.h"

namespace sinew::internal {
namespace {

constexpr unsigned kMessageId = 1;
// UCX reads addresses without knowing where they end: a broken one finds zeros there.
constexpr std::size_t kAddressPadding = std::size_t{4} << 10;
// For data to arrive and endpoints to close when the engine ends.
constexpr auto kClosingTime = std::chrono::seconds(2);

}  // namespace

absl::Status ucx_error(absl::string_view what, ucs_status_t status) {
  return absl::UnavailableError(absl::StrCat("UCX: ", what, ": ", ucs_status_string(status)));
}

// ---- beginning and end

absl::StatusOr<std::shared_ptr<UcxEngine>> UcxEngine::start(const UcxOptions& options) {
  const std::shared_ptr<UcxEngine> engine(new UcxEngine(options));
  if (absl::Status status = engine->init(); !status.ok()) return status;
  engine->thread_ = start_thread([engine] {
    pthread_setname_np(pthread_self(), "sinew-ucx");
    engine->run();
  });
  return engine;
}

absl::Status UcxEngine::init() {
  wake_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return absl::InternalError(std::strerror(errno));
  if (absl::Status status = init_context(); !status.ok()) return status;
  return init_worker();
}

absl::Status UcxEngine::init_context() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return ucx_error("its settings cannot be read", status);
  if (options_.loopback_only && std::getenv("UCX_NET_DEVICES") == nullptr) {
    status = ucp_config_modify(config, "NET_DEVICES", "lo");
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  // Not UCP_FEATURE_RMA: with that, UCX itself serves reads and writes of any address.
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK) status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  return status == UCS_OK ? absl::OkStatus() : ucx_error("it does not start", status);
}

absl::Status UcxEngine::init_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // This thread makes it, its own one uses it.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return ucx_error("no worker", status);
  status = ucp_worker_get_efd(worker_, &worker_events_);
  if (status != UCS_OK) return ucx_error("a worker without events", status);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &UcxEngine::on_active_message;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return ucx_error("no active messages", status);
  ucp_address_t* address = nullptr;
  std::size_t size_bytes = 0;
  status = ucp_worker_get_address(worker_, &address, &size_bytes);
  if (status != UCS_OK) return ucx_error("a worker without an address", status);
  worker_address_.assign(reinterpret_cast<const char*>(address), size_bytes);
  ucp_worker_release_address(worker_, address);
  return absl::OkStatus();
}

UcxEngine::~UcxEngine() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

void UcxEngine::stop() {
  post([this] {
    MutexLock lock(mutex_);
    stopping_ = true;
  });
  // The thread itself holds the engine until it has ended.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

// ---- the thread

void UcxEngine::post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
    if (tasks_.size() > 1) return;
  }
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the thread wakes up anyway.
  (void)!::write(wake_.number(), &one, sizeof one);
}

bool UcxEngine::run_tasks() {
  std::vector<Task> tasks;
  {
    MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) std::move(task)();
  MutexLock lock(mutex_);
  return !stopping_;
}

UcxEngine::Timer UcxEngine::run_after(std::chrono::nanoseconds delay, Task task) {
  const Timer timer(std::chrono::steady_clock::now() + delay, ++last_timer_);
  timers_.emplace(timer, std::move(task));
  return timer;
}

void UcxEngine::run_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= std::chrono::steady_clock::now()) {
    Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    std::move(task)();
  }
}

void UcxEngine::run() {
  while (run_tasks()) {
    run_timers();
    if (ucp_worker_progress(worker_) != 0) continue;
    // Busy: something came in since.
    if (ucp_worker_arm(worker_) == UCS_OK) sleep();
  }
  finish();
}

void UcxEngine::sleep() {
  int timeout_ms = -1;
  if (!timers_.empty()) {
    const auto left = timers_.begin()->first.first - std::chrono::steady_clock::now();
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, 60'000));
  }
  std::array<pollfd, 2> watched = {{{worker_events_, POLLIN, 0}, {wake_.number(), POLLIN, 0}}};
  if (::poll(watched.data(), watched.size(), timeout_ms) > 0 && watched[1].revents != 0) {
    std::uint64_t count = 0;
    (void)!::read(wake_.number(), &count, sizeof count);
  }
}

void UcxEngine::finish() {
  const auto end = std::chrono::steady_clock::now() + kClosingTime;
  const auto progress_until = [&](auto done) {
    while (!done() && std::chrono::steady_clock::now() < end) {
      if (ucp_worker_progress(worker_) == 0) std::this_thread::yield();
    }
  };
  progress_until([this] { return operations_.empty(); });
  std::vector<UcxEndpoint*> open;
  for (const auto& known : endpoints_) open.push_back(known.first);
  for (UcxEndpoint* const endpoint : open) disconnect(endpoint, State::kWhole);
  progress_until([this] { return endpoints_.empty(); });
  receivers_.clear();
  timers_.clear();
  // What is left under way ends with the worker, and may let go of its memory then.
  ucp_worker_destroy(std::exchange(worker_, nullptr));
  endpoints_.clear();
  operations_.clear();
}

// ---- messages

void UcxEngine::enter(const UcxToken& token, std::weak_ptr<UcxReceiver> receiver) {
  receivers_[token] = std::move(receiver);
}

void UcxEngine::leave(const UcxToken& token) { receivers_.erase(token); }

ucs_status_t UcxEngine::on_active_message(void* engine, const void* header, std::size_t header_size,
                                          void* data, std::size_t size_bytes,
                                          const ucp_am_recv_param_t* param) {
  UcxMessage message;
  // From anybody who found the port, so far.
  if (header_size != sizeof message.header) return UCS_OK;
  std::memcpy(&message.header, header, sizeof message.header);
  message.data = data;
  message.size_bytes = size_bytes;
  message.by_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const auto& receivers = static_cast<UcxEngine*>(engine)->receivers_;
  const auto found = receivers.find(message.header.token);
  if (found == receivers.end()) return UCS_OK;
  if (const std::shared_ptr<UcxReceiver> receiver = found->second.lock()) {
    receiver->on_message(message);
  }
  return UCS_OK;
}

absl::StatusOr<UcxEndpoint*> UcxEngine::connect(const std::string& worker_address) {
  const auto known = by_address_.find(worker_address);
  if (known != by_address_.end()) return known->second;
  auto endpoint = std::make_unique<UcxEndpoint>();
  endpoint->engine = this;
  endpoint->address = worker_address;
  const std::string padded = worker_address + std::string(kAddressPadding, '\0');
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(padded.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxEngine::on_error;
  params.err_handler.arg = endpoint.get();
  const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint->handle);
  if (status != UCS_OK) return ucx_error("no way to the peer", status);
  UcxEndpoint* const key = endpoint.get();
  endpoints_[key] = std::move(endpoint);
  by_address_[worker_address] = key;
  return key;
}

void UcxEngine::on_error(void* arg, ucp_ep_h, ucs_status_t status) {
  auto* const endpoint = static_cast<UcxEndpoint*>(arg);
  if (endpoint->closing) return;
  // Later: within this call the endpoint must stay.
  endpoint->engine->post([endpoint, status] {
    endpoint->engine->on_broken(endpoint, ucx_error("the way to the peer broke", status));
  });
}

void UcxEngine::on_broken(UcxEndpoint* endpoint, const absl::Status& status) {
  by_address_.erase(endpoint->address);
  std::vector<std::shared_ptr<UcxReceiver>> concerned;
  for (const auto& known : receivers_) {
    if (auto receiver = known.second.lock()) concerned.push_back(std::move(receiver));
  }
  for (const auto& receiver : concerned) receiver->on_endpoint_error(endpoint, status);
  disconnect(endpoint, State::kBroken);
}

void UcxEngine::disconnect(UcxEndpoint* endpoint, State state) {
  if (std::exchange(endpoint->closing, true)) return;
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = state == State::kBroken ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  param.cb.send = &UcxEngine::on_closed;
  param.user_data = endpoint;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint->handle, &param);
  // Done at once, or failed: either way nothing more is heard of it.
  if (!UCS_PTR_IS_PTR(request)) endpoints_.erase(endpoint);
}

void UcxEngine::on_closed(void* request, ucs_status_t, void* arg) {
  auto* const endpoint = static_cast<UcxEndpoint*>(arg);
  endpoint->engine->endpoints_.erase(endpoint);
  ucp_request_free(request);
}

void UcxEngine::send(UcxEndpoint* endpoint, const UcxHeader& header, absl::string_view data,
                     bool by_rendezvous, OnEnd on_end) {
  Operation* const operation = begin(std::move(on_end));
  operation->header = header;
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = by_rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = &UcxEngine::on_sent;
  param.user_data = operation;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint->handle, kMessageId, &operation->header, sizeof operation->header,
                      data.data(), data.size(), &param);
  end(request, operation);
}

void UcxEngine::receive(const UcxMessage& message, char* to, OnEnd on_end) {
  Operation* const operation = begin(std::move(on_end));
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &UcxEngine::on_received;
  param.user_data = operation;
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_, message.data, to, message.size_bytes, &param);
  end(request, operation);
}

UcxEngine::Operation* UcxEngine::begin(OnEnd on_end) {
  auto operation = std::make_unique<Operation>();
  operation->engine = this;
  operation->on_end = std::move(on_end);
  Operation* const key = operation.get();
  operations_[key] = std::move(operation);
  return key;
}

// What ended at once has no callback of UCX.
void UcxEngine::end(ucs_status_ptr_t request, Operation* operation) {
  if (!UCS_PTR_IS_PTR(request)) on_sent(nullptr, UCS_PTR_STATUS(request), operation);
}

void UcxEngine::on_sent(void* request, ucs_status_t status, void* arg) {
  auto* const key = static_cast<Operation*>(arg);
  const auto found = key->engine->operations_.find(key);
  const std::unique_ptr<Operation> operation = std::move(found->second);
  key->engine->operations_.erase(found);
  if (request != nullptr) ucp_request_free(request);
  std::move(operation->on_end)(status == UCS_OK ? absl::OkStatus()
                                                : ucx_error("a transfer", status));
}

void UcxEngine::on_received(void* request, ucs_status_t status, std::size_t, void* operation) {
  on_sent(request, status, operation);
}

}  // namespace sinew::internal
