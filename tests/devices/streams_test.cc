// In which order streams of devices do what belongs to a future: whoever reads its value goes on
// behind what the thread that completed it had queued, whatever the streams of the two. The fake
// device knows the order (FakeStreams); that of values would prove nothing, since it does all at
// once.

#include "sinew/rpc/worker/worker_parts.h"
#include "sinew/tests/devices/device_methods.h"
#include "sinew/tests/support/fake_streams.h"
#include "sinew/tests/support/side_threads.h"

namespace devices {

using sinew::testing::on_side;

inline sinew::Future<at::Tensor> twice_on_side(const at::Tensor& tensor) {
  return on_side(tensor.device().index(), [tensor] { return tensor * 2; });
}
/// Shows that a continuation, which is on the executor's stream, reads what is ready.
inline sinew::Future<at::Tensor> four_times_by_then(const at::Tensor& tensor) {
  return twice_on_side(tensor).then([](const at::Tensor& doubled) { return doubled * 2; });
}
/// A value that can only be moved stays in its future.
struct Held {
  Held(at::Tensor held, std::unique_ptr<int> counted)
      : tensor(std::move(held)), count(std::move(counted)) {}
  at::Tensor tensor;
  std::unique_ptr<int> count;
};
inline sinew::Future<Held> hold_on_side(const at::Tensor& tensor) {
  return on_side(tensor.device().index(),
                 [tensor] { return Held(tensor * 2, std::make_unique<int>(1)); });
}
inline at::Tensor held_tensor(const sinew::RRef<Held>& held) {
  return held.local_value().tensor * 1;
}

/// What handlers change on side streams.
inline at::Tensor& weight() {
  static at::Tensor tensor;
  return tensor;
}
inline sinew::Future<void> scale_weight_on_side() {
  weight() = numbers(4, 1);
  return on_side(1, [] { weight().mul_(3); });
}
inline at::Tensor read_weight() { return weight() * 1; }
/// Two passes, whose gradients are added on the side stream.
inline sinew::Future<void> backward_on_side() {
  weight() = numbers(4, 1).requires_grad_(true);
  const sinew::Worker worker = sinew::current_worker();
  const sinew::autograd::ContextId context = sinew::autograd::Context::current();
  return on_side(1, [worker, context] {
    for (int pass = 0; pass < 2; ++pass) {
      sinew::autograd::backward(worker, context, {(weight() * 3).sum()});
    }
    // LibTorch 1.13's engine orders streams of CUDA only.
    sinew::testing::FakeStreams::of_process().take_races();
  });
}
inline at::Tensor gradient_of_weight() {
  return sinew::autograd::gradients(sinew::autograd::Context::current()).at(weight()) * 1;
}

}  // namespace devices

SINEW_METHOD(devices::twice_on_side, devices::four_times_by_then, devices::hold_on_side,
             devices::held_tensor, devices::scale_weight_on_side, devices::read_weight,
             devices::backward_on_side, devices::gradient_of_weight);

namespace sinew::testing {
namespace {

using devices::fake_map;
using devices::numbers;
using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kReadersStream = 8;

/// Of the calling thread, on all devices.
class OnStream {
 public:
  explicit OnStream(int stream) { set(stream); }
  ~OnStream() { set(0); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  static void set(int stream) {
    for (int device = 0; device < kFakeDevices; ++device) set_fake_stream(device, stream);
  }
};

std::vector<std::string> take_races() { return FakeStreams::of_process().take_races(); }

class StreamOrder : public ClusterTest {
 protected:
  void SetUp() override {
    take_races();
    events_before_ = FakeStreams::of_process().events();
  }
  void TearDown() override {
    SideThreads::of_process().join();
    devices::weight().reset();
    finish();
    EXPECT_THAT(take_races(), IsEmpty());
    EXPECT_EQ(live_fake_blocks(), 0);
    EXPECT_EQ(FakeStreams::of_process().events(), events_before_);
  }
  void start_mapped(FakePlanes* planes = nullptr) {
    MethodTable methods = devices::methods();
    methods.add<&devices::twice_on_side>()
        .add<&devices::four_times_by_then>()
        .add<&devices::hold_on_side>()
        .add<&devices::held_tensor>()
        .add<&devices::scale_weight_on_side>()
        .add<&devices::read_weight>()
        .add<&devices::backward_on_side>()
        .add<&devices::gradient_of_weight>();
    start(2, std::move(methods), [planes](int rank, WorkerOptions& options) {
      if (planes != nullptr) sinew::internal::parts_of(options).device_plane = planes->maker();
      if (rank == 0) options.device_maps["worker1"] = fake_map({{0, 1}});
    });
  }
  Peer callee() const { return worker(0).peer("worker1"); }

 private:
  std::size_t events_before_ = 0;
};

// What the others rest on.
TEST(FakeStreams, FindWhatReadsBeforeItMay) {
  take_races();
  const at::Tensor tensor = numbers(3, 0);
  c10::Event written(c10::kPrivateUse1);
  {
    const OnStream side(kSideStream);
    EXPECT_THAT((tensor * 1, take_races()), Not(IsEmpty()));
    written.record(fake_stream(0, kSideStream));
    written.block(fake_stream(0, kReadersStream));
  }
  // The side stream was not behind the write, so who is behind that stream is not either.
  const OnStream readers(kReadersStream);
  EXPECT_THAT(
      (tensor * 1, take_races()),
      Contains("stream 8 of device 0 reads what stream 0 of device 0 writes, and is not behind "
               "it"));
  written.record(fake_stream(0, 0));
  written.block(fake_stream(0, kReadersStream));
  EXPECT_THAT((tensor * 1, take_races()), IsEmpty());
}

TEST_P(StreamOrder, ReplyOfAnAsyncHandler) {
  start_mapped();
  const at::Tensor result = callee().call<&devices::twice_on_side>(numbers(9, 0));
  EXPECT_TRUE(at::equal((result + 1).cpu(), at::arange(9, at::kFloat) * 2 + 1));
}

TEST_P(StreamOrder, ReplyOfAnAsyncHandlerByThePlane) {
  FakePlanes planes;
  start_mapped(&planes);
  const at::Tensor result = callee().call<&devices::twice_on_side>(numbers(8192, 0));
  EXPECT_TRUE(at::equal((result + 1).cpu(), at::arange(8192, at::kFloat) * 2 + 1));
  EXPECT_EQ(planes.stats().copied, 2);
  // Its bytes again, by the other road.
  planes.set_fault(FakePlanes::Fault::kFail);
  const at::Tensor fetched = callee().call<&devices::twice_on_side>(numbers(8192, 0));
  EXPECT_TRUE(at::equal((fetched + 1).cpu(), at::arange(8192, at::kFloat) * 2 + 1));
  finish();
}

TEST_P(StreamOrder, ContinuationsAtTheCallee) {
  start_mapped();
  const at::Tensor result = callee().call<&devices::four_times_by_then>(numbers(9, 0));
  EXPECT_TRUE(at::equal(result.cpu(), at::arange(9, at::kFloat) * 4));
}

// The continuation runs on the executor's stream, neither on that of whoever waits for it nor on
// that of the promise.
TEST_P(StreamOrder, ContinuationsAtTheCaller) {
  start_mapped();
  const OnStream readers(kReadersStream);
  const at::Tensor argument = numbers(9, 0);
  const Future<at::Tensor> sum =
      callee().async<&devices::twice>(argument).then([](const at::Tensor& doubled) {
        return on_side(0, [doubled] { return doubled + 1; }).then([](const at::Tensor& t) {
          return t + 1;
        });
      });
  EXPECT_TRUE(at::equal((sum.wait() + 1).cpu(), at::arange(9, at::kFloat) * 2 + 3));
  // Each reader, not only the first.
  const OnStream others(kSideStream + 2);
  EXPECT_TRUE(at::equal((sum.value() + 1).cpu(), at::arange(9, at::kFloat) * 2 + 3));
}

TEST_P(StreamOrder, FuturesOfSeveral) {
  start_mapped();
  std::vector<Future<at::Tensor>> parts;
  for (int device = 0; device < kFakeDevices; ++device) {
    parts.push_back(on_side(device, [device] { return numbers(3, device) + 1; }));
  }
  const OnStream readers(kReadersStream);
  for (const at::Tensor& part : wait_all(std::move(parts))) {
    EXPECT_TRUE(at::equal((part * 1).cpu(), at::arange(3, at::kFloat) + 1));
  }
}

TEST_P(StreamOrder, ValuesThatARemoteCallKeeps) {
  start_mapped();
  const RRef<at::Tensor> doubled = callee().remote<&devices::twice_on_side>(numbers(9, 0));
  EXPECT_TRUE(at::equal((doubled.to_here() + 1).cpu(), at::arange(9, at::kFloat) * 2 + 1));
  const RRef<devices::Held> held = callee().remote<&devices::hold_on_side>(numbers(9, 0));
  EXPECT_TRUE(
      at::equal(callee().call<&devices::held_tensor>(held).cpu(), at::arange(9, at::kFloat) * 2));
}

// A future without a value says that something is done.
TEST_P(StreamOrder, WhatAHandlerChangesOnItsOtherStream) {
  start_mapped();
  callee().call<&devices::scale_weight_on_side>();
  const at::Tensor weight = callee().call<&devices::read_weight>();
  EXPECT_TRUE(at::equal(weight.cpu(), at::arange(4, at::kFloat) * 3));
}

TEST_P(StreamOrder, GradientsOfAHandlersOtherStream) {
  start_mapped();
  const autograd::Context context(worker(0));
  callee().call<&devices::backward_on_side>();
  const at::Tensor gradient = callee().call<&devices::gradient_of_weight>();
  EXPECT_TRUE(at::equal(gradient.cpu(), at::full({4}, 6.0F)));
}

// Forward on the side stream, backward where the gradients come in.
TEST_P(StreamOrder, GradientsThroughAnAsyncHandler) {
  start_mapped();
  const at::Tensor argument = numbers(9, 0).requires_grad_(true);
  const autograd::Context context(worker(0));
  const at::Tensor result = callee().call<&devices::four_times_by_then>(argument);
  autograd::backward(context, {(result * result).sum()});
  EXPECT_TRUE(
      at::equal(autograd::gradients(context).at(argument).cpu(), at::arange(9, at::kFloat) * 32));
}

// A capture would end with an error if it waited for what is not in it.
TEST_P(StreamOrder, StreamsThatCaptureAreLeftAlone) {
  start_mapped();
  const Future<at::Tensor> side = on_side(0, [] { return numbers(3, 0); });
  side.wait();
  const OnStream capturing(kCapturingStream);
  take_races();
  EXPECT_THAT((side.value() * 1, take_races()), Not(IsEmpty()));
}

// A thread that waits on a stream of its own is not held up by what others do on the default one,
// but where a tensor may come from there.
TEST_P(StreamOrder, ValuesWithoutTensorsWaitForNoDefaultStream) {
  start_mapped();
  const at::Tensor elsewhere = numbers(3, 0);
  Promise<void> nothing;
  Promise<std::string> text;
  Promise<at::Tensor> tensor;
  nothing.set_value();
  text.set_value("text");
  tensor.set_value(elsewhere);
  const OnStream readers(kReadersStream);
  nothing.future().wait();
  EXPECT_EQ(text.future().value(), "text");
  EXPECT_THAT((elsewhere * 1, take_races()), Not(IsEmpty()));
  EXPECT_THAT((tensor.future().value() * 1, take_races()), IsEmpty());
}

SINEW_INSTANTIATE_CLUSTER_TEST(StreamOrder);

}  // namespace
}  // namespace sinew::testing
