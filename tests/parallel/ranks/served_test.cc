#include "sinew/tests/parallel/ranks/served_test.h"

#include <thread>

namespace testranks {

void ServedTest::start_workers(const sinew::MethodTable& methods) {
  std::thread server;
  if (rank() == 0) server = std::thread([&] { server_ = start("server", size(), methods); });
  worker_ = start("trainer" + std::to_string(rank()), rank(), methods);
  if (server.joinable()) server.join();
}

void ServedTest::end_workers() {
  std::thread server;
  if (rank() == 0) server = std::thread([this] { server_.shutdown(); });
  worker_.shutdown();
  if (server.joinable()) server.join();
}

sinew::Worker ServedTest::start(const std::string& name, int number,
                                const sinew::MethodTable& methods) const {
  sinew::WorkerOptions options;
  options.name = name;
  options.rank = number;
  options.world_size = size() + 1;
  options.init_method = "file://" + place().folder + "/workers." +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name();
  options.methods = methods;
  return sinew::init_rpc(options);
}

}  // namespace testranks
