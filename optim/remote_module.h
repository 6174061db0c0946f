#pragma once

#include <memory>
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
  struct sinew::ConstructorName<sinew::internal::HostConstructor<__VA_ARGS__>> {      \
    static constexpr std::string_view value = #__VA_ARGS__ "::(host)";                \
  };                                                                                  \
  template <>                                                                         \
  struct sinew::MethodName<&sinew::internal::ModuleHostOf<__VA_ARGS__>::forward> {    \
    static constexpr std::string_view value = #__VA_ARGS__ "::(forward)";             \
  };                                                                                  \
  template <>                                                                         \
  struct sinew::MethodName<&sinew::internal::ModuleHostOf<__VA_ARGS__>::place> {      \
    static constexpr std::string_view value = #__VA_ARGS__ "::(place)";               \
  };                                                                                  \
  template <>                                                                         \
  struct sinew::MethodName<&sinew::internal::ModuleHostOf<__VA_ARGS__>::parameters> { \
    static constexpr std::string_view value = #__VA_ARGS__ "::(parameters)";          \
  };                                                                                  \
  template <>                                                                         \
  struct sinew::MethodName<&sinew::internal::ModuleHostOf<__VA_ARGS__>::train> {      \
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

/// Where results that are on `device` are sent from: there if the caller of this handler has mapped
/// a device to it, otherwise from the CPU.
c10::Device result_device(const c10::Device& device);

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

/// The type of a member function without what it says about its object.
template <class Forward>
struct PlainMember {
  using type = Forward;
};
template <class C, class R, class... P>
struct PlainMember<R (C::*)(P...) const> {
  using type = R (C::*)(P...);
};

/// What RemoteModule calls, at the worker of its module. Beside the module rather than given a
/// reference to it by each call, since a reference on its way costs messages of its own.
template <class Module, class Forward>
class ModuleHost;
template <class Module>
using ModuleHostOf = ModuleHost<Module, typename PlainMember<decltype(&Module::forward)>::type>;
template <class Module>
using HostConstructor = ModuleHostOf<Module>(RRef<Module>);

template <class Module, class R, class... P>
class ModuleHost<Module, R (Module::*)(P...)> {
 public:
  using Result = std::decay_t<R>;
  static_assert(!ResultOf<R>::is_future,
                "Sinew: the forward() of a RemoteModule returns values, no Future; call it by "
                "rpc_async<&Module::forward>(reference, ...)");

  explicit ModuleHost(const RRef<Module>& module) : module_(module.local_shared()) {}

  /// Arguments go to where the module is, and results come back by the caller's device map.
  Result forward(const std::decay_t<P>&... arguments) {
    const std::vector<at::Tensor> parameters = module_->parameters();
    const c10::Device cpu(c10::kCPU);
    const c10::Device device = parameters.empty() ? cpu : parameters.front().device();
    return moved(Result(module_->forward(moved(std::decay_t<P>(arguments), device)...)),
                 result_device(device));
  }
  void place(const std::string& device) { module_->to(checked_device(device)); }
  std::vector<RRef<at::Tensor>> parameters() { return parameter_rrefs(current_worker(), *module_); }
  void train(bool on) { module_->train(on); }

 private:
  const std::shared_ptr<Module> module_;
};

}  // namespace internal

/// Adds what a RemoteModule of this class needs to the methods of the worker where it is made: the
/// constructor that SINEW_CLASS named, and what SINEW_MODULE did.
template <class Module>
MethodTable& add_module(MethodTable& methods) {
  using Host = internal::ModuleHostOf<Module>;
  return methods.add_class<Module>()
      .template add_constructor<internal::HostConstructor<Module>>()
      .template add<&Host::forward>()
      .template add<&Host::place>()
      .template add<&Host::parameters>()
      .template add<&Host::train>();
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
    *this = RemoteModule(remote<Module>(place.peer, std::forward<Args>(arguments)...));
    rpc_sync<&Host::place>(host_, place.device);
  }
  /// A handle on a module that was made before, also by other means. Does not block.
  explicit RemoteModule(RRef<Module> module)
      : module_(std::move(module)),
        host_(remote<internal::HostConstructor<Module>>(module_.peer(), module_)) {}

  /// Blocks; or does not. Arguments are moved to the module's device. Results are on the device of
  /// this worker that WorkerOptions::device_maps maps to it; without such a map, on the CPU.
  template <class... Args>
  auto forward(Args&&... arguments) const {
    return rpc_sync<&Host::forward>(host_, std::forward<Args>(arguments)...);
  }
  template <class... Args>
  auto forward_async(Args&&... arguments) const {
    return rpc_async<&Host::forward>(host_, std::forward<Args>(arguments)...);
  }

  /// In the order of the module's parameters(). Blocks.
  std::vector<RRef<at::Tensor>> remote_parameters() const {
    return rpc_sync<&Host::parameters>(host_);
  }
  /// Switches the module between training and evaluation. Blocks.
  void train(bool on = true) const { rpc_sync<&Host::train>(host_, on); }
  void eval() const { train(false); }

  const RRef<Module>& module_rref() const { return module_; }

 private:
  friend struct Codec<RemoteModule>;
  using Host = internal::ModuleHostOf<Module>;

  RemoteModule(RRef<Module> module, RRef<Host> host)
      : module_(std::move(module)), host_(std::move(host)) {}

  RRef<Module> module_;
  RRef<Host> host_;
};

template <class Module>
struct Codec<RemoteModule<Module>> {
  static void encode(ValueWriter& writer, const RemoteModule<Module>& module) {
    ListWriter list = writer.list(2);
    ValueWriter first = list.next();
    Codec<RRef<Module>>::encode(first, module.module_);
    ValueWriter second = list.next();
    Codec<RRef<Host<Module>>>::encode(second, module.host_);
  }
  static RemoteModule<Module> decode(const ValueReader& reader) {
    const ListReader list = reader.list(2);
    return RemoteModule<Module>(Codec<RRef<Module>>::decode(list.item(0)),
                                Codec<RRef<Host<Module>>>::decode(list.item(1)));
  }
  static std::string signature() { return "tuple<reference,reference>"; }

 private:
  template <class M>
  using Host = internal::ModuleHostOf<M>;
};

}  // namespace sinew
