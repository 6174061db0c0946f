// A worker of its own that serves a few methods to clients which are no workers.
//
//   interop_server PORT [CA CERTIFICATE KEY]
//
// With PEM files: mutual TLS. Prints its address when it is ready, and ends when its standard input
// does.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/wrappers.pb.h"
#include "sinew/rpc/rpc.h"
#include "sinew/rref/names.h"
#include "sinew/rref/rref.h"
#include "sinew/streams/stream.h"

namespace interop {

struct Point {
  double x = 0;
  double y = 0;
  std::string label;
};

}  // namespace interop
SINEW_STRUCT(interop::Point, x, y, label);

namespace interop {

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

at::Tensor echo_tensor(const at::Tensor& tensor) { return tensor; }

/// What has arrived, as LibTorch sees it.
std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (tensor.is_sparse()) return absl::StrCat("sparse ", describe(tensor.to_dense()));
  return absl::StrCat(c10::toString(tensor.scalar_type()), " [", absl::StrJoin(tensor.sizes(), ","),
                      "] by [", absl::StrJoin(tensor.strides(), ","), "]");
}

at::Tensor to_type(const at::Tensor& tensor, const std::string& type) {
  if (type == "Half") return tensor.to(at::kHalf);
  if (type == "BFloat16") return tensor.to(at::kBFloat16);
  if (type == "ComplexHalf") return tensor.to(at::kComplexHalf);
  if (type == "Sparse") return tensor.to_sparse();
  if (type == "Transposed") return tensor.t();
  return {};
}

std::uint64_t echo_natural(std::uint64_t number) { return number; }
std::string echo_text(const std::string& text) { return text; }
google::protobuf::StringValue echo_message(const google::protobuf::StringValue& text) {
  return text;
}
double sum(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}
/// Keys that are no texts.
std::map<std::pair<std::int64_t, std::int64_t>, bool> is_square(
    const std::vector<std::int64_t>& sizes) {
  std::map<std::pair<std::int64_t, std::int64_t>, bool> result;
  for (const std::int64_t size : sizes) result[{size, sizes.front()}] = size == sizes.front();
  return result;
}
at::Tensor blob(std::int64_t bytes) { return at::full({bytes}, 7, at::kByte); }

/// "key=value" of all that the client said beside the call, its library's own name left out.
std::vector<std::uint8_t> metadata() {
  sinew::CallContext::Metadata said = sinew::CallContext::current().metadata();
  said.erase("user-agent");
  const std::string text = absl::StrJoin(said, " ", absl::PairFormatter("="));
  return {text.begin(), text.end()};
}

void fail(const std::string& text) { throw std::out_of_range(text); }

void nested_fail(const std::string& text);

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

/// So many numbers, then an error if `fails`.
sinew::Stream<std::int64_t> count(std::int64_t n, bool fails) {
  return sinew::write_stream<std::int64_t>([n, fails](sinew::StreamWriter<std::int64_t>& writer) {
    for (std::int64_t i = 0; i < n; ++i) writer.write(i);
    if (fails) throw std::out_of_range("used up");
  });
}

std::atomic<std::int64_t> stopped{0};

/// Until nobody reads any more; counts that.
sinew::Stream<Point> count_for_ever() {
  return sinew::write_stream<Point>([](sinew::StreamWriter<Point>& writer) {
    try {
      for (double i = 0;; ++i) writer.write({i, -i, "here"});
    } catch (const sinew::RpcError&) {
      ++stopped;
      throw;
    }
  });
}
std::int64_t stopped_streams() { return stopped; }

sinew::Stream<at::Tensor> tensors(std::int64_t n) {
  return sinew::write_stream<at::Tensor>([n](sinew::StreamWriter<at::Tensor>& writer) {
    for (std::int64_t i = 0; i < n; ++i) writer.write(at::full({1 << 18}, i, at::kFloat));
  });
}

class Counter {
 public:
  std::int64_t add(std::int64_t amount) { return total_ += amount; }
  sinew::Stream<std::int64_t> up_to(std::int64_t n) { return count(n, false); }

 private:
  std::atomic<std::int64_t> total_{0};
};

/// For one call at a time.
class Shelf {
 public:
  std::int64_t put() {
    const std::int64_t before = items_;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return items_ = before + 1;
  }

 private:
  std::int64_t items_ = 0;
};

}  // namespace interop

SINEW_METHOD(interop::scale, interop::add, interop::narrow, interop::nothing, interop::sums,
             interop::mirror, interop::next_color, interop::reversed, interop::split,
             interop::echo_tensor, interop::describe, interop::to_type, interop::echo_natural,
             interop::echo_text, interop::echo_message, interop::sum, interop::is_square,
             interop::blob, interop::metadata, interop::fail, interop::nested_fail, interop::never,
             interop::started_calls, interop::cancelled_calls, interop::count,
             interop::count_for_ever, interop::stopped_streams, interop::tensors,
             interop::Counter::add, interop::Counter::up_to);
SINEW_SERVICE(interop::Counter, ());
SINEW_SERVICE(interop::Shelf, (), put);

void interop::nested_fail(const std::string& text) {
  sinew::current_worker().peer(0).call<&interop::fail>(text);
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 5) {
    std::cerr << "usage: interop_server PORT [CA CERTIFICATE KEY]\n";
    return 2;
  }
  sinew::WorkerOptions options;
  options.name = "server";
  options.init_method = std::string("tcp://127.0.0.1:") + argv[1];
  options.rank = 0;
  options.world_size = 1;
  options.list_methods = true;
  options.max_client_request_bytes = std::size_t{80} << 20;
  if (argc == 5)
    options.credentials =
        sinew::Credentials::mutual_tls(sinew::TlsFiles{argv[2], argv[3], argv[4]});
  options.methods.add<&interop::scale>()
      .add<&interop::add>()
      .add<&interop::narrow>()
      .add<&interop::nothing>()
      .add<&interop::sums>()
      .add<&interop::mirror>()
      .add<&interop::next_color>()
      .add<&interop::reversed>()
      .add<&interop::split>()
      .add<&interop::echo_tensor>()
      .add<&interop::describe>()
      .add<&interop::to_type>()
      .add<&interop::echo_natural>()
      .add<&interop::echo_text>()
      .add<&interop::echo_message>()
      .add<&interop::sum>()
      .add<&interop::is_square>()
      .add<&interop::blob>()
      .add<&interop::metadata>()
      .add<&interop::fail>()
      .add<&interop::nested_fail>()
      .add<&interop::never>()
      .add<&interop::started_calls>()
      .add<&interop::cancelled_calls>()
      .add<&interop::count>()
      .add<&interop::count_for_ever>()
      .add<&interop::stopped_streams>()
      .add<&interop::tensors>()
      .add<&interop::Counter::add>()
      .add<&interop::Counter::up_to>()
      .serve<interop::Counter>()
      .serve<interop::Shelf>(sinew::one_at_a_time());
  try {
    const sinew::Worker worker = sinew::init_rpc(std::move(options));
    worker.publish("counter", std::make_shared<interop::Counter>());
    worker.publish("shelf", std::make_shared<interop::Shelf>());
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
