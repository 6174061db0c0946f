// A worker with references, and without the layers above them.

#include "part.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  sinew::WorkerOptions options = app::member("part", 1, argv[1]);
  options.methods = sinew::serve<app::Counter>().add<&app::twice>();
  sinew::init_rpc(options).shutdown();
  return 0;
}
