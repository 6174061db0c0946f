#pragma once

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/sinew.h"

// A chain of nested calls whose backward can be made to fail, or to stop, at one of the workers.
namespace testgrad {

/// What happens in the backward pass at the worker that was chosen.
enum class AtBackward { kNothing, kThrow, kStop };

/// Doubles `input`, and passes it on to the next of `workers`, and so on. `at`: the worker at which
/// something happens in the backward pass; behind it comes a product with that worker's leaf.
at::Tensor chain(const at::Tensor& input, const std::vector<std::string>& workers,
                 const std::string& at, AtBackward what);

/// From now on kThrow throws or not, at the worker that is called.
void set_throwing(bool throwing);
/// Whether a backward pass has come to kStop, at the worker that is called; lets it go on.
bool has_stopped();
void go_on();
/// Makes a context at the worker that is called, which ends with the process, and uses it with a
/// call to `peer`.
void keep_context(const std::string& peer);

void add_chain_methods(sinew::MethodTable& methods);

}  // namespace testgrad

SINEW_METHOD(testgrad::chain, testgrad::set_throwing, testgrad::has_stopped, testgrad::go_on,
             testgrad::keep_context);
