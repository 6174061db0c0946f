#include "sinew/parallel/internal/forward_surroundings.h"

#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "ATen/Context.h"
#include "ATen/Functions.h"
#include "ATen/core/Generator.h"

namespace sinew::parallel::internal {
namespace {

at::Tensor state_of(const at::Device& device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

// Since 2.4 these take a device, and the old names are deprecated.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool is_on(at::DeviceType device) { return at::autocast::is_autocast_enabled(device); }
at::ScalarType type_on(at::DeviceType device) { return at::autocast::get_autocast_dtype(device); }
void set_on(at::DeviceType device, bool on, at::ScalarType type) {
  at::autocast::set_autocast_enabled(device, on);
  at::autocast::set_autocast_dtype(device, type);
}
#else
bool is_on(at::DeviceType device) {
  return device == at::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}
at::ScalarType type_on(at::DeviceType device) {
  return device == at::kCPU ? at::autocast::get_autocast_cpu_dtype()
                            : at::autocast::get_autocast_gpu_dtype();
}
void set_on(at::DeviceType device, bool on, at::ScalarType type) {
  if (device == at::kCPU) {
    at::autocast::set_cpu_enabled(on);
    at::autocast::set_autocast_cpu_dtype(type);
  } else {
    at::autocast::set_enabled(on);
    at::autocast::set_autocast_gpu_dtype(type);
  }
}
#endif

void copy(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    // As optimizers do: no change in place for autograd, so that other graphs which have saved a
    // buffer can still be used.
    to[i].variable_data().copy_(from[i]);
  }
}

}  // namespace

RandomStates RandomStates::of(const std::vector<at::Tensor>& tensors) {
  RandomStates states;
  states.states_.push_back({at::Device(at::kCPU), state_of(at::kCPU)});
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cuda()) continue;
    const at::Device device = tensor.device();
    const auto is_it = [&device](const State& state) { return state.device == device; };
    if (std::any_of(states.states_.begin(), states.states_.end(), is_it)) continue;
    states.states_.push_back({device, state_of(device)});
  }
  return states;
}

RandomStates RandomStates::now() const {
  RandomStates states;
  for (const State& state : states_) {
    states.states_.push_back({state.device, state_of(state.device)});
  }
  return states;
}

void RandomStates::restore() const {
  for (const State& state : states_) {
    at::Generator generator = at::globalContext().defaultGenerator(state.device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state.bytes);
  }
}

bool RandomStates::is_same_as(const RandomStates& other) const {
  return std::equal(states_.begin(), states_.end(), other.states_.begin(), other.states_.end(),
                    [](const State& a, const State& b) { return at::equal(a.bytes, b.bytes); });
}

AutocastSettings AutocastSettings::current() {
  AutocastSettings settings;
  settings.on_cpu_ = is_on(at::kCPU);
  settings.on_gpu_ = is_on(at::kCUDA);
  settings.cpu_type_ = type_on(at::kCPU);
  settings.gpu_type_ = type_on(at::kCUDA);
  settings.has_cache_ = at::autocast::is_autocast_cache_enabled();
  return settings;
}

void AutocastSettings::apply() const {
  set_on(at::kCPU, on_cpu_, cpu_type_);
  set_on(at::kCUDA, on_gpu_, gpu_type_);
  at::autocast::set_autocast_cache_enabled(has_cache_);
}

AutocastSettings::Scope::Scope(const AutocastSettings& settings)
    : before_(std::make_unique<const AutocastSettings>(current())) {
  AutocastSettings without_cache = settings;
  without_cache.has_cache_ = false;
  without_cache.apply();
}

AutocastSettings::Scope::~Scope() { before_->apply(); }

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

BufferScope::BufferScope(const std::vector<at::Tensor>& buffers,
                         const std::vector<at::Tensor>& values)
    : buffers_(buffers), before_(copies_of(buffers)) {
  copy(buffers_, values);
}

BufferScope::~BufferScope() { copy(buffers_, before_); }

}  // namespace sinew::parallel::internal
