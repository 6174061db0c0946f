// Where tensors arrive: maps, their reverse, what they refuse. Names in comments are those of the
// conformance list.

#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rpc/wire/codec_struct.h"
#include "sinew/tests/devices/device_methods.h"

namespace sinew::testing {
namespace {

using devices::fake_map;
using devices::numbers;

std::string fake(int index) { return fake_device(index).str(); }

class DeviceMaps : public ClusterTest {
 protected:
  void TearDown() override {
    finish();
    EXPECT_EQ(live_fake_blocks(), 0);
  }
  // worker0 has this map for worker1.
  void start_mapped(DeviceMap map) {
    start(2, devices::methods(), [map = std::move(map)](int rank, WorkerOptions& options) {
      if (rank == 0) options.device_maps["worker1"] = map;
    });
  }
  Peer callee() const { return worker(0).peer("worker1"); }
};

// CDM-05, CDM-07: straight and crossed.
TEST_P(DeviceMaps, ArgumentsGoByTheMapAndResultsByItsReverse) {
  start_mapped(fake_map({{0, 1}, {1, 0}, {2, 2}}));
  for (const auto& [here, there] : {std::pair(0, 1), std::pair(1, 0), std::pair(2, 2)}) {
    const at::Tensor tensor = numbers(7, here);
    EXPECT_EQ(callee().call<&devices::place>(tensor), fake(there));
    const at::Tensor doubled = callee().call<&devices::twice>(tensor);
    EXPECT_EQ(doubled.device(), fake_device(here));
    EXPECT_TRUE(at::equal(doubled.cpu(), at::arange(7, at::kFloat) * 2));
  }
}

// CDM-07: to oneself.
TEST_P(DeviceMaps, CallsToOneselfFollowTheMapToo) {
  start(1, devices::methods(), [](int, WorkerOptions& options) {
    options.device_maps["worker0"] = fake_map({{0, 1}, {1, 2}, {2, 0}});
  });
  const Peer self = worker(0).peer("worker0");
  EXPECT_EQ(self.call<&devices::place>(numbers(3, 1)), fake(2));
  EXPECT_EQ(self.call<&devices::twice>(numbers(3, 1)).device(), fake_device(1));
}

// CDM-08: several devices in a call, results through a cycle.
TEST_P(DeviceMaps, SeveralDevicesInOneCall) {
  start_mapped(fake_map({{0, 1}, {1, 2}, {2, 0}}));
  const std::vector<at::Tensor> tensors = {numbers(2, 0), numbers(3, 1), at::ones({4}),
                                           numbers(5, 2)};
  EXPECT_EQ(callee().call<&devices::places>(tensors),
            (std::vector<std::string>{fake(1), fake(2), "cpu", fake(0)}));
  const auto doubled = callee().call<&devices::each_twice>(tensors);
  ASSERT_EQ(doubled.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(doubled[i].device(), tensors[i].device());
  const auto made = callee().call<&devices::one_on_each>(3, 4);
  ASSERT_EQ(made.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor& tensor = made[static_cast<std::size_t>(i)];
    EXPECT_EQ(tensor.device(), fake_device((i + 2) % 3));
    EXPECT_EQ(tensor[0].item<float>(), static_cast<float>(i));
  }
}

// CDM-06.
TEST_P(DeviceMaps, BetweenHostAndDevices) {
  start_mapped(DeviceMap().map(c10::kCPU, fake_device(1)).map(fake_device(2), c10::kCPU));
  const at::Tensor host = at::arange(5, at::kFloat);
  EXPECT_EQ(callee().call<&devices::place>(host), fake(1));
  EXPECT_EQ(callee().call<&devices::place>(numbers(5, 2)), "cpu");
  EXPECT_TRUE(callee().call<&devices::twice>(host).device().is_cpu());
  const at::Tensor back = callee().call<&devices::twice>(numbers(5, 2));
  EXPECT_EQ(back.device(), fake_device(2));
  EXPECT_TRUE(at::equal(back.cpu(), host * 2));
}

TEST_P(DeviceMaps, ContainersAndStructs) {
  start_mapped(fake_map({{0, 2}, {1, 1}}));
  const devices::Pair pair{numbers(3, 0), {{"second", numbers(4, 1)}}};
  const devices::Pair swapped = callee().call<&devices::swapped>(pair);
  EXPECT_EQ(swapped.first.device(), fake_device(1));
  EXPECT_EQ(swapped.first.numel(), 4);
  EXPECT_EQ(swapped.others.at("second").device(), fake_device(0));
}

TEST_P(DeviceMaps, TypesShapesAndLayoutsArrive) {
  start_mapped(fake_map({{0, 1}}));
  const c10::Device device = fake_device(0);
  for (const at::ScalarType type : {at::kByte, at::kLong, at::kHalf, at::kBFloat16, at::kDouble}) {
    const at::Tensor tensor = at::arange(6).to(type).to(device);
    const at::Tensor sum = callee().call<&devices::add>(tensor, tensor);
    EXPECT_EQ(sum.scalar_type(), type);
    EXPECT_TRUE(at::equal(sum.cpu().to(at::kLong), at::arange(6) * 2));
  }
  const at::Tensor booleans = at::ones({3}, at::kBool).to(device);
  EXPECT_EQ(callee().call<&devices::to_host>(booleans).sum().item<int>(), 3);
  const at::Tensor matrix = at::arange(12, at::kFloat).view({3, 4});
  const at::Tensor turned = matrix.to(device).t();
  EXPECT_TRUE(at::equal(callee().call<&devices::to_host>(turned), matrix.t()));
  const at::Tensor strided = matrix.to(device).select(1, 2);
  EXPECT_TRUE(at::equal(callee().call<&devices::to_host>(strided), matrix.select(1, 2)));
  EXPECT_EQ(callee().call<&devices::place>(at::empty({0, 3}).to(device)), fake(1));
}

// CDM-11.
TEST_P(DeviceMaps, ReferencesAreFetchedByTheReverse) {
  start_mapped(fake_map({{0, 1}, {1, 0}}));
  const RRef<at::Tensor> rref = callee().remote<&devices::twice>(numbers(4, 0));
  for (int i = 0; i < 2; ++i) {
    const at::Tensor fetched = rref.to_here();
    EXPECT_EQ(fetched.device(), fake_device(0));
    EXPECT_TRUE(at::equal(fetched.cpu(), at::arange(4, at::kFloat) * 2));
  }
}

TEST_P(DeviceMaps, CallsOfCallsHaveMapsOfTheirOwn) {
  start(3, devices::methods(), [](int rank, WorkerOptions& options) {
    if (rank == 0) options.device_maps["worker1"] = fake_map({{0, 1}});
    if (rank == 1) options.device_maps["worker2"] = fake_map({{1, 2}});
  });
  const at::Tensor result =
      callee().call<&devices::twice_at>(std::string("worker2"), numbers(4, 0));
  EXPECT_EQ(result.device(), fake_device(0));
  EXPECT_TRUE(at::equal(result.cpu(), at::arange(4, at::kFloat) * 2));
}

// CDM-09: at once, and more often than there are threads.
TEST_P(DeviceMaps, ArgumentsWithoutAnEntryAreRefusedAtOnce) {
  start_mapped(fake_map({{0, 1}}));
  for (int i = 0; i < 20; ++i) {
    const RpcError error = error_of([&] { callee().async<&devices::twice>(numbers(3, 1)); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("WorkerOptions::device_maps[\"worker1\"]"));
  }
  EXPECT_EQ(error_of([&] { callee().remote<&devices::twice>(numbers(3, 1)); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(callee().call<&devices::one_more>(1), 2);
}

// CDM-10: at the caller, with to_here() too.
TEST_P(DeviceMaps, ResultsWithoutAnEntryFailTheCall) {
  start_mapped(fake_map({{0, 1}}));
  for (int i = 0; i < 20; ++i) {
    const RpcError error = error_of([&] { callee().call<&devices::to_device>(at::ones({3}), 2); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("WorkerOptions::device_maps[\"worker1\"]"));
  }
  const RRef<at::Tensor> rref = callee().remote<&devices::to_device>(at::ones({3}), 2);
  EXPECT_EQ(error_of([&] { rref.to_here(); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(callee().call<&devices::one_more>(1), 2);
}

// CDM-12: what LibTorch says in a handler comes back.
TEST_P(DeviceMaps, MismatchesInHandlersReachTheCaller) {
  start_mapped(fake_map({{0, 1}, {1, 2}}));
  const RpcError error =
      error_of([&] { callee().call<&devices::add>(numbers(3, 0), numbers(3, 1)); });
  EXPECT_THAT(error.what(), ::testing::HasSubstr("same device"));
}

// The value is read on the stream of the thread that reads it.
TEST_P(DeviceMaps, ResultsAreOrderedWithTheReadersStream) {
  start_mapped(fake_map({{0, 1}}));
  const at::Tensor tensor = numbers(4, 0);
  set_fake_stream(0, 7);
  take_fake_copy_streams();
  EXPECT_EQ(callee().call<&devices::twice>(tensor).device(), fake_device(0));
  set_fake_stream(0, 0);
  // The argument's, at the callee, and the result's here.
  const std::vector<c10::Stream> streams = take_fake_copy_streams();
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams[0], c10::Stream(c10::Stream::DEFAULT, fake_device(1)));
  EXPECT_EQ(streams[1], c10::Stream(c10::Stream::UNSAFE, fake_device(0), 7));
}

SINEW_INSTANTIATE_CLUSTER_TEST(DeviceMaps);

// ---- What init_rpc refuses.

RpcError start_error(const std::function<void(int rank, WorkerOptions& options)>& tweak) {
  ClusterOptions options;
  options.tweak = tweak;
  return error_of([&] { Cluster cluster(options); });
}

// CDM-01.
TEST(DeviceMapChecks, UnknownWorkers) {
  const RpcError error = start_error([](int, WorkerOptions& options) {
    options.device_maps["nobody"] = fake_map({{0, 0}});
    options.join_timeout = std::chrono::seconds(10);
  });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), ::testing::HasSubstr("'nobody'"));
}

// CDM-02: here, and there as the others say when they join.
TEST(DeviceMapChecks, DevicesThatThereAreNot) {
  const RpcError here = start_error([](int, WorkerOptions& options) {
    options.device_maps["worker1"] = fake_map({{5, 0}});
  });
  EXPECT_EQ(here.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(here.what(), ::testing::HasSubstr("privateuseone:5"));
  const RpcError there = start_error([](int rank, WorkerOptions& options) {
    if (rank == 0) options.device_maps["worker1"] = fake_map({{0, 6}});
  });
  EXPECT_EQ(there.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(there.what(), ::testing::HasSubstr("privateuseone:6"));
  EXPECT_THAT(there.what(), ::testing::HasSubstr("worker1"));
}

// CDM-03.
TEST(DeviceMapChecks, ManyToOneOneToManyAndNegativeIndexes) {
  const RpcError many = start_error([](int, WorkerOptions& options) {
    options.device_maps["worker1"] = fake_map({{0, 2}, {1, 2}});
  });
  EXPECT_EQ(many.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(many.what(), ::testing::HasSubstr("to the same privateuseone:2"));
  EXPECT_EQ(error_of([] { DeviceMap().map(0, 1).map(0, 2); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { DeviceMap({{-1, 0}}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { DeviceMap().map("cuda", "cuda:1"); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { DeviceMap().map("gpu0", "cuda:1"); }).code(),
            ErrorCode::kInvalidArgument);
}

// CDM-04: on either side.
TEST(DeviceMapChecks, DevicesThatASideDoesNotUse) {
  const RpcError here = start_error([](int, WorkerOptions& options) {
    options.devices = {fake_device(1)};
    options.device_maps["worker1"] = fake_map({{0, 0}});
  });
  EXPECT_EQ(here.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(here.what(), ::testing::HasSubstr("privateuseone:0"));
  const RpcError there = start_error([](int rank, WorkerOptions& options) {
    if (rank == 0) options.device_maps["worker1"] = fake_map({{0, 0}});
    if (rank == 1) options.devices = {fake_device(1)};
  });
  EXPECT_EQ(there.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(there.what(), ::testing::HasSubstr("its devices are privateuseone:1"));
  const RpcError missing =
      start_error([](int, WorkerOptions& options) { options.devices = {fake_device(7)}; });
  EXPECT_EQ(missing.code(), ErrorCode::kInvalidArgument);
}

TEST(DeviceMapChecks, InOpenMembershipTheCallSaysSo) {
  const auto network = std::make_shared<internal::InprocNetwork>();
  const auto start = [&](const std::string& name, DeviceMap map) {
    WorkerOptions options;
    options.name = name;
    options.methods = devices::methods();
    options.init_method = "inproc://open";
    options.network = network;
    options.device_maps["second"] = std::move(map);
    return init_rpc(std::move(options));
  };
  const Worker first = start("first", fake_map({{0, 6}, {1, 1}}));
  const Worker second = start("second", {});
  ASSERT_TRUE(eventually([&] { return first.workers().size() == 2; }));
  const Peer peer = first.peer("second");
  const RpcError error = error_of([&] { peer.call<&devices::twice>(numbers(3, 0)); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), ::testing::HasSubstr("privateuseone:6"));
  EXPECT_EQ(peer.call<&devices::one_more>(1), 2);
  second.shutdown();
  first.shutdown();
}

TEST(DeviceMap, ReversedTakesTheFirst) {
  const DeviceMap map = DeviceMap({{0, 1}, {2, 3}}).map("cpu", "cuda:4");
  EXPECT_EQ(map.reversed().text(), "cuda:1 -> cuda:0, cuda:3 -> cuda:2, cuda:4 -> cpu");
  EXPECT_EQ(map.find(c10::Device("cuda:2")), c10::Device("cuda:3"));
  EXPECT_EQ(map.find(c10::Device("cuda:1")), std::nullopt);
}

}  // namespace
}  // namespace sinew::testing
