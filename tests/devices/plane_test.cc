// Tensors that a plane carries, and the other road when it does not.

#include "sinew/rpc/worker/worker_parts.h"
#include "sinew/tests/devices/device_methods.h"

namespace sinew::testing {
namespace {

using devices::fake_map;
using devices::numbers;
using Fault = FakePlanes::Fault;

// 20 KB: large enough for a plane.
constexpr int kLarge = 5000;

at::Tensor large_numbers() { return at::arange(kLarge, at::kFloat); }

class Planes : public ClusterTest {
 protected:
  void SetUp() override { start_with_planes(fake_map({{0, 1}, {1, 0}, {2, 2}})); }
  void TearDown() override {
    finish();
    EXPECT_EQ(planes_.stats().open, 0);
    EXPECT_TRUE(eventually([] { return live_fake_blocks() == 0; }));
  }
  void start_with_planes(DeviceMap map) {
    start(2, devices::methods(), [this, map = std::move(map)](int rank, WorkerOptions& options) {
      sinew::internal::parts_of(options).device_plane = planes_.maker();
      if (rank == 0) options.device_maps["worker1"] = map;
    });
  }
  Peer callee() const { return worker(0).peer("worker1"); }
  std::int64_t counter(int rank, const std::string& name) const {
    return worker(rank).counters().at(name);
  }
  // What was offered to be fetched is given up.
  bool nothing_is_kept() const {
    return eventually(
        [this] { return counter(0, "device.kept") == 0 && counter(1, "device.kept") == 0; });
  }

  FakePlanes planes_;
};

TEST_P(Planes, CarryArgumentsAndResults) {
  const FakeCopies before = fake_copies();
  const at::Tensor doubled = callee().call<&devices::twice>(numbers(kLarge, 0));
  EXPECT_EQ(doubled.device(), fake_device(0));
  EXPECT_TRUE(at::equal(doubled.cpu(), large_numbers() * 2));
  EXPECT_EQ(planes_.stats().copied, 2);
  EXPECT_EQ(fake_copies().to_host, before.to_host);
  EXPECT_EQ(fake_copies().to_device, before.to_device);
  EXPECT_TRUE(nothing_is_kept());
}

TEST_P(Planes, LeaveSmallTensorsAndBooleansToTheMessage) {
  callee().call<&devices::twice>(numbers(10, 0));
  callee().call<&devices::to_host>(at::ones({kLarge * 4}, at::kBool).to(fake_device(0)));
  EXPECT_EQ(planes_.stats().offered, 0);
}

TEST_P(Planes, ShareATransferByDevices) {
  std::vector<at::Tensor> tensors;
  for (const int device : {0, 1, 0, 0}) tensors.push_back(numbers(kLarge, device));
  const auto doubled = callee().call<&devices::each_twice>(tensors);
  EXPECT_EQ(planes_.stats().tensors_of_offers, (std::vector<std::size_t>{3, 1, 3, 1}));
  ASSERT_EQ(doubled.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(doubled[i].device(), tensors[i].device());
    EXPECT_TRUE(at::equal(doubled[i].cpu(), large_numbers() * 2));
  }
}

TEST_P(Planes, CarryContainersAndFetchedReferences) {
  const devices::Pair pair{numbers(kLarge, 0), {{"second", numbers(kLarge, 1)}}};
  const devices::Pair swapped = callee().call<&devices::swapped>(pair);
  EXPECT_EQ(swapped.first.device(), fake_device(1));
  EXPECT_TRUE(at::equal(swapped.others.at("second").cpu(), large_numbers()));
  const RRef<at::Tensor> rref = callee().remote<&devices::twice>(numbers(kLarge, 0));
  const int copied = planes_.stats().copied;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::equal(rref.to_here().cpu(), large_numbers() * 2));
  }
  EXPECT_GE(planes_.stats().copied, copied + 2);
}

TEST_P(Planes, AreNotUsedForCallsToOneself) {
  start(1, devices::methods(), [this](int, WorkerOptions& options) {
    sinew::internal::parts_of(options).device_plane = planes_.maker();
    options.device_maps["worker0"] = fake_map({{0, 1}});
  });
  const at::Tensor doubled = worker(0).peer("worker0").call<&devices::twice>(numbers(kLarge, 0));
  EXPECT_EQ(doubled.device(), fake_device(0));
  EXPECT_EQ(planes_.stats().offered, 0);
}

TEST_P(Planes, ThatAreOutOfUseAreNotAsked) {
  planes_.set_usable(false);
  EXPECT_TRUE(
      at::equal(callee().call<&devices::twice>(numbers(kLarge, 0)).cpu(), large_numbers() * 2));
  EXPECT_EQ(planes_.stats().offered, 0);
}

TEST_P(Planes, ThatFailAreReplacedByTheMessages) {
  planes_.set_fault(Fault::kFail);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor doubled = callee().call<&devices::twice>(numbers(kLarge, 0));
    EXPECT_EQ(doubled.device(), fake_device(0));
    EXPECT_TRUE(at::equal(doubled.cpu(), large_numbers() * 2));
  }
  EXPECT_EQ(counter(1, "device.fetches"), 3);
  EXPECT_EQ(counter(0, "device.fetches"), 3);
  EXPECT_TRUE(nothing_is_kept());
  planes_.set_fault(Fault::kNone);
  EXPECT_TRUE(
      at::equal(callee().call<&devices::twice>(numbers(kLarge, 0)).cpu(), large_numbers() * 2));
  EXPECT_EQ(counter(0, "device.fetches"), 3);
}

// The sender believes that all is there, and has given the bytes up.
TEST_P(Planes, ThatFailAtOneEndFailTheCall) {
  planes_.set_fault(Fault::kFailReceiver);
  const RpcError error = error_of([&] { callee().call<&devices::to_host>(numbers(kLarge, 0)); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), ::testing::HasSubstr("neither from device to device"));
  EXPECT_THAT(error.what(), ::testing::HasSubstr("told to fail"));
  const RpcError result = error_of([&] { callee().call<&devices::one_on_each>(1, kLarge); });
  EXPECT_EQ(result.code(), ErrorCode::kNotFound);
  EXPECT_EQ(callee().call<&devices::one_more>(1), 2);
}

TEST_P(Planes, ThatNeverAnswerAreBoundByTheCallsTime) {
  planes_.set_fault(Fault::kHang);
  CallOptions options;
  options.timeout = std::chrono::milliseconds(300);
  // Of an argument, which the callee waits for; of a result, which the caller does.
  const RpcError argument =
      error_of([&] { callee().with(options).call<&devices::twice>(numbers(kLarge, 0)); });
  EXPECT_EQ(argument.code(), ErrorCode::kDeadlineExceeded);
  const RpcError result =
      error_of([&] { callee().with(options).call<&devices::one_on_each>(1, kLarge); });
  EXPECT_EQ(result.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(callee().call<&devices::one_more>(1), 2);
}

// Nothing that was offered stays when nobody reads the message.
TEST_P(Planes, OffersOfRefusedCallsAreWithdrawn) {
  start(2, {}, [this](int rank, WorkerOptions& options) {
    sinew::internal::parts_of(options).device_plane = planes_.maker();
    if (rank == 0) options.device_maps["worker1"] = fake_map({{0, 1}});
  });
  const RpcError error = error_of([&] { callee().call<&devices::twice>(numbers(kLarge, 0)); });
  EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
  EXPECT_TRUE(eventually([&] { return planes_.stats().open == 0; }));
  const FakePlanes::Stats stats = planes_.stats();
  EXPECT_EQ(stats.withdrawn + stats.declined, 1);
  EXPECT_TRUE(nothing_is_kept());
}

TEST_P(Planes, OffersOfCancelledCallsAreWithdrawn) {
  CancellationSource source;
  source.cancel();
  CallOptions options;
  options.cancellation = source.token();
  const RpcError error =
      error_of([&] { callee().with(options).call<&devices::twice>(numbers(kLarge, 0)); });
  EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  EXPECT_TRUE(eventually([&] { return planes_.stats().open == 0; }));
  EXPECT_TRUE(nothing_is_kept());
}

// Read on an executor's thread, as the caller's stream asks for.
TEST_P(Planes, ResultsAreReadOnTheCallersStream) {
  planes_.set_fault(Fault::kFail);
  const at::Tensor tensor = numbers(kLarge, 0);
  set_fake_stream(0, 5);
  take_fake_copy_streams();
  callee().call<&devices::twice>(tensor);
  set_fake_stream(0, 0);
  const std::vector<c10::Stream> streams = take_fake_copy_streams();
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams[0], c10::Stream(c10::Stream::DEFAULT, fake_device(1)));
  EXPECT_EQ(streams[1], c10::Stream(c10::Stream::UNSAFE, fake_device(0), 5));
}

// The memory that the plane may still write is not given another content.
TEST_P(Planes, ThatMayStillWriteFailTheCall) {
  planes_.set_fault(Fault::kMayStillWrite);
  const RpcError error = error_of([&] { callee().call<&devices::to_host>(numbers(kLarge, 0)); });
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  const RpcError result = error_of([&] { callee().call<&devices::one_on_each>(1, kLarge); });
  EXPECT_EQ(result.code(), ErrorCode::kDataLoss);
  EXPECT_EQ(counter(0, "device.fetches") + counter(1, "device.fetches"), 0);
  planes_.set_fault(Fault::kNone);
  EXPECT_EQ(callee().call<&devices::one_more>(1), 2);
}

TEST_P(Planes, AreNotUsedOnStreamsThatCapture) {
  const at::Tensor tensor = numbers(kLarge, 0);
  set_fake_stream(0, kCapturingStream);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { callee().call<&devices::twice>(tensor); },
           // Its result would be read on that stream.
           [&] { callee().call<&devices::one_on_each>(1, kLarge); }}) {
    const RpcError error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("captures a graph"));
  }
  set_fake_stream(0, 0);
  EXPECT_EQ(planes_.stats().offered, 0);
  EXPECT_TRUE(at::equal(callee().call<&devices::twice>(tensor).cpu(), large_numbers() * 2));
}

SINEW_INSTANTIATE_CLUSTER_TEST(Planes);

}  // namespace
}  // namespace sinew::testing
