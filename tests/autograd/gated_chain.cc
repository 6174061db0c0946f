#include "sinew/tests/autograd/gated_chain.h"

#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <torch/csrc/autograd/custom_function.h>

#include "ATen/ATen.h"
#include "sinew/tests/support/cluster.h"

namespace testgrad {
namespace {

struct State {
  std::atomic<bool> throwing{true};
  std::atomic<bool> stopped{false};
  sinew::testing::Gate gate;
};

State& state_of(std::int64_t incarnation) {
  static std::mutex mutex;
  static auto& states = *new std::map<std::int64_t, State>();
  const std::lock_guard<std::mutex> lock(mutex);
  return states[incarnation];
}
std::int64_t self() {
  return static_cast<std::int64_t>(sinew::current_worker().info().incarnation.value);
}

struct Event : torch::autograd::Function<Event> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            std::int64_t worker, bool stop) {
    context->saved_data["worker"] = worker;
    context->saved_data["stop"] = stop;
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    State& state = state_of(context->saved_data["worker"].toInt());
    if (context->saved_data["stop"].toBool()) {
      state.stopped = true;
      state.gate.pass();
    } else if (state.throwing) {
      throw std::out_of_range("no gradient today");
    }
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void set_throwing(bool throwing) { state_of(self()).throwing = throwing; }
bool has_stopped() { return state_of(self()).stopped; }
void go_on() { state_of(self()).gate.open(); }

at::Tensor chain(const at::Tensor& input, const std::vector<std::string>& workers,
                 const std::string& at, AtBackward what) {
  const sinew::Worker here = sinew::current_worker();
  at::Tensor result = input * 2;
  if (here.name() == at && what != AtBackward::kNothing) {
    result = Event::apply(result, self(), what == AtBackward::kStop);
  }
  if (workers.empty()) return result;
  const std::vector<std::string> rest(workers.begin() + 1, workers.end());
  return here.peer(workers.front()).call<&chain>(result, rest, at, what) + input;
}

void keep_context(const std::string& peer) {
  const sinew::Worker here = sinew::current_worker();
  const sinew::Promise<void> kept;
  // A thread of its own: the handler's works in the context of its call, if there is one.
  std::thread([here, peer, kept] {
    const sinew::autograd::Context context(here);
    const at::Tensor leaf = at::ones({2}).set_requires_grad(true);
    here.peer(peer).call<&chain>(leaf, std::vector<std::string>(), "", AtBackward::kNothing);
    kept.set_value();
    // The context lives until its process is killed, as the caller means to.
    ::pause();
  }).detach();
  kept.future().wait();
}

void add_chain_methods(sinew::MethodTable& methods) {
  methods.add<&chain>().add<&set_throwing>().add<&has_stopped>().add<&go_on>().add<&keep_context>();
}

}  // namespace testgrad
