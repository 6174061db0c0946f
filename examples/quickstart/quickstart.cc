#include <atomic>
#include <iostream>

#include "ATen/ATen.h"
#include "sinew/sinew.h"

namespace app {
at::Tensor scale(const at::Tensor& input, double factor) { return input * factor; }

struct Counter {  // stays where it is made; others hold references to it
  std::int64_t add(std::int64_t amount) { return total += amount; }
  std::atomic<std::int64_t> total{0};
};
}  // namespace app
SINEW_METHOD(app::scale);  // the names that travel
SINEW_METHOD(app::Counter::add);
SINEW_SERVICE(app::Counter, ());

int main(int argc, char** argv) {
  sinew::MethodTable methods;  // what others may call here
  methods.add<&app::scale>().add<&app::Counter::add>().serve<app::Counter>();
  sinew::Worker worker = sinew::init_rpc(argc > 1 ? argv[1] : "alice", methods);
  if (worker.name() == "alice") {
    at::Tensor doubled = worker.rpc_sync<&app::scale>("bob", at::arange(3), 2.0);
    sinew::RRef<app::Counter> counter = sinew::remote<app::Counter>(worker.peer("bob"));
    sinew::Future<std::int64_t> total = sinew::rpc_async<&app::Counter::add>(counter, 42);
    std::cout << doubled << "\n" << total.wait() << std::endl;
  }
  worker.shutdown();  // waits for the other one
}
