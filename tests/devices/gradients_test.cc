// Gradients of tensors on devices, and modules that live on one.

#include "sinew/rpc/worker/worker_parts.h"
#include "sinew/tests/devices/device_methods.h"

namespace devices {

inline at::Tensor product(const at::Tensor& a, const at::Tensor& b) { return a.matmul(b); }
/// To another device of its worker.
inline at::Tensor moved_and_scaled(const at::Tensor& tensor, int device) {
  return (tensor.to(sinew::testing::fake_device(device)) * 3).to(tensor.device());
}
/// LibTorch's own modules do not move to PrivateUse1.
class Layer {
 public:
  explicit Layer(std::int64_t size)
      : weight_(at::full({size, size}, 0.5F, at::kFloat).requires_grad_(true)) {}
  at::Tensor forward(const at::Tensor& input) { return input.matmul(weight_); }
  std::vector<at::Tensor> parameters() const { return {weight_}; }
  void to(c10::Device device) { weight_ = weight_.detach().to(device).requires_grad_(true); }
  void train(bool) {}

 private:
  at::Tensor weight_;
};

}  // namespace devices

SINEW_METHOD(devices::product, devices::moved_and_scaled);
SINEW_MODULE(devices::Layer, (std::int64_t));

namespace sinew::testing {
namespace {

using devices::fake_map;
using devices::numbers;

// 64 x 128 floats: large enough for a plane.
at::Tensor leaf(int device, std::int64_t rows = 64, std::int64_t columns = 128) {
  const at::Tensor values = at::linspace(-1, 1, rows * columns).view({rows, columns});
  return values.to(fake_device(device)).requires_grad_(true);
}

class Gradients : public ClusterTest {
 protected:
  void TearDown() override { finish(); }
  void start_workers(int size, std::function<void(int, WorkerOptions&)> tweak) {
    MethodTable methods = devices::methods();
    methods.add<&devices::product>().add<&devices::moved_and_scaled>();
    methods.serve<devices::Layer>();
    start(size, std::move(methods), std::move(tweak));
  }
};

// Forward and backward through one worker; compared with LibTorch alone.
void check_product(const Worker& here, const Peer& there, int device) {
  const at::Tensor a = leaf(device);
  const at::Tensor b = leaf(device, 128, 64);
  const autograd::Context context(here);
  const at::Tensor result = there.call<&devices::product>(a, b);
  EXPECT_EQ(result.device(), a.device());
  autograd::backward(context, {(result * result).sum()});
  const at::Tensor local_a = a.detach().cpu().requires_grad_(true);
  const at::Tensor local_b = b.detach().cpu().requires_grad_(true);
  const at::Tensor local = local_a.matmul(local_b);
  (local * local).sum().backward();
  const auto gradients = autograd::gradients(context);
  ASSERT_EQ(gradients.size(), 2U);
  for (const auto& [variable, gradient] : gradients) {
    EXPECT_EQ(gradient.device(), variable.device());
    const at::Tensor& expected = variable.is_same(a) ? local_a.grad() : local_b.grad();
    EXPECT_TRUE(at::allclose(gradient.cpu(), expected, 1e-4, 1e-4));
  }
}

// CDM-22.
TEST_P(Gradients, TakeTheReverseOfTheMap) {
  start_workers(2, [](int rank, WorkerOptions& options) {
    if (rank == 0) options.device_maps["worker1"] = fake_map({{0, 1}, {1, 2}, {2, 0}});
  });
  for (int device = 0; device < 3; ++device) {
    check_product(worker(0), worker(0).peer("worker1"), device);
  }
}

// Both workers have maps, and they are not each other's reverse.
TEST_P(Gradients, GoWhereTheirTensorsCameFrom) {
  start_workers(2, [](int rank, WorkerOptions& options) {
    options.device_maps[rank == 0 ? "worker1" : "worker0"] = fake_map({{0, 1}, {1, 2}, {2, 0}});
  });
  check_product(worker(0), worker(0).peer("worker1"), 1);
  check_product(worker(1), worker(1).peer("worker0"), 1);
}

TEST_P(Gradients, OfCallsToOneself) {
  start_workers(1, [](int, WorkerOptions& options) {
    options.device_maps["worker0"] = fake_map({{0, 1}});
  });
  check_product(worker(0), worker(0).peer("worker0"), 0);
}

TEST_P(Gradients, TravelByThePlane) {
  FakePlanes planes;
  start_workers(2, [&planes](int rank, WorkerOptions& options) {
    sinew::internal::parts_of(options).device_plane = planes.maker();
    if (rank == 0) options.device_maps["worker1"] = fake_map({{0, 1}});
  });
  check_product(worker(0), worker(0).peer("worker1"), 0);
  // The two arguments share one transfer, so do their gradients.
  EXPECT_GE(planes.stats().copied, 3);
  planes.set_fault(FakePlanes::Fault::kFail);
  check_product(worker(0), worker(0).peer("worker1"), 0);
  finish();
}

// CDM-22: a chain over three workers; CDM-21: with host memory in between.
TEST_P(Gradients, ThroughChainsOfWorkersAndHostMemory) {
  start_workers(3, [](int rank, WorkerOptions& options) {
    if (rank == 0) options.device_maps["worker1"] = fake_map({{0, 1}});
    if (rank == 1) options.device_maps["worker2"] = fake_map({{1, 2}});
  });
  const at::Tensor variable = leaf(0, 4, 4);
  const autograd::Context context(worker(0));
  const at::Tensor twice =
      worker(0).peer("worker1").call<&devices::twice_at>(std::string("worker2"), variable);
  const at::Tensor scaled = worker(0).peer("worker1").call<&devices::moved_and_scaled>(twice, 0);
  const at::Tensor host = worker(0).peer("worker1").call<&devices::to_host>(scaled);
  EXPECT_TRUE(host.device().is_cpu());
  autograd::backward(context, {host.sum()});
  const at::Tensor gradient = autograd::gradients(context).at(variable);
  EXPECT_EQ(gradient.device(), fake_device(0));
  EXPECT_TRUE(at::equal(gradient.cpu(), at::full({4, 4}, 6.0F)));
}

TEST_P(Gradients, RemoteModulesOnADevice) {
  start_workers(2, [](int rank, WorkerOptions& options) {
    if (rank == 0) options.device_maps["worker1"] = fake_map({{0, 1}});
  });
  const RemoteModule<devices::Layer> layer(worker(0), "worker1/" + fake_device(1).str(), 4);
  const at::Tensor input = leaf(0, 2, 4);
  const autograd::Context context(worker(0));
  const at::Tensor output = layer.forward(input);
  EXPECT_EQ(output.device(), fake_device(0));
  EXPECT_TRUE(at::allclose(output.cpu(), input.detach().cpu().matmul(at::full({4, 4}, 0.5F))));
  autograd::backward(context, {output.sum()});
  EXPECT_TRUE(at::equal(autograd::gradients(context).at(input).cpu(), at::full({2, 4}, 2.0F)));
  // What the host sends comes back to the device too, as the map says.
  EXPECT_EQ(layer.forward(at::ones({1, 4})).device(), fake_device(0));
}

TEST_P(Gradients, RemoteModulesWithoutAMapAnswerTheHost) {
  start_workers(2, nullptr);
  const RemoteModule<devices::Layer> layer(worker(0), "worker1/" + fake_device(1).str(), 4);
  const at::Tensor output = layer.forward(at::ones({1, 4}));
  EXPECT_TRUE(output.device().is_cpu());
  EXPECT_TRUE(at::equal(output, at::full({1, 4}, 2.0F)));
}

SINEW_INSTANTIATE_CLUSTER_TEST(Gradients);

}  // namespace
}  // namespace sinew::testing
