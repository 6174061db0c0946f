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
#include "sinew/optim/remote_device.h"
#include "sinew/optim/state_dict.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/method.h"
#include "sinew/rref/remote.h"

/// SINEW_SERVICE for a module's class: names its constructor, its forward() for RemoteModule, and
/// up to 64 further member functions, if any: SINEW_MODULE(app::Net, (std::int64_t), loss).
#define SINEW_MODULE(Class, ...)                                              \
  SINEW_INTERNAL_AT_GLOBAL_SCOPE("SINEW_MODULE");                             \
  SINEW_INTERNAL_SERVICE(sinew::internal::ModuleService, Class, __VA_ARGS__); \
  SINEW_INTERNAL_NAME_HOST(Class, sinew::internal::HostConstructor<Class>)
#define SINEW_INTERNAL_NAME_HOST(Class, Constructor)             \
  template <>                                                    \
  struct sinew::ConstructorName<Constructor> {                   \
    static constexpr std::string_view value = #Class "::(host)"; \
  };                                                             \
  SINEW_INTERNAL_NAME_HOST_METHOD(Class, forward);               \
  SINEW_INTERNAL_NAME_HOST_METHOD(Class, place);                 \
  SINEW_INTERNAL_NAME_HOST_METHOD(Class, parameters);            \
  SINEW_INTERNAL_NAME_HOST_METHOD(Class, buffers);               \
  SINEW_INTERNAL_NAME_HOST_METHOD(Class, train);                 \
  SINEW_INTERNAL_NAME_HOST_METHOD(Class, state_dict);            \
  SINEW_INTERNAL_NAME_HOST_METHOD(Class, load_state_dict)
#define SINEW_INTERNAL_NAME_HOST_METHOD(Class, method)                      \
  template <>                                                               \
  struct sinew::MethodName<&sinew::internal::ModuleHostOf<Class>::method> { \
    static constexpr std::string_view value = #Class "::(" #method ")";     \
  }

namespace sinew {
namespace internal {

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

/// What RemoteModule calls, at the worker of its module. Kept with the module, rather than given a
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
                "reference.async<&Module::forward>(...)");

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
  std::vector<RRef<at::Tensor>> buffers() { return buffer_rrefs(current_worker(), *module_); }
  void train(bool on) { module_->train(on); }
  Future<optim::StateDict> state_dict() {
    return copy_tensors(current_worker(), named_tensors(*module_));
  }
  Future<void> load_state_dict(const optim::StateDict& values) {
    return overwrite_tensors(current_worker(), named_tensors(*module_), values);
  }

 private:
  const std::shared_ptr<Module> module_;
};

/// What SINEW_MODULE registers for a class: what SINEW_SERVICE does, and what a RemoteModule calls.
template <class Constructor, auto... Methods>
struct ModuleService : Service<Constructor, Methods...> {
  using module = typename MethodTraits<Constructor>::return_type;
  template <class Table>
  static void add_to(Table& methods, const MethodRules& rules) {
    using Host = ModuleHostOf<module>;
    Service<Constructor, Methods...>::add_to(methods, rules);
    methods.template add_constructor<HostConstructor<module>>(rules);
    methods.template add<&Host::forward, &Host::place, &Host::parameters, &Host::buffers,
                         &Host::train, &Host::state_dict, &Host::load_state_dict>(rules);
  }
};

template <class Service, class = void>
inline constexpr bool is_module_service_v = false;
template <class Service>
inline constexpr bool is_module_service_v<Service, std::void_t<typename Service::module>> = true;

template <class Module>
constexpr bool check_module() {
  constexpr bool is_module = is_module_service_v<ServiceOf<Module>>;
  static_assert(is_module,
                "Sinew: this module has no name here: write SINEW_MODULE(Class, (Parameters...), "
                "methods...); at global scope, behind the class and before its first use");
  return is_module;
}

}  // namespace internal

/// A module (a torch::nn::Module, or anything with its forward(), parameters(), train() and to())
/// that lives on another worker.
///
///     SINEW_MODULE(app::Net, (std::int64_t));  // at global scope, behind the class
///
///     sinew::serve<app::Net>();  // at the worker that it is made on
///     ...
///     sinew::RemoteModule<app::Net> net("server/cuda:0", 64);
///     at::Tensor output = net.forward(input);
///     sinew::optim::DistributedOptimizer optimizer(net.remote_parameters(), options);
///
/// In an autograd context gradients go through forward(). A handle: copies are the same module, and
/// it can be passed in calls, also as its module_rref(). What blocks throws as Peer::call() does.
template <class Module>
class RemoteModule {
 public:
  /// An empty handle; using it throws kFailedPrecondition.
  RemoteModule() = default;
  /// Makes `Module(arguments...)` at `where`: a Peer, a RemoteDevice{peer, "cuda:0"}, or a worker's
  /// text, "worker", "worker/cuda:0", "rank:1/cpu". Blocks until it is there and on its device;
  /// options of the peer count for that. Throws RpcError: kInvalidArgument for a text that names no
  /// place or a device that the worker does not have, kNotFound for a worker that there is not, and
  /// what the constructor threw.
  template <class... Args>
  explicit RemoteModule(const RemoteDevice& where, Args&&... arguments)
      : RemoteModule(make_at(where.peer, std::forward<Args>(arguments)...)) {
    host_.with(where.peer.options()).template call<&Host::place>(where.device);
  }
  template <class... Args>
  RemoteModule(const Worker& worker, std::string_view where, Args&&... arguments)
      : RemoteModule(RemoteDevice(worker, where), std::forward<Args>(arguments)...) {}
  /// A handle on a module that was made before, also by other means. Does not block.
  explicit RemoteModule(RRef<Module> module) : module_(std::move(module)) {
    if constexpr (internal::check_module<Module>()) {
      host_ = module_.peer().template remote<internal::HostConstructor<Module>>(module_);
    }
  }

  /// Blocks; or does not. Arguments are moved to the module's device. Results are on the device of
  /// this worker that WorkerOptions::device_maps maps to it; without such a map, on the CPU.
  template <class... Args>
  auto forward(Args&&... arguments) const {
    return forward_with(internal::WhenFull::kWait, std::forward<Args>(arguments)...).take();
  }
  template <class... Args>
  auto forward_async(Args&&... arguments) const {
    return forward_with(internal::WhenFull::kFail, std::forward<Args>(arguments)...);
  }

  /// In the order of the module's parameters(). Blocks.
  std::vector<RRef<at::Tensor>> remote_parameters() const {
    return host_.template call<&Host::parameters>();
  }
  /// In the order of the module's buffers(), for DistributedOptimizer::keep(); none for a class
  /// without buffers(). Blocks.
  std::vector<RRef<at::Tensor>> remote_buffers() const {
    return host_.template call<&Host::buffers>();
  }
  /// Copies of its parameters and buffers by their names, from between two steps of optimizers, on
  /// the CPU; save_state_dict() writes them to a file. Throws RpcError kUnimplemented for a class
  /// without named_parameters() and named_buffers(). Blocks.
  optim::StateDict state_dict() const { return host_.template call<&Host::state_dict>(); }
  /// Gives it such values, between two steps, also those of another process or of Python's PyTorch:
  /// see load_state_dict(path). Throws RpcError kInvalidArgument that lists what is missing,
  /// unknown or of other sizes; then nothing has changed. Blocks.
  void load_state_dict(const optim::StateDict& state) const {
    host_.template call<&Host::load_state_dict>(state);
  }
  /// Switches the module between training and evaluation. Blocks.
  void train(bool on = true) const { host_.template call<&Host::train>(on); }
  void eval() const { train(false); }

  const RRef<Module>& module_rref() const { return module_; }

 private:
  friend struct Codec<RemoteModule>;
  using Host = internal::ModuleHostOf<Module>;

  RemoteModule(RRef<Module> module, RRef<Host> host)
      : module_(std::move(module)), host_(std::move(host)) {}

  template <class... Args>
  static RRef<Module> make_at(const Peer& peer, Args&&... arguments) {
    if constexpr (internal::check_module<Module>()) {
      return peer.remote<Module>(std::forward<Args>(arguments)...);
    } else {
      return {};
    }
  }
  // auto, so that a class without a name is complained of where this is used.
  template <class... Args>
  auto forward_with(internal::WhenFull when_full, Args&&... arguments) const {
    if constexpr (internal::check_module<Module>()) {
      return internal::call_object<&Host::forward>(host_, when_full,
                                                   std::forward<Args>(arguments)...);
    } else {
      return Future<typename Host::Result>();
    }
  }

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
