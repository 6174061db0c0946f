// Mistakes in SINEW_STRUCT, which says some of them itself; others are found where the struct is to
// travel. Each has a namespace of its own.
#include <cstdint>
#include <optional>
#include <string>

#include "sinew/sinew.h"

namespace field_left_out {
struct Settings {
  double gamma = 1;
  std::optional<std::string> name;
  std::uint64_t seed = 0;
};
}  // namespace field_left_out
// error: Sinew: field_left_out::Settings has a field that SINEW_STRUCT does not list
SINEW_STRUCT(field_left_out::Settings, gamma, seed);

namespace field_listed_twice {
struct Settings {
  double gamma = 1;
  double lambda = 1;
};
}  // namespace field_listed_twice
// error: Sinew: SINEW_STRUCT lists a field of field_listed_twice::Settings twice
SINEW_STRUCT(field_listed_twice::Settings, gamma, gamma);

namespace struct_in_a_namespace {
struct Settings {
  double gamma = 1;
};
// error: Sinew: SINEW_STRUCT is written at global scope
SINEW_STRUCT(struct_in_a_namespace::Settings, gamma);
}  // namespace struct_in_a_namespace

namespace constant_field {
struct Settings {
  const double gamma = 1;
};
void use(const Settings& settings);
}  // namespace constant_field
SINEW_STRUCT(constant_field::Settings, gamma);
SINEW_METHOD(constant_field::use);

namespace function_as_a_field {
struct Settings {
  double gamma() const;
  double lambda = 1;
};
void use(const Settings& settings);
}  // namespace function_as_a_field
SINEW_STRUCT(function_as_a_field::Settings, gamma, lambda);
SINEW_METHOD(function_as_a_field::use);

namespace static_field {
struct Settings {
  double gamma = 1;
  static double lambda;
};
void use(const Settings& settings);
}  // namespace static_field
SINEW_STRUCT(static_field::Settings, gamma, lambda);
SINEW_METHOD(static_field::use);

namespace no_default_constructor {
struct Settings {
  explicit Settings(double value) : gamma(value) {}
  double gamma;
};
void use(const Settings& settings);
}  // namespace no_default_constructor
SINEW_STRUCT(no_default_constructor::Settings, gamma);
SINEW_METHOD(no_default_constructor::use);

namespace field_that_cannot_travel {
struct Settings {
  double gamma = 1;
  const char* name = "";
};
int make(const Settings& settings);
}  // namespace field_that_cannot_travel
SINEW_STRUCT(field_that_cannot_travel::Settings, gamma, name);
SINEW_METHOD(field_that_cannot_travel::make);

void serve(sinew::MethodTable& methods) {
  // error: Sinew: a field of this struct is const, static or a function
  methods.add<&constant_field::use>();

  // error: Sinew: a field of this struct is const, static or a function
  methods.add<&function_as_a_field::use>();

  // error: Sinew: a field of this struct is const, static or a function
  methods.add<&static_field::use>();

  // error: Sinew: the receiver makes this struct without arguments
  methods.add<&no_default_constructor::use>();
}

int call(const sinew::Peer& peer) {
  // error: Sinew: a field of this struct has a type that cannot travel
  return peer.call<&field_that_cannot_travel::make>(field_that_cannot_travel::Settings());
}
