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
SINEW_METHOD(app::scale);              // the names that travel
SINEW_SERVICE(app::Counter, (), add);  // with the constructor's parameter types

int main(int argc, char** argv) {
  const auto methods = sinew::serve<app::Counter>().add<&app::scale>();  // what others may call
  sinew::Worker worker = sinew::init_rpc(argc > 1 ? argv[1] : "alice", methods);
  if (worker.name() == "alice") {
    at::Tensor doubled = worker.peer("bob").call<&app::scale>(at::arange(3), 2.0);
    sinew::RRef<app::Counter> counter = worker.peer("bob").remote<app::Counter>();
    sinew::Future<std::int64_t> total = counter.async<&app::Counter::add>(42);
    std::cout << doubled << "\n" << total.wait() << std::endl;
    worker.shutdown();  // the job is over
  } else {
    worker.serve_until_done();  // however long that takes; SIGTERM ends it, too
  }
}
