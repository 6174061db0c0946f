#include "sinew/tests/support/fake_device.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "ATen/EmptyTensor.h"
#include "ATen/Functions.h"
#include "ATen/native/CPUFallback.h"
#include "ATen/ops/_reshape_alias_native.h"
#include "ATen/ops/as_strided_native.h"
#include "ATen/ops/resize_native.h"
#include "ATen/ops/set_native.h"
#include "ATen/ops/view_native.h"
#include "absl/status/status.h"
#include "c10/core/DeviceGuard.h"
#include "c10/core/Event.h"
#include "c10/core/impl/FakeGuardImpl.h"
#include "sinew/tests/support/fake_streams.h"

#include <torch/library.h>
#include <torch/version.h>

namespace sinew::testing {
namespace {

using Guard = c10::impl::FakeGuardImpl<c10::kPrivateUse1>;

/// LibTorch's fake, with events, and a default stream for each device, for which newer engines ask.
struct GuardWithDefaultStreams final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kPrivateUse1;

  c10::DeviceType type() const override { return fake.type(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    return fake.exchangeDevice(device);
  }
  c10::Device getDevice() const override { return fake.getDevice(); }
  void setDevice(c10::Device device) const override { fake.setDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    fake.uncheckedSetDevice(device);
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return fake.getStream(device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return fake.exchangeStream(stream);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return fake.deviceCount(); }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    *event = FakeStreams::of_process().record(*event, stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    FakeStreams::of_process().block(event, stream);
  }
  bool queryEvent(void* event) const override { return fake.queryEvent(event); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    FakeStreams::of_process().destroy(event);
  }

  const Guard fake{};
};

std::atomic<int> live_blocks{0};
std::atomic<int> copies_to_host{0};
std::atomic<int> copies_to_device{0};
internal::Mutex streams_mutex;
std::vector<c10::Stream>& copy_streams() {
  static std::vector<c10::Stream> streams;
  return streams;
}

// ---- Memory.

class FakeAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(std::size_t size) override { return make_block(size); }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    default_copy_data(to, from, size);
  }
#else
  c10::DataPtr allocate(std::size_t size) const override { return make_block(size); }
#endif

 private:
  static c10::DataPtr make_block(std::size_t size) {
    void* memory = std::malloc(size == 0 ? 1 : size);
    ++live_blocks;
    FakeStreams::of_process().allocated(memory, size);
    return {memory, memory, &release,
            c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(Guard::getDeviceIndex()))};
  }
  static void release(void* memory) {
    FakeStreams::of_process().freed(memory);
    std::free(memory);
    --live_blocks;
  }
};

FakeAllocator& allocator() {
  static FakeAllocator allocator;
  return allocator;
}

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device device_or_current(c10::optional<c10::Device> device) {
  const auto current = static_cast<c10::DeviceIndex>(Guard::getDeviceIndex());
  const c10::Device chosen =
      device.has_value() && device->has_index() ? *device : c10::Device(c10::kPrivateUse1, current);
  TORCH_CHECK(chosen.index() < kFakeDevices, "there is no ", chosen);
  return chosen;
}

at::Tensor empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> type,
                 c10::optional<at::Layout>, c10::optional<at::Device> device, c10::optional<bool>,
                 c10::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(sizes, &allocator(), kKeys, type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                         c10::optional<at::Device> device, c10::optional<bool>) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_strided_generic(sizes, strides, &allocator(), kKeys,
                                           type.value_or(at::kFloat));
}

// ---- Kernels.

// The same memory as a tensor of the CPU.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.scalar_type()));
}

c10::Stream current_stream(const at::Tensor& tensor) { return Guard().getStream(tensor.device()); }

void note_read(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return;
  FakeStreams::of_process().on_read(tensor.data_ptr(), current_stream(tensor));
}

void note_write(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return;
  FakeStreams::of_process().on_write(tensor.data_ptr(), current_stream(tensor));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  note_read(from);
  on_cpu(to).copy_(on_cpu(from));
  if (!from.device().is_cpu() && !to.device().is_cpu()) {
    // As LibTorch orders copies between devices.
    c10::Event read(c10::kPrivateUse1);
    read.record(current_stream(from));
    read.block(current_stream(to));
  }
  note_write(to);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  // As kernels for real devices do.
  c10::optional<c10::Device> device;
  for (const c10::IValue& value : *stack) {
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) note_read(tensor);
    }
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    note_read(tensor);
    if (tensor.device().is_cpu()) continue;
    TORCH_CHECK(!device.has_value() || *device == tensor.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                *device, " and ", tensor.device());
    device = tensor.device();
  }
  at::native::cpu_fallback(op, stack);
  for (const c10::IValue& value : torch::jit::last(*stack, op.schema().returns().size())) {
    if (value.isTensor()) note_write(value.toTensor());
  }
}

// ---- What Sinew uses.

// See FakeRuntime::handle().
c10::Stream stream_of(const internal::DeviceBuffer& buffer) {
  const auto id = static_cast<c10::StreamId>(reinterpret_cast<std::uintptr_t>(buffer.stream)) - 1;
  return c10::Stream(c10::Stream::UNSAFE, fake_device(buffer.device), id);
}

class FakeRuntime final : public internal::DeviceRuntime {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  int device_count() const override { return kFakeDevices; }
  bool is_in_use(c10::Device) const override { return true; }
  c10::Stream current_stream(c10::Device device) const override {
    return Guard().getStream(device);
  }
  void* handle(c10::Stream stream) const override {
    // Any number but null.
    return reinterpret_cast<void*>(1 + stream.id());  // NOLINT
  }
  bool is_capturing(c10::Stream stream) const override { return stream.id() == kCapturingStream; }
  at::Tensor to_host(const at::Tensor& dense, c10::Stream stream) override {
    ++copies_to_host;
    FakeStreams::of_process().on_read(dense.data_ptr(), stream);
    at::Tensor host = allocate_host(dense.nbytes());
    std::memcpy(host.data_ptr(), dense.data_ptr(), dense.nbytes());
    return host;
  }
  at::Tensor allocate_host(std::size_t size_bytes) override {
    return at::empty({static_cast<std::int64_t>(size_bytes)}, at::kByte);
  }
  void to_device(const at::Tensor& host, const at::Tensor& dense, c10::Stream stream) override {
    ++copies_to_device;
    std::memcpy(dense.data_ptr(), host.data_ptr(), dense.nbytes());
    FakeStreams::of_process().on_write(dense.data_ptr(), stream);
    internal::MutexLock lock(streams_mutex);
    copy_streams().push_back(stream);
  }
};

const bool registered = [] {
  internal::register_device_runtime(std::make_shared<FakeRuntime>());
  return true;
}();

}  // namespace

c10::Device fake_device(int index) {
  return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index));
}
at::Tensor numbers(std::int64_t size, int device) {
  return at::arange(size, at::kFloat).to(fake_device(device));
}
int live_fake_blocks() { return live_blocks.load(); }
FakeCopies fake_copies() { return {copies_to_host.load(), copies_to_device.load()}; }

void set_fake_stream(int device, int stream) {
  Guard().exchangeStream(c10::Stream(c10::Stream::UNSAFE, fake_device(device), stream));
}

std::vector<c10::Stream> take_fake_copy_streams() {
  internal::MutexLock lock(streams_mutex);
  return std::exchange(copy_streams(), {});
}

// ---- Planes.

class FakePlane final : public internal::DevicePlane {
 public:
  FakePlane(std::shared_ptr<FakePlanes::State> state, internal::DevicePlaneContext context)
      : state_(std::move(state)), context_(std::move(context)) {}
  ~FakePlane() override { stop(); }

  bool is_usable(const WorkerInfo& peer) const override {
    internal::MutexLock lock(state_->mutex);
    return state_->usable && peer.incarnation != context_.self.incarnation;
  }

  std::uint64_t offer(const WorkerInfo& peer, int, std::vector<internal::DeviceBuffer> buffers,
                      OnEnd on_end) override {
    std::uint64_t ticket = 0;
    for (const internal::DeviceBuffer& buffer : buffers) {
      FakeStreams::of_process().on_read(buffer.data, stream_of(buffer));
    }
    {
      internal::MutexLock lock(state_->mutex);
      ticket = state_->next++;
      ++state_->stats.offered;
      ++state_->stats.open;
      state_->stats.tensors_of_offers.push_back(buffers.size());
      state_->offers.emplace(ticket, FakePlanes::Offer{context_.self.incarnation,
                                                       std::move(buffers), std::move(on_end)});
    }
    context_.send(peer, "offered", [] {});
    return ticket;
  }

  void withdraw(const WorkerInfo&, std::uint64_t ticket) override {
    if (auto offer = take(ticket)) {
      count(&FakePlanes::Stats::withdrawn);
      end(std::move(offer->on_end), absl::CancelledError("withdrawn"));
    }
  }

  void accept(const WorkerInfo&, std::uint64_t ticket, std::vector<internal::DeviceBuffer> buffers,
              OnEnd on_end) override {
    auto offer = take(ticket);
    FakePlanes::Fault fault = FakePlanes::Fault::kFail;
    {
      internal::MutexLock lock(state_->mutex);
      ++state_->stats.open;
      if (offer != nullptr) fault = state_->fault;
      if (fault == FakePlanes::Fault::kHang) {
        state_->hanging.emplace_back(context_.self.incarnation, std::move(on_end));
        state_->hanging.emplace_back(offer->from, std::move(offer->on_end));
        return;
      }
    }
    const absl::Status failed = absl::UnavailableError("the fake plane was told to fail");
    if (fault == FakePlanes::Fault::kNone) copy(offer->buffers, buffers);
    if (offer != nullptr) {
      const bool fails =
          fault == FakePlanes::Fault::kFail || fault == FakePlanes::Fault::kMayStillWrite;
      end(std::move(offer->on_end), fails ? failed : absl::OkStatus());
    }
    end(std::move(on_end), fault == FakePlanes::Fault::kNone ? absl::OkStatus()
                           : fault == FakePlanes::Fault::kMayStillWrite
                               ? absl::DataLossError("the fake plane may still write")
                               : failed);
  }

  void decline(const WorkerInfo&, std::uint64_t ticket) override {
    if (auto offer = take(ticket)) {
      count(&FakePlanes::Stats::declined);
      end(std::move(offer->on_end), absl::CancelledError("declined"));
    }
  }

  void on_message(const WorkerInfo&, const std::string& message) override {
    internal::MutexLock lock(state_->mutex);
    state_->messages[context_.self.incarnation.value].push_back(message);
  }
  void on_peer_lost(const WorkerInfo&) override {}
  void add_counters(std::map<std::string, std::int64_t>&) const override {}

  void stop() override {
    std::vector<OnEnd> ended;
    {
      internal::MutexLock lock(state_->mutex);
      for (auto& [owner, on_end] : std::exchange(state_->hanging, {})) {
        if (owner == context_.self.incarnation) {
          ended.push_back(std::move(on_end));
        } else {
          state_->hanging.emplace_back(owner, std::move(on_end));
        }
      }
      for (auto each = state_->offers.begin(); each != state_->offers.end();) {
        const auto next = std::next(each);
        if (each->second.from == context_.self.incarnation) {
          ended.push_back(std::move(each->second.on_end));
          state_->offers.erase(each);
        }
        each = next;
      }
    }
    for (OnEnd& on_end : ended) end(std::move(on_end), absl::CancelledError("stopped"));
  }

 private:
  std::unique_ptr<FakePlanes::Offer> take(std::uint64_t ticket) {
    internal::MutexLock lock(state_->mutex);
    const auto found = state_->offers.find(ticket);
    if (found == state_->offers.end()) return nullptr;
    auto offer = std::make_unique<FakePlanes::Offer>(std::move(found->second));
    state_->offers.erase(found);
    return offer;
  }
  void count(int FakePlanes::Stats::*counter) {
    internal::MutexLock lock(state_->mutex);
    ++(state_->stats.*counter);
  }
  void end(OnEnd on_end, const absl::Status& status) {
    std::move(on_end)(status);
    internal::MutexLock lock(state_->mutex);
    --state_->stats.open;
  }
  void copy(const std::vector<internal::DeviceBuffer>& from,
            const std::vector<internal::DeviceBuffer>& to) {
    TORCH_CHECK(from.size() == to.size(), "the receiver accepts another number of buffers");
    for (std::size_t i = 0; i < from.size(); ++i) {
      TORCH_CHECK(from[i].size_bytes == to[i].size_bytes, "the receiver accepts another size");
      std::memcpy(to[i].data, from[i].data, from[i].size_bytes);
      // Nobody is told before the device has done it.
      FakeStreams::of_process().on_written_for_all(to[i].data);
    }
    count(&FakePlanes::Stats::copied);
  }

  const std::shared_ptr<FakePlanes::State> state_;
  const internal::DevicePlaneContext context_;
};

internal::MakeDevicePlane FakePlanes::maker() {
  return [state = state_](internal::DevicePlaneContext context) {
    return std::make_unique<FakePlane>(state, std::move(context));
  };
}
void FakePlanes::set_fault(Fault fault) {
  internal::MutexLock lock(state_->mutex);
  state_->fault = fault;
}
void FakePlanes::set_usable(bool usable) {
  internal::MutexLock lock(state_->mutex);
  state_->usable = usable;
}
FakePlanes::Stats FakePlanes::stats() const {
  internal::MutexLock lock(state_->mutex);
  return state_->stats;
}

}  // namespace sinew::testing

C10_REGISTER_GUARD_IMPL(PrivateUse1, sinew::testing::GuardWithDefaultStreams);

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&sinew::testing::on_the_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &sinew::testing::empty);
  library.impl("empty_strided", &sinew::testing::empty_strided);
  library.impl("_copy_from", &sinew::testing::copy_from);
  library.impl("_copy_from_and_resize", &sinew::testing::copy_from_and_resize);
  library.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  library.impl("resize_", &at::native::resize_);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
}
