#include <iostream>

#include "ATen/ATen.h"
#include "sinew/sinew.h"

namespace app {
at::Tensor bobs_weight = at::full({3}, 2.0).requires_grad_();

at::Tensor layer(const at::Tensor& input) { return input * bobs_weight; }
sinew::RRef<at::Tensor> weight() { return sinew::make_rref(bobs_weight); }
}  // namespace app
SINEW_METHOD(app::layer, app::weight);

int main(int argc, char** argv) {
  const auto methods = sinew::MethodTable().add<&app::layer, &app::weight>();
  const sinew::Worker worker = sinew::init_rpc(argc > 1 ? argv[1] : "alice", methods);
  if (worker.name() == "alice") {
    const at::Tensor mine = at::arange(3.0).requires_grad_();
    const sinew::Peer bob = worker.peer("bob");
    const auto bobs = bob.call<&app::weight>();  // a reference: the weight stays there
    sinew::optim::SgdOptions sgd;
    sgd.lr = 0.5;
    const sinew::optim::DistributedOptimizer optimizer({sinew::make_rref(mine), bobs}, sgd);
    const sinew::autograd::Context context;  // calls of this thread record from here on
    const at::Tensor loss = bob.call<&app::layer>(mine).sum();
    sinew::autograd::backward(context, {loss});                             // on both workers
    std::cout << sinew::autograd::gradient_of(context, mine) << std::endl;  // bob's weight
    optimizer.step(context);                                                // each owner its own
    std::cout << mine.detach() << "\n" << bobs.to_here().detach() << std::endl;
  }
  worker.shutdown();
}
