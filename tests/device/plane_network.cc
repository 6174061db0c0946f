#include "plane_network.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sinew/testing/eventually.h"

namespace sinew::testing {

using internal::DeviceBuffer;
using internal::MutexLock;

void Outcome::set(absl::Status status) {
  MutexLock lock(mutex_);
  EXPECT_FALSE(status_.has_value()) << "a transfer has ended twice";
  status_ = std::move(status);
}

void expect_moved(const TestTransfer& transfer) {
  EXPECT_EQ(transfer.sent->wait(), absl::OkStatus());
  EXPECT_EQ(transfer.received->wait(), absl::OkStatus());
  EXPECT_TRUE(transfer.is_moved());
}

bool Outcome::is_set() const {
  MutexLock lock(mutex_);
  return status_.has_value();
}

absl::Status Outcome::wait() const {
  if (!eventually([this] { return is_set(); })) return absl::UnknownError("it never ended");
  MutexLock lock(mutex_);
  return *status_;
}

PlaneNetwork::PlaneNetwork(NetworkOptions options)
    : options_(std::move(options)),
      gpus_(std::make_unique<FakeGpus>(options_.devices, options_.kernels_at_once)),
      random_(options_.seed) {
  for (int i = 0; i < options_.workers; ++i) {
    infos_.push_back(WorkerInfo{absl::StrCat("w", i), i, Incarnation{100 + std::uint64_t(i)}});
  }
  for (int i = 0; i < options_.workers; ++i) {
    const bool is_last = i + 1 == options_.workers;
    internal::NcclPlaneOptions plane = options_.plane;
    plane.self = infos_[i];
    plane.nccl = gpus_->nccl(infos_[i].name, is_last ? options_.last_version : options_.version);
    plane.device = gpus_->device(infos_[i].name);
    plane.send = [this, i](const WorkerInfo& to, std::string bytes, std::function<void()> on_end) {
      send(i, to, std::move(bytes), std::move(on_end));
    };
    plane.log = [this](const std::string& text) {
      MutexLock lock(mutex_);
      logs_.push_back(text);
    };
    for (int device = 0; device < options_.devices; ++device) {
      streams_[{i, device}] = plane.device->create_stream(device).value();
    }
    planes_.push_back(internal::make_nccl_plane(std::move(plane)));
  }
  courier_ = std::thread([this] { deliver(); });
}

PlaneNetwork::~PlaneNetwork() {
  for (const auto& plane : planes_) plane->stop();
  {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  courier_.join();
  for (const auto& plane : planes_) {
    const internal::NcclCounters counters = plane->counters();
    EXPECT_EQ(counters.transfers, 0);
    EXPECT_EQ(counters.communicators, 0);
    EXPECT_EQ(counters.aborts_under_way, 0);
    if (!leftovers_) {
      EXPECT_EQ(counters.threads_left_behind, 0);
    }
  }
  EXPECT_EQ(gpus_->violations(), std::vector<std::string>());
  const FakeGpus::Live live = gpus_->live();
  if (!leftovers_) {
    EXPECT_EQ(live.communicators, 0);
    EXPECT_EQ(live.streams, static_cast<int>(streams_.size()));
    EXPECT_EQ(live.events, 0);
  }
  EXPECT_LE(gpus_->most_kernels(), options_.plane.max_active_transfers);
}

std::vector<std::string> PlaneNetwork::logs() const {
  MutexLock lock(mutex_);
  return logs_;
}

// ---- The channel.

int PlaneNetwork::most_on_the_way() const {
  MutexLock lock(mutex_);
  return most_on_the_way_;
}

void PlaneNetwork::send(int from, const WorkerInfo& to, std::string bytes,
                        std::function<void()> on_end) {
  const auto found = std::find(infos_.begin(), infos_.end(), to);
  if (found == infos_.end()) return;
  const int receiver = static_cast<int>(found - infos_.begin());
  MutexLock lock(mutex_);
  if (cut_.count(from) != 0 || cut_.count(receiver) != 0) return;
  messages_.push_back(Message{from, receiver, std::move(bytes), std::move(on_end)});
  most_on_the_way_ = std::max(most_on_the_way_, ++on_the_way_[{from, receiver}]);
  changed_.notify_all();
}

std::optional<PlaneNetwork::Message> PlaneNetwork::take_locked() {
  if (held_ || messages_.empty()) return std::nullopt;
  // In order from one worker to another, and in any order else.
  const Message& any = messages_[random_() % messages_.size()];
  const auto next = std::find_if(messages_.begin(), messages_.end(), [&any](const Message& each) {
    return each.from == any.from && each.to == any.to;
  });
  Message message = std::move(*next);
  messages_.erase(next);
  if (cut_.count(message.from) != 0 || cut_.count(message.to) != 0) return std::nullopt;
  return message;
}

void PlaneNetwork::deliver() {
  MutexLock lock(mutex_);
  while (!closed_) {
    const std::optional<Message> message = take_locked();
    if (!message.has_value()) {
      changed_.notify_all();
      // A message that was dropped just now is no reason to sleep.
      if (held_ || messages_.empty()) changed_.wait(mutex_);
      continue;
    }
    delivering_ = true;
    lock.unlock();
    planes_[message->to]->on_message(infos_[message->from], message->bytes);
    {
      MutexLock counted(mutex_);
      --on_the_way_[{message->from, message->to}];
    }
    message->on_end();
    lock.lock();
    delivering_ = false;
    changed_.notify_all();
  }
}

void PlaneNetwork::hold() {
  MutexLock lock(mutex_);
  held_ = true;
}

void PlaneNetwork::flow() {
  MutexLock lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void PlaneNetwork::cut(int worker) {
  MutexLock lock(mutex_);
  cut_.insert(worker);
}

void PlaneNetwork::drain() {
  MutexLock lock(mutex_);
  while (!messages_.empty() || delivering_) changed_.wait(mutex_);
}

// ---- The road.

std::shared_ptr<TestTransfer> PlaneNetwork::make(const std::vector<std::size_t>& sizes) {
  MutexLock lock(mutex_);
  auto transfer = std::make_shared<TestTransfer>();
  for (std::size_t size : sizes) {
    std::vector<std::uint8_t> bytes(size);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random_());
    transfer->from.push_back(std::move(bytes));
    transfer->to.emplace_back(size);
  }
  return transfer;
}

namespace {

std::vector<DeviceBuffer> buffers_of(std::vector<std::vector<std::uint8_t>>& memory, int device,
                                     void* stream, const std::shared_ptr<int>& owner) {
  std::vector<DeviceBuffer> buffers;
  for (auto& bytes : memory) {
    buffers.push_back(DeviceBuffer{bytes.data(), bytes.size(), device, stream, owner});
  }
  return buffers;
}

internal::DevicePlane::OnEnd report_to(std::shared_ptr<Outcome> outcome,
                                       std::shared_ptr<TestTransfer> memory) {
  return [outcome = std::move(outcome), memory = std::move(memory)](absl::Status status) {
    outcome->set(std::move(status));
  };
}

}  // namespace

void PlaneNetwork::offer(int from, int to, const std::shared_ptr<TestTransfer>& transfer,
                         int from_device, int to_device) {
  transfer->ticket = planes_[from]->offer(
      infos_[to], to_device,
      buffers_of(transfer->from, from_device, stream(from, from_device), transfer->sender_owner),
      report_to(transfer->sent, transfer));
  EXPECT_NE(transfer->ticket, 0u);
}

void PlaneNetwork::accept(int from, int to, const std::shared_ptr<TestTransfer>& transfer,
                          int to_device) {
  planes_[to]->accept(
      infos_[from], transfer->ticket,
      buffers_of(transfer->to, to_device, stream(to, to_device), transfer->receiver_owner),
      report_to(transfer->received, transfer));
}

std::shared_ptr<TestTransfer> PlaneNetwork::begin(int from, int to) {
  auto transfer = make({1000, 1});
  offer(from, to, transfer);
  accept(from, to, transfer);
  return transfer;
}

std::shared_ptr<TestTransfer> PlaneNetwork::run(int from, int to,
                                                const std::vector<std::size_t>& sizes) {
  auto transfer = make(sizes);
  offer(from, to, transfer);
  accept(from, to, transfer);
  (void)transfer->sent->wait();
  (void)transfer->received->wait();
  return transfer;
}

}  // namespace sinew::testing
