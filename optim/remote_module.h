#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/optim/parameter_rrefs.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/method_table.h"
#include "sinew/rref/remote.h"

/// Names a module's class and its forward() for RemoteModule, at global scope, beside SINEW_CLASS
/// for its constructor.
#define SINEW_MODULE(...)                                                             \
  template <>                                                                         \
  struct sinew::MethodName<&sinew::internal::ServedModule<__VA_ARGS__>::forward> {    \
    static constexpr std::string_view value = #__VA_ARGS__ "::forward";               \
  };                                                                                  \
  template <>                                                                         \
  struct sinew::MethodName<&sinew::internal::ServedModule<__VA_ARGS__>::place> {      \
    static constexpr std::string_view value = #__VA_ARGS__ "::(place)";               \
  };                                                                                  \
  template <>                                                                         \
  struct sinew::MethodName<&sinew::internal::ServedModule<__VA_ARGS__>::parameters> { \
    static constexpr std::string_view value = #__VA_ARGS__ "::(parameters)";          \
  };                                                                                  \
  template <>                                                                         \
  struct sinew::MethodName<&sinew::internal::ServedModule<__VA_ARGS__>::train> {      \
    static constexpr std::string_view value = #__VA_ARGS__ "::(train)";               \
  }

namespace sinew {
namespace internal {

/// `worker`, `worker/device`, `rank:2` or `rank:2/device`; without a device it is the CPU.
struct RemoteDevice {
  Peer peer;
  std::string device;
};
/// Throws RpcError kInvalidArgument for a text that is none, kNotFound for a worker that is none.
RemoteDevice parse_remote_device(const Worker& worker, std::string_view text);
/// Throws RpcError kInvalidArgument, also for a device that this process does not have.
c10::Device checked_device(const std::string& device);

/// Values with their tensors on `device`; others as they are.
template <class T>
T moved(T value, const c10::Device&) {
  return value;
}
inline at::Tensor moved(at::Tensor value, const c10::Device& device) {
  return value.defined() && value.device() != device ? value.to(device) : value;
}
inline std::vector<at::Tensor> moved(std::vector<at::Tensor> values, const c10::Device& device) {
  for (at::Tensor& value : values) value = moved(std::move(value), device);
  return values;
}
template <class... T>
std::tuple<T...> moved(std::tuple<T...> values, const c10::Device& device) {
  return std::apply(
      [&device](auto&&... one) { return std::tuple<T...>{moved(std::move(one), device)...}; },
      std::move(values));
}

template <class Module, class Forward>
class ServedForward;

/// What RemoteModule calls at the worker of a module.
template <class Module, class R, class... P>
class ServedForward<Module, R (Module::*)(P...)> {
 public:
  using Result = std::decay_t<R>;
  static_assert(!ResultOf<R>::is_future,
                "Sinew: the forward() of a RemoteModule returns values, no Future; call it by "
                "rpc_async<&Module::forward>(reference, ...)");

  /// Arguments go to where the module is, and results come back to the CPU: that is what travels.
  static Result forward(const RRef<Module>& module, const std::decay_t<P>&... arguments) {
    Module& local = module.local_value();
    const std::vector<at::Tensor> parameters = local.parameters();
    const c10::Device cpu(c10::kCPU);
    const c10::Device device = parameters.empty() ? cpu : parameters.front().device();
    return moved(Result(local.forward(moved(std::decay_t<P>(arguments), device)...)), cpu);
  }
};
template <class Module, class R, class... P>
class ServedForward<Module, R (Module::*)(P...) const>
    : public ServedForward<Module, R (Module::*)(P...)> {};

template <class Module>
class ServedModule : public ServedForward<Module, decltype(&Module::forward)> {
 public:
  static void place(const RRef<Module>& module, const std::string& device) {
    module.local_value().to(checked_device(device));
  }
  static std::vector<RRef<at::Tensor>> parameters(const RRef<Module>& module) {
    return parameter_rrefs(current_worker(), module.local_value());
  }
  static void train(const RRef<Module>& module, bool on) { module.local_value().train(on); }
};

}  // namespace internal

/// Adds what a RemoteModule of this class needs to the methods of the worker where it is made: the
/// constructor that SINEW_CLASS named, and what SINEW_MODULE did.
template <class Module>
MethodTable& add_module(MethodTable& methods) {
  using Served = internal::ServedModule<Module>;
  return methods.add_class<Module>()
      .template add<&Served::forward>()
      .template add<&Served::place>()
      .template add<&Served::parameters>()
      .template add<&Served::train>();
}

/// A module (a torch::nn::Module, or anything with its forward(), parameters(), train() and to())
/// that lives on another worker.
///
///     SINEW_CLASS(app::Net, std::int64_t);        // at global scope, beside the declaration
///     SINEW_MODULE(app::Net);
///     sinew::add_module<app::Net>(methods);       // at the worker that it is made on
///
///     sinew::RemoteModule<app::Net> net(worker, "server/cuda:0", 64);
///     at::Tensor output = net.forward(input);
///     sinew::optim::DistributedOptimizer optimizer(worker, net.remote_parameters(), options);
///
/// In an autograd context gradients go through forward(). A handle: copies are the same module, and
/// it can be passed in calls, also as its module_rref(). What blocks throws as rpc_sync does.
template <class Module>
class RemoteModule {
 public:
  /// An empty handle; using it throws kFailedPrecondition.
  RemoteModule() = default;
  /// Makes `Module(arguments...)` at `where`: "worker", "worker/cuda:0", "rank:1/cpu". Blocks until
  /// it is there and on its device. Throws RpcError: kInvalidArgument for a text that names no
  /// place or a device that the worker does not have, kNotFound for a worker that there is not, and
  /// what the constructor threw.
  template <class... Args>
  RemoteModule(const Worker& worker, std::string_view where, Args&&... arguments) {
    const internal::RemoteDevice place = internal::parse_remote_device(worker, where);
    module_ = remote<Module>(place.peer, std::forward<Args>(arguments)...);
    rpc_sync<&Served::place>(place.peer, module_, place.device);
  }
  /// A handle on a module that was made before.
  explicit RemoteModule(RRef<Module> module) : module_(std::move(module)) {}

  /// Blocks; or does not. Tensors may be on any device of the module's worker's, results come to
  /// the CPU.
  template <class... Args>
  auto forward(Args&&... arguments) const {
    return rpc_sync<&Served::forward>(module_.peer(), module_, std::forward<Args>(arguments)...);
  }
  template <class... Args>
  auto forward_async(Args&&... arguments) const {
    return rpc_async<&Served::forward>(module_.peer(), module_, std::forward<Args>(arguments)...);
  }

  /// In the order of the module's parameters(). Blocks.
  std::vector<RRef<at::Tensor>> remote_parameters() const {
    return rpc_sync<&Served::parameters>(module_.peer(), module_);
  }
  /// Switches the module between training and evaluation. Blocks.
  void train(bool on = true) const { rpc_sync<&Served::train>(module_.peer(), module_, on); }
  void eval() const { train(false); }

  const RRef<Module>& module_rref() const { return module_; }

 private:
  using Served = internal::ServedModule<Module>;

  RRef<Module> module_;
};

template <class Module>
struct Codec<RemoteModule<Module>> {
  static void encode(ValueWriter& writer, const RemoteModule<Module>& module) {
    Codec<RRef<Module>>::encode(writer, module.module_rref());
  }
  static RemoteModule<Module> decode(const ValueReader& reader) {
    return RemoteModule<Module>(Codec<RRef<Module>>::decode(reader));
  }
  static std::string signature() { return "reference"; }
};

}  // namespace sinew
