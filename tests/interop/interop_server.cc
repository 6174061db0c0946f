// A worker of its own that serves a few methods to clients which are no workers. Usage:
// interop_server PORT Prints its address when it is ready, and ends when its standard input does.

#include <atomic>
#include <cstdint>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/sinew.h"

namespace interop {

struct Point {
  double x = 0;
  double y = 0;
  std::string label;
};

enum class Color : std::int8_t { kRed = 1, kGreen = 2 };

at::Tensor scale(const at::Tensor& input, double factor) { return input * factor; }

std::int64_t add(std::int64_t a, std::int64_t b) { return a + b; }

std::int8_t narrow(std::int8_t value) { return value; }

void nothing() {}

std::map<std::string, std::vector<double>> sums(
    const std::map<std::string, std::vector<double>>& numbers) {
  std::map<std::string, std::vector<double>> result;
  for (const auto& [name, values] : numbers) {
    double sum = 0;
    for (const double value : values) sum += value;
    result[name] = {sum};
  }
  return result;
}

Point mirror(const Point& point) { return {-point.x, -point.y, point.label + "'"}; }

std::optional<Color> next_color(std::optional<Color> color) {
  if (!color.has_value()) return Color::kRed;
  return *color == Color::kRed ? std::optional<Color>(Color::kGreen) : std::nullopt;
}

std::vector<std::uint8_t> reversed(std::vector<std::uint8_t> bytes) {
  return {bytes.rbegin(), bytes.rend()};
}

std::pair<at::Tensor, at::Tensor> split(const at::Tensor& input) {
  return {input.narrow(0, 0, 1), input.narrow(0, 1, input.size(0) - 1)};
}

void fail(const std::string& text) { throw std::out_of_range(text); }

std::atomic<std::int64_t> started{0};
std::atomic<std::int64_t> cancelled{0};

// Never completes; counts its callers, and those that give up.
sinew::Future<std::int64_t> never() {
  static std::mutex mutex;
  static std::vector<sinew::Promise<std::int64_t>> promises;
  sinew::CallContext::current().cancellation().notify([] { ++cancelled; });
  const std::lock_guard<std::mutex> lock(mutex);
  promises.emplace_back();
  ++started;
  return promises.back().future();
}

std::int64_t started_calls() { return started; }
std::int64_t cancelled_calls() { return cancelled; }

class Counter {
 public:
  std::int64_t add(std::int64_t amount) { return total_ += amount; }

 private:
  std::atomic<std::int64_t> total_{0};
};

}  // namespace interop

template <>
struct sinew::Codec<interop::Point>
    : sinew::StructCodec<interop::Point, &interop::Point::x, &interop::Point::y,
                         &interop::Point::label> {};

SINEW_METHOD(interop::scale);
SINEW_METHOD(interop::add);
SINEW_METHOD(interop::narrow);
SINEW_METHOD(interop::nothing);
SINEW_METHOD(interop::sums);
SINEW_METHOD(interop::mirror);
SINEW_METHOD(interop::next_color);
SINEW_METHOD(interop::reversed);
SINEW_METHOD(interop::split);
SINEW_METHOD(interop::fail);
SINEW_METHOD(interop::never);
SINEW_METHOD(interop::started_calls);
SINEW_METHOD(interop::cancelled_calls);
SINEW_METHOD(interop::Counter::add);
SINEW_SERVICE(interop::Counter, ());

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: interop_server PORT\n";
    return 2;
  }
  sinew::WorkerOptions options;
  options.name = "server";
  options.init_method = std::string("tcp://127.0.0.1:") + argv[1];
  options.rank = 0;
  options.world_size = 1;
  options.methods.add<&interop::scale>()
      .add<&interop::add>()
      .add<&interop::narrow>()
      .add<&interop::nothing>()
      .add<&interop::sums>()
      .add<&interop::mirror>()
      .add<&interop::next_color>()
      .add<&interop::reversed>()
      .add<&interop::split>()
      .add<&interop::fail>()
      .add<&interop::never>()
      .add<&interop::started_calls>()
      .add<&interop::cancelled_calls>()
      .add<&interop::Counter::add>()
      .serve<interop::Counter>();
  try {
    const sinew::Worker worker = sinew::init_rpc(std::move(options));
    std::cout << worker.address() << std::endl;
    std::string line;
    while (std::getline(std::cin, line)) {
    }
    sinew::ShutdownOptions shutdown;
    shutdown.graceful = false;  // calls of never() would be waited for
    worker.shutdown(shutdown);
  } catch (const std::exception& error) {
    std::cerr << "interop_server: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
