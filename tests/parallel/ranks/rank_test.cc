#include "sinew/tests/parallel/ranks/rank_test.h"

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace testranks {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return value;
}

}  // namespace

const Place& place() {
  static const Place place{std::stoi(variable("TEST_RANK")), std::stoi(variable("TEST_SIZE")),
                           variable("TEST_FOLDER")};
  return place;
}

sinew::ProcessGroup make_group(const std::string& suffix) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test->test_suite_name()) + "." + test->name() + suffix;
  sinew::GroupOptions options;
  std::ofstream(place().folder + "/" + name + ".groups", std::ios::app);
  options.init_method = "file://" + place().folder + "/" + name;
  options.rank = place().rank;
  options.world_size = place().size;
  options.backend = "gloo";
  options.timeout = std::chrono::minutes(1);
  options.name = name;
  sinew::ProcessGroup group = sinew::init_process_group(options);
  // A test without an operation could leave while others still start.
  group.barrier();
  return group;
}

sinew::RpcError error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const sinew::RpcError& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return sinew::RpcError(sinew::ErrorCode::kOk, "");
  }
  ADD_FAILURE() << "no exception";
  return sinew::RpcError(sinew::ErrorCode::kOk, "");
}

}  // namespace testranks

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
