// host RENDEZVOUS METHODS CALLS: a worker with the methods of one library, of which another one
// makes use.

#include <dlfcn.h>
#include <sinew/sinew.h>

#include <iostream>
#include <stdexcept>

namespace {
// Each sees its own names and those that it was linked with, no others.
template <class Function>
Function load(const char* file, const char* name) {
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  void* function = library == nullptr ? nullptr : ::dlsym(library, name);
  if (function == nullptr) throw std::runtime_error(::dlerror());
  return reinterpret_cast<Function>(function);
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    sinew::WorkerOptions options;
    options.name = "alone";
    options.init_method = argv[1];
    options.rank = 0;
    options.world_size = 1;
    load<void (*)(sinew::MethodTable&)>(argv[2], "app_add_methods")(options.methods);
    sinew::Worker worker = sinew::init_rpc(options);
    load<void (*)(sinew::Worker&)>(argv[3], "app_call")(worker);
    worker.shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "host: " << error.what() << "\n";
    return 1;
  }
}
