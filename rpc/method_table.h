#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sinew/rpc/calls/serve.h"
#include "sinew/rpc/method.h"
#include "sinew/rpc/method_rules.h"

namespace sinew {

/// The methods that a worker serves. Fill one and hand it to the worker, which keeps a copy; adding
/// to it later has no effect on a worker that runs. Not thread-safe.
///
///     sinew::init_rpc("learner", sinew::serve<app::Agent>(sinew::allow("trainer.*"))
///                                    .add<&app::scale, &app::mean>());
///
/// What is added at once is called as the rules given allow: each method has their limits to
/// itself. Each function throws RpcError kAlreadyExists when another method has the name of one of
/// them, or when it was added with other rules; adding the same one again does nothing. It throws
/// kInvalidArgument for a free function with one_at_a_time().
class MethodTable {
 public:
  /// Adds functions named by SINEW_METHOD, SINEW_METHOD_AS or SINEW_SERVICE.
  template <auto... Methods>
  MethodTable& add(const MethodRules& rules = MethodRules()) {
    (add_method<Methods>(rules), ...);
    return *this;
  }

  /// Adds the constructors and the methods that SINEW_SERVICE has named.
  template <class... Classes>
  MethodTable& serve(const MethodRules& rules = MethodRules()) {
    (add_service<Classes>(rules), ...);
    return *this;
  }

  /// Adds a constructor named by SINEW_CONSTRUCTOR; `Signature` is Class(Parameters...).
  template <class Signature>
  MethodTable& add_constructor(const MethodRules& rules = MethodRules()) {
    if constexpr (internal::check_constructor_name<Signature>()) {
      using Traits = internal::MethodTraits<Signature>;
      if constexpr (internal::check_parameters(typename Traits::parameters())) {
        using Text = internal::MethodText<ConstructorName<Signature>, Traits>;
        add_entry({Text::name, Text::signature(), &internal::serve_constructor<Signature>, rules});
      }
    }
    return *this;
  }

  /// Which callers may call the methods of Sinew's own layers here: those whose names match the
  /// pattern, such as "sinew.optim.*" (optimizers and checkpoints), "sinew.autograd.*",
  /// "sinew.names.*" (what is published), "sinew.store" (of process groups), "sinew.fetch" (values
  /// of references), "sinew.methods". Of several patterns that match the first one counts; without
  /// one all in the job may call.
  ///
  /// Throws RpcError kInvalidArgument for a pattern that does not begin with "sinew.", and for
  /// rules with limits. A worker does not start with a pattern that matches no method of the layers
  /// which its program includes.
  MethodTable& restrict(std::string_view pattern, const MethodRules& rules);
  /// The rules for a method of a layer; null: there are none.
  const MethodRules* restriction(std::string_view method) const;
  /// kInvalidArgument: a pattern that was restricted matches none of the names.
  absl::Status check_restrictions(const std::vector<std::string>& methods) const;

  struct Entry {
    std::string_view name;
    std::string signature;
    internal::ServeFunction serve = nullptr;
    MethodRules rules = {};
  };

  /// Null when there is none.
  const Entry* find(std::string_view name) const;
  /// Sorted.
  std::vector<std::string> names() const;
  /// Changes when a name or a signature does.
  std::uint64_t digest() const;

  MethodTable();
  MethodTable(const MethodTable&);
  MethodTable& operator=(const MethodTable&);
  /// What was moved from can be used again, whatever it holds.
  MethodTable(MethodTable&&);
  MethodTable& operator=(MethodTable&&) noexcept;
  ~MethodTable();

 private:
  template <auto Method>
  void add_method(const MethodRules& rules) {
    if constexpr (internal::check_method_name<Method>()) {
      using Traits = internal::MethodTraits<decltype(Method)>;
      if constexpr (internal::check_parameters(typename Traits::parameters())) {
        using Text = internal::MethodText<MethodName<Method>, Traits>;
        if constexpr (!Traits::is_member) check_no_turns(Text::name, rules);
        add_entry({Text::name, Text::signature(), &internal::serve_method<Method>, rules});
      }
    }
  }
  template <class Class>
  void add_service(const MethodRules& rules) {
    if constexpr (internal::check_service<Class>()) {
      internal::ServiceOf<Class>::add_to(*this, rules);
    }
  }
  static void check_no_turns(std::string_view name, const MethodRules& rules);
  void add_entry(Entry entry);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A table with the constructors and the methods that SINEW_SERVICE has named.
template <class... Classes>
MethodTable serve(const MethodRules& rules = MethodRules()) {
  return std::move(MethodTable().serve<Classes...>(rules));
}

}  // namespace sinew
