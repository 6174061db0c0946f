// A worker of the tests of streams over processes: stream_worker NAME FILE. Says "ok" when it has
// joined, and ends when its input does.

#include <chrono>
#include <iostream>
#include <string>

#include "sinew/tests/streams/process_methods.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  sinew::WorkerOptions options;
  options.name = argv[1];
  options.methods = stream_processes::table();
  options.init_method = std::string("file://") + argv[2];
  // So that nothing here ends because a lease does.
  options.lease = std::chrono::minutes(10);
  sinew::Worker worker = sinew::init_rpc(options);
  std::cout << "ok" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) std::cout << line << std::endl;
  worker.shutdown({false});
  return 0;
}
