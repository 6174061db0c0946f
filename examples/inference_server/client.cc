#include "client.h"

#include <chrono>
#include <deque>
#include <random>
#include <thread>
#include <utility>

#include "ATen/ATen.h"

namespace inference_server {
namespace {

using Clock = std::chrono::steady_clock;
/// What a request took, in ms; or the error.
using Latency = sinew::Future<double>;

// Of those that are drawn before the clock runs.
constexpr std::int64_t kInputs = 64;

Latency request(const sinew::RRef<Classifier>& classifier, const at::Tensor& features,
                Clock::time_point since) {
  return classifier.async<&Classifier::scores>(features).then([since](const at::Tensor&) {
    return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
  });
}

void add(Answers& answers, const Latency& latency) {
  try {
    answers.latencies_ms.push_back(latency.wait());
  } catch (const sinew::RpcError& error) {
    if (error.code() != sinew::ErrorCode::kResourceExhausted) throw;
    ++answers.refused;
  }
}

}  // namespace

Answers make_requests(const sinew::RRef<Classifier>& classifier, const Load& load) {
  std::mt19937_64 random(static_cast<std::uint64_t>(load.seed));
  at::manual_seed(static_cast<std::uint64_t>(load.seed));
  const std::vector<at::Tensor> inputs = at::randn({kInputs, load.width}).unbind();
  std::exponential_distribution<double> pause(load.rate > 0 ? load.rate : 1);
  Answers answers;
  std::deque<Latency> under_way;
  Clock::time_point due = Clock::now();
  for (std::int64_t i = 0; i < load.requests; ++i) {
    const at::Tensor& features = inputs[static_cast<std::size_t>(i % kInputs)];
    if (load.rate > 0) {
      // Counted from when it was due: a server that falls behind must not slow the clock down by
      // which it is measured.
      due +=
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause(random)));
      std::this_thread::sleep_until(due);
      under_way.push_back(request(classifier, features, due));
    } else {
      if (static_cast<std::int64_t>(under_way.size()) == load.in_flight) {
        add(answers, under_way.front());
        under_way.pop_front();
      }
      under_way.push_back(request(classifier, features, Clock::now()));
    }
  }
  for (const Latency& latency : under_way) add(answers, latency);
  return answers;
}

}  // namespace inference_server
