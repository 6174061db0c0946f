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
///     sinew::MethodTable methods;
///     methods.add<&app::scale>().add<&app::Agent::select_action>().add_class<app::Observer>();
class MethodTable {
 public:
  /// Adds a function named by SINEW_METHOD, which is called as `rules` allow. Throws RpcError
  /// kAlreadyExists when another one has its name, or when it was added with other rules; adding
  /// the same one again does nothing.
  template <auto Method>
  MethodTable& add(MethodRules rules = MethodRules()) {
    using Traits = internal::MethodTraits<decltype(Method)>;
    static_assert(internal::has_value_v<MethodName<Method>>,
                  "Sinew: this method has no name: write SINEW_METHOD(function); at global scope "
                  "after its declaration");
    constexpr bool parameters_ok = internal::check_parameters(typename Traits::parameters());
    if constexpr (parameters_ok && internal::has_value_v<MethodName<Method>>) {
      using Text = internal::MethodText<MethodName<Method>, Traits>;
      add_entry({Text::name, Text::signature(), &internal::serve_method<Method>, std::move(rules)});
    }
    return *this;
  }

  /// Adds the constructor named by SINEW_CLASS. `rules` are those of the constructor alone: methods
  /// of the class have their own.
  template <class Class>
  MethodTable& add_class(MethodRules rules = MethodRules()) {
    static_assert(
        internal::has_type_v<PrimaryConstructor<Class>>,
        "Sinew: this class has no name: write SINEW_CLASS(Class, Parameters...); at global scope");
    if constexpr (internal::has_type_v<PrimaryConstructor<Class>>) {
      add_constructor<typename PrimaryConstructor<Class>::type>(std::move(rules));
    }
    return *this;
  }

  /// Adds a constructor named by SINEW_CONSTRUCTOR; `Signature` is Class(Parameters...).
  template <class Signature>
  MethodTable& add_constructor(MethodRules rules = MethodRules()) {
    using Traits = internal::MethodTraits<Signature>;
    static_assert(internal::has_value_v<ConstructorName<Signature>>,
                  "Sinew: this constructor has no name: write SINEW_CONSTRUCTOR(Class, "
                  "Parameters...); at global scope");
    constexpr bool parameters_ok = internal::check_parameters(typename Traits::parameters());
    if constexpr (parameters_ok && internal::has_value_v<ConstructorName<Signature>>) {
      using Text = internal::MethodText<ConstructorName<Signature>, Traits>;
      add_entry({Text::name, Text::signature(), &internal::serve_constructor<Signature>,
                 std::move(rules)});
    }
    return *this;
  }

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
  void add_entry(Entry entry);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sinew
