#include <stdexcept>
#include <string>

#include "methods.h"

namespace {
void expect(bool is_so, const char* what) {
  if (!is_so) throw std::runtime_error(what);
}
}  // namespace

extern "C" APP_VISIBLE void app_call(sinew::Worker& worker) {
  const sinew::Peer peer = worker.peer("alone");
  expect(peer.call<&app::weigh>(app::Tree{1, {{2, {}}, {3, {{4, {}}}}}}) == 10,
         "a struct that contains itself");

  const sinew::RRef<app::Counter> counter = worker.peer("alone").remote<app::Counter>();
  expect(counter.call<&app::Counter::add>(42) == 42, "an object");
  expect(counter.local_value().add(1) == 43, "the object's own type");

  try {
    peer.call<&app::refuse>();
    expect(false, "no error");
  } catch (const sinew::RpcError& error) {
    expect(error.code() == sinew::ErrorCode::kFailedPrecondition, "the error's code");
    expect(error.message().find("not for alone") != std::string::npos, "the caller's name");
  }

  // The context is this thread's, in the library of Sinew.
  const at::Tensor factor = at::full({2}, 3.0).requires_grad_();
  const sinew::autograd::Context context(worker);
  const at::Tensor scaled = peer.call<&app::scale>(at::full({2}, 5.0), factor);
  sinew::autograd::backward(context, {scaled.sum()});
  expect(sinew::autograd::gradient_of(context, factor).equal(at::full({2}, 5.0)), "the gradient");
}
