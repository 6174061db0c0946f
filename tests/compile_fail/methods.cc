// Mistakes in SINEW_METHOD. Each has a namespace of its own, which its sentence names.
#include "sinew/sinew.h"

namespace lambda_as_a_method {
inline constexpr auto kTwice = [](int number) { return 2 * number; };
}
// error: Sinew: lambda_as_a_method::kTwice is no function: a lambda or an object has no name
SINEW_METHOD(lambda_as_a_method::kTwice);

namespace method_in_a_namespace {
int add(int a, int b);
// error: Sinew: SINEW_METHOD is written at global scope
SINEW_METHOD(add);
}  // namespace method_in_a_namespace

namespace overloaded_method {
int add(int a, int b);
double add(double a, double b);
}  // namespace overloaded_method
// error: Sinew: overloaded_method::add is overloaded or a function template: name each by itself,
// as in SINEW_METHOD_AS
SINEW_METHOD(overloaded_method::add);

// Behind its sentence the compilers say that it has the name that overloaded_method has: neither
// has one.
namespace function_template_as_a_method {
template <class T>
T twice(T number);
}
// error: Sinew: function_template_as_a_method::twice is overloaded or a function template
SINEW_METHOD(function_template_as_a_method::twice);
