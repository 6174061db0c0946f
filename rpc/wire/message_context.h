#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "c10/core/Device.h"

namespace at {
class Tensor;
}

namespace sinew::proto {
class DeviceSlot;
}

namespace sinew::internal {

/// Sees the tensors of one message that require a gradient. Defined by the layer that follows
/// gradients across workers. Not thread-safe.
class TensorHook {
 public:
  virtual ~TensorHook() = default;
  /// Writing: the number of the edge that joins `tensor` with its copy at the receiver.
  virtual std::optional<std::uint32_t> on_write(const at::Tensor& tensor) = 0;
  /// Reading: `tensor` came with the number of an edge. It is a leaf that requires a gradient, and
  /// may be made part of a graph.
  /// `origin` is the sender's device that it came from.
  virtual void on_read(const at::Tensor& tensor, std::uint32_t edge, c10::Device origin) = 0;
};

/// Lists within lists, in what is written and, unless DecodeLimits say otherwise, in what is read.
/// Each one is two messages of the wire format within each other, and parsers of Protocol Buffers
/// stop at 100.
constexpr std::size_t kMaxNesting = 40;

/// Everything in a message but the payloads of tensors: what a parser of Protocol Buffers makes of
/// it takes many times as much memory.
constexpr std::size_t kMaxEnvelopeBytes = std::size_t{64} << 20;

// Defined by rpc/: the worker and peer that a message goes between. The wire layer only hands it
// through to the codecs of layers above (references).
class MessageRoute;

/// Knows on which devices the tensors of a worker's messages arrive, and another road than payloads
/// for those that go from device to device. Defined by rpc/. Thread-safe; all throw RpcError.
class DeviceRoad {
 public:
  virtual ~DeviceRoad() = default;
  /// Writing: where a tensor that is on `device` arrives. kInvalidArgument when the worker was not
  /// told.
  virtual c10::Device target(MessageRoute& route, c10::Device device) = 0;
  /// Writing: takes `dense`, which has no gaps, along to `target` and fills in where it is found.
  /// False: its elements must travel as a payload. Neither is host memory.
  virtual bool take(MessageRoute& route, const at::Tensor& dense, c10::Device target,
                    proto::DeviceSlot& slot) = 0;
  /// Reading: kInvalidArgument unless tensors of messages may be put on `device`.
  virtual void check_device(c10::Device device) = 0;
  /// Reading: before memory is allocated for `size_bytes` that come from `slot`. kInvalidArgument
  /// when there is no such slot, kResourceExhausted when the message has too much of it.
  virtual void check_size(MessageRoute& route, const proto::DeviceSlot& slot,
                          std::size_t size_bytes) = 0;
  /// Reading: the elements of `dense`, which is new, come from `slot`, whose size was checked. What
  /// reads the message waits for them. kInvalidArgument when it is on another device.
  virtual void receive(MessageRoute& route, const proto::DeviceSlot& slot,
                       const at::Tensor& dense) = 0;
};

/// Collects what a message has in addition to its envelope, while it is written. Not thread-safe;
/// lives as long as the writing of one message.
class EncodeContext {
 public:
  explicit EncodeContext(MessageRoute* route = nullptr) : route_(route) {}

  /// Adds a payload and returns its number. The cord may alias memory that its owner keeps alive.
  std::uint32_t add_payload(absl::Cord payload) {
    payloads_.push_back(std::move(payload));
    return static_cast<std::uint32_t>(payloads_.size() - 1);
  }
  std::vector<absl::Cord>& payloads() { return payloads_; }
  /// Null when a value is written outside of a call.
  MessageRoute* route() const { return route_; }
  /// What is being written, for texts: "a call of app::f to worker 'b'". Empty: unknown.
  std::string describe() const { return describe_ == nullptr ? std::string() : describe_(); }
  void set_describe(std::function<std::string()> describe) { describe_ = std::move(describe); }
  /// Null when gradients are not followed. The hook outlives this.
  TensorHook* tensor_hook() const { return tensor_hook_; }
  void set_tensor_hook(TensorHook* hook) { tensor_hook_ = hook; }
  /// A tensor that requires a gradient was written while gradients were not followed.
  bool has_unfollowed_gradient() const { return has_unfollowed_gradient_; }
  void note_unfollowed_gradient() { has_unfollowed_gradient_ = true; }
  /// Null when only tensors in host memory can be written. Set only with a route.
  DeviceRoad* device_road() const { return device_road_.get(); }
  void set_device_road(std::shared_ptr<DeviceRoad> road) { device_road_ = std::move(road); }

 private:
  MessageRoute* const route_;
  std::function<std::string()> describe_;
  TensorHook* tensor_hook_ = nullptr;
  bool has_unfollowed_gradient_ = false;
  std::shared_ptr<DeviceRoad> device_road_;
  std::vector<absl::Cord> payloads_;
};

/// Bounds that are checked before anything is allocated for a received message.
struct DecodeLimits {
  /// Values of all kinds in one message, nested ones included.
  std::size_t max_values = std::size_t{16} << 20;
  std::size_t max_nesting = kMaxNesting;
  std::size_t max_tensors = 65536;
  /// LibTorch's operators stop at 64.
  std::size_t max_tensor_dims = 64;
};

/// What a received message has in addition to its envelope, while it is read, and the counts that
/// its limits are checked against. Not thread-safe.
class DecodeContext {
 public:
  explicit DecodeContext(std::vector<absl::Cord> payloads, MessageRoute* route = nullptr,
                         DecodeLimits limits = {})
      : limits_(limits),
        route_(route),
        payloads_(std::move(payloads)),
        payload_taken_(payloads_.size()) {}

  const DecodeLimits& limits() const { return limits_; }
  /// Null when there is no such payload, or it was taken: each belongs to one tensor.
  const absl::Cord* payload(std::uint32_t number) const {
    return number < payloads_.size() && !payload_taken_[number] ? &payloads_[number] : nullptr;
  }
  std::size_t payload_count() const { return payloads_.size(); }
  /// `number` is one that payload() finds.
  absl::Cord take_payload(std::uint32_t number) {
    payload_taken_[number] = true;
    return std::move(payloads_[number]);
  }
  MessageRoute* route() const { return route_; }
  /// As in EncodeContext.
  TensorHook* tensor_hook() const { return tensor_hook_; }
  void set_tensor_hook(TensorHook* hook) { tensor_hook_ = hook; }
  DeviceRoad* device_road() const { return device_road_.get(); }
  void set_device_road(std::shared_ptr<DeviceRoad> road) { device_road_ = std::move(road); }
  std::size_t values_seen = 0;
  std::size_t tensors_seen = 0;

 private:
  const DecodeLimits limits_;
  MessageRoute* const route_;
  TensorHook* tensor_hook_ = nullptr;
  std::shared_ptr<DeviceRoad> device_road_;
  std::vector<absl::Cord> payloads_;
  std::vector<bool> payload_taken_;
};

}  // namespace sinew::internal
