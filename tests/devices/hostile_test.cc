// What a peer may say about devices that is wrong.

#include "sinew/device.pb.h"
#include "sinew/rpc/calls/call_builder.h"
#include "sinew/rpc/calls/worker_services.h"
#include "sinew/rpc/device/layer/device_layer.h"
#include "sinew/tests/devices/device_methods.h"
#include "sinew/value.pb.h"

namespace sinew::testing {
namespace {

using internal::DeviceLayer;
using internal::MessageRoute;
using ::testing::HasSubstr;

/// The device layer of a worker, and messages that it is told about.
class HostileDevices : public ::testing::Test {
 protected:
  HostileDevices() : cluster_(options()) {
    WorkerInfo peer = cluster_.worker(1).info();
    route_ = std::make_unique<MessageRoute>(services(), peer, internal::Clock::TimePoint::max());
  }
  static ClusterOptions options() {
    ClusterOptions options;
    options.methods = devices::methods();
    options.tweak = [](int, WorkerOptions& worker) { worker.max_message_bytes = 1000; };
    return options;
  }
  internal::WorkerServices& services() const { return *WorkerAccess::services(cluster_.worker(0)); }
  DeviceLayer& layer() const { return dynamic_cast<DeviceLayer&>(services().devices()); }
  std::string receive_error(const std::string& bytes) {
    const RpcError error = error_of(
        [&] { layer().on_receive(*route_, internal::Extension::MessageKind::kCall, bytes); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  std::string receive_error(const proto::DeviceAttachment& attachment) {
    return receive_error(attachment.SerializeAsString());
  }
  static void set(proto::Device& device, std::uint32_t index) {
    device.set_type(proto::Device::PRIVATE);
    device.set_index(index);
  }
  static proto::DeviceAttachment transfer(std::uint64_t ticket, std::uint32_t tensors) {
    proto::DeviceAttachment attachment;
    proto::DeviceTransfer& one = *attachment.add_transfers();
    one.set_ticket(ticket);
    one.set_tensors(tensors);
    set(*one.mutable_to(), 1);
    return attachment;
  }
  static proto::DeviceSlot slot(std::uint32_t transfer, std::uint32_t position) {
    proto::DeviceSlot slot;
    slot.set_transfer(transfer);
    slot.set_position(position);
    return slot;
  }
  ErrorCode size_error(const proto::DeviceSlot& slot, std::size_t size_bytes) {
    return error_of([&] { layer().check_size(*route_, slot, size_bytes); }).code();
  }

  Cluster cluster_;
  std::unique_ptr<MessageRoute> route_;
};

TEST_F(HostileDevices, Attachments) {
  EXPECT_THAT(receive_error("\xff\xff"), HasSubstr("cannot be parsed"));
  proto::DeviceAttachment twice;
  for (std::uint32_t i = 0; i < 2; ++i) {
    proto::DevicePair& pair = *twice.add_map();
    set(*pair.mutable_from(), 0);
    set(*pair.mutable_to(), i);
  }
  EXPECT_THAT(receive_error(twice), HasSubstr("is no map of devices"));
  proto::DeviceAttachment index;
  set(*index.add_map()->mutable_from(), 128);
  EXPECT_THAT(receive_error(index), HasSubstr("is no map of devices"));
  proto::DeviceAttachment many;
  for (int i = 0; i < 300; ++i) many.add_map();
  EXPECT_THAT(receive_error(many), HasSubstr("too many entries"));
  EXPECT_THAT(receive_error(transfer(0, 1)), HasSubstr("no list of transfers"));
  EXPECT_THAT(receive_error(transfer(1, 0)), HasSubstr("no list of transfers"));
  EXPECT_THAT(receive_error(transfer(1, 4'000'000'000)), HasSubstr("no list of transfers"));
  proto::DeviceAttachment host = transfer(1, 1);
  host.mutable_transfers(0)->clear_to();
  EXPECT_THAT(receive_error(host), HasSubstr("no list of transfers"));
}

TEST_F(HostileDevices, Slots) {
  EXPECT_EQ(size_error(slot(0, 0), 1), ErrorCode::kInvalidArgument);
  layer().on_receive(*route_, internal::Extension::MessageKind::kCall,
                     transfer(1, 3).SerializeAsString());
  EXPECT_EQ(size_error(slot(1, 0), 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(size_error(slot(0, 3), 1), ErrorCode::kInvalidArgument);
  layer().check_size(*route_, slot(0, 0), 600);
  EXPECT_EQ(size_error(slot(0, 0), 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(size_error(slot(0, 1), 600), ErrorCode::kResourceExhausted);
  EXPECT_EQ(size_error(slot(0, 2), std::size_t{1} << 62), ErrorCode::kResourceExhausted);
  const RpcError elsewhere =
      error_of([&] { layer().receive(*route_, slot(0, 0), devices::numbers(150, 2)); });
  EXPECT_EQ(elsewhere.code(), ErrorCode::kInvalidArgument);
}

TEST_F(HostileDevices, DevicesThatThereAreNot) {
  EXPECT_EQ(error_of([&] { layer().check_device(fake_device(100)); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { layer().check_device(c10::Device("cuda:0")); }).code(),
            ErrorCode::kInvalidArgument);
}

TEST_F(HostileDevices, BytesThatWereNotOffered) {
  internal::CallBuilder call(cluster_.worker(0).peer("worker1"), "sinew.device.fetch", "");
  call.argument().natural(7);
  auto pending =
      std::make_unique<internal::TypedPendingCall<std::vector<at::Tensor>>>(call.runner());
  Future<std::vector<at::Tensor>> answer = pending->future();
  call.send(std::move(pending));
  EXPECT_EQ(error_of([&] { answer.take(); }).code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace sinew::testing
