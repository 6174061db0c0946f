// The models of test_autograd_reference.py, with Sinew. Prints one line for each gradient: its name
// and its elements.

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

namespace refmodels {

using at::Tensor;

/// The same elements as in test_autograd_reference.py.
Tensor elements(int number, at::IntArrayRef sizes) {
  Tensor values = at::arange(at::empty(sizes).numel(), at::kDouble);
  return (at::remainder(values * 7 + number * 3, 11) - 5).div(7).reshape(sizes);
}
Tensor leaf(int number, at::IntArrayRef sizes) {
  return elements(number, sizes).set_requires_grad(true);
}

/// The leaves of a worker, by number.
std::map<int, Tensor>& leaves() {
  static auto& all = *new std::map<std::uint64_t, std::map<int, Tensor>>();
  return all[sinew::current_worker().info().incarnation.value];
}
void reset() { leaves() = {{1, leaf(1, {4, 4})}, {2, leaf(2, {4, 4})}, {3, leaf(3, {6, 4})}}; }
Tensor gradient(int number, const sinew::autograd::ContextId& context) {
  const Tensor found =
      sinew::autograd::gradient_of(sinew::current_worker(), context, leaves().at(number));
  return found.defined() && found.is_sparse() ? found.to_dense() : found;
}
Tensor linear(const Tensor& x) { return at::matmul(leaves().at(1), x); }
Tensor cell(const Tensor& x, const Tensor& h) {
  return at::tanh(at::matmul(leaves().at(1), x) + at::matmul(leaves().at(2), h));
}
Tensor embed(const Tensor& rows) {
  return at::embedding(leaves().at(3), rows, -1, false, true).sum(0);
}
Tensor multiply(const Tensor& a, const Tensor& b) { return a * b; }
Tensor nested(const Tensor& x, int hops);

}  // namespace refmodels
SINEW_METHOD(refmodels::reset, refmodels::gradient, refmodels::linear, refmodels::cell,
             refmodels::embed, refmodels::multiply, refmodels::nested);

namespace refmodels {

Tensor nested(const Tensor& x, int hops) {
  const Tensor y = linear(x);
  if (hops == 0) return y;
  const sinew::Worker self = sinew::current_worker();
  return self.peer((self.rank() + 1) % 3).call<&nested>(at::sin(y), hops - 1) + x;
}

namespace {

using Own = std::vector<Tensor>;
using Model = std::function<Tensor(const sinew::Worker&, const Own&)>;

const std::map<std::string, Model>& models() {
  static const auto& all = *new std::map<std::string, Model>{
      {"linear", [](const sinew::Worker& w,
                    const Own& own) { return w.peer(1).call<&linear>(own[0]).pow(2).sum(); }},
      {"ping_pong",
       [](const sinew::Worker& w, const Own& own) {
         Tensor x = own[0];
         for (int i = 0; i < 3; ++i) x = w.peer(1).call<&multiply>(x, own[1]) + own[0];
         return x.sum();
       }},
      {"diamond",
       [](const sinew::Worker& w, const Own& own) {
         const Tensor x = at::tanh(own[0]);
         const Tensor one = w.peer(1).call<&linear>(x);
         const Tensor two = w.peer(2).call<&linear>(x);
         return (one * two + x * own[1]).sum();
       }},
      {"recurrent",
       [](const sinew::Worker& w, const Own& own) {
         Tensor h = own[1];
         for (int i = 0; i < 4; ++i) h = w.peer(1).call<&cell>(own[0] * (i + 1), h);
         return h.sum();
       }},
      {"embedding",
       [](const sinew::Worker& w, const Own& own) {
         const Tensor rows = at::tensor(std::vector<std::int64_t>{1, 4, 1});
         return (w.peer(2).call<&embed>(rows) * own[0]).sum();
       }},
      {"nested", [](const sinew::Worker& w,
                    const Own& own) { return w.peer(1).call<&nested>(own[0], 3).sum(); }},
      {"reference_to_here",
       [](const sinew::Worker& w, const Own& own) {
         const auto product = w.peer(2).remote<&multiply>(own[0], own[1]);
         return (product.to_here() * product.to_here()).sum();
       }},
  };
  return all;
}

void print(const std::string& name, const Tensor& gradient) {
  std::printf("%s", name.c_str());
  if (gradient.defined()) {
    const Tensor flat = gradient.contiguous().view(-1);
    for (std::int64_t i = 0; i < flat.numel(); ++i) std::printf(" %.17g", flat[i].item<double>());
  }
  std::printf("\n");
}

}  // namespace
}  // namespace refmodels

int main() {
  using namespace refmodels;
  sinew::testing::ClusterOptions options;
  options.names = sinew::testing::worker_names(3);
  options.transport = sinew::testing::ClusterTransport::kGrpc;
  options.methods.add<&reset>().add<&gradient>().add<&linear>().add<&cell>().add<&embed>();
  options.methods.add<&multiply>().add<&nested>();
  const sinew::testing::Cluster cluster(options);
  const sinew::Worker& self = cluster.worker(0);
  for (const auto& [name, model] : models()) {
    for (int rank = 0; rank < 3; ++rank) self.peer(rank).call<&reset>();
    const Own own = {leaf(5, {4}), leaf(6, {4})};
    const sinew::autograd::Context context(self);
    sinew::autograd::backward(context, {model(self, own)});
    for (std::size_t i = 0; i < own.size(); ++i) {
      print(name + ".own" + std::to_string(i), sinew::autograd::gradient_of(context, own[i]));
    }
    for (int rank = 1; rank < 3; ++rank) {
      for (int number = 1; number <= 3; ++number) {
        Tensor found;
        try {
          found = self.peer(rank).call<&gradient>(number, context.id());
        } catch (const sinew::RpcError& error) {
          // It takes no part in this model.
          if (error.code() != sinew::ErrorCode::kNotFound) throw;
        }
        print(name + ".worker" + std::to_string(rank) + "." + std::to_string(number), found);
      }
    }
  }
}
