#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// How a benchmark program takes its arguments, measures and reports. Our own programs and the C++
/// peers share this header, so that a figure is taken the same way on both sides. It needs nothing
/// but the standard library.
///
///   int main(int argc, char** argv) {
///     const auto options = sinew::bench::parse_options(argc, argv, {"noop_sync_p50_us"});
///     const auto latency = sinew::bench::measure_latency(options.latency_calls(), [] { noop(); });
///     options.report("noop_sync_p50_us", latency.p50_us);
///   }
namespace sinew::bench {

using Clock = std::chrono::steady_clock;

/// The width of the window that the `_async64_` figures keep in flight.
inline constexpr int kCallsInFlight = 64;

/// What the command line asked for. Built by parse_options().
class Options {
 public:
  Options(std::vector<std::string> figures, bool quick)
      : figures_(std::move(figures)), quick_(quick) {}

  bool wants(std::string_view figure) const {
    return std::find(figures_.begin(), figures_.end(), figure) != figures_.end();
  }
  bool wants_any(std::initializer_list<std::string_view> figures) const {
    return std::any_of(figures.begin(), figures.end(),
                       [this](std::string_view figure) { return wants(figure); });
  }

  bool quick() const { return quick_; }

  /// Calls per latency figure, beside the tenth that is made first to warm up.
  int latency_calls() const { return quick_ ? 400 : 4000; }

  /// The time that a throughput figure runs before its completions count, and while they do.
  std::chrono::milliseconds rate_warm_up() const {
    return std::chrono::milliseconds(quick_ ? 50 : 300);
  }
  std::chrono::milliseconds rate_window() const {
    return std::chrono::milliseconds(quick_ ? 200 : 1500);
  }

  /// Writes one figure as a line of JSON to stdout, if it was asked for.
  void report(std::string_view figure, double value) const {
    if (!wants(figure)) {
      return;
    }
    std::printf("{\"figure\": \"%.*s\", \"value\": %.6g}\n", static_cast<int>(figure.size()),
                figure.data(), value);
    std::fflush(stdout);
  }

 private:
  const std::vector<std::string> figures_;
  const bool quick_;
};

namespace internal {

[[noreturn]] inline void refuse(const char* program, const std::string& reason) {
  std::fprintf(stderr, "%s: %s\nusage: %s [--figures a,b,c] [--quick]\n", program, reason.c_str(),
               program);
  std::exit(2);
}

inline std::string join(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words) {
    joined += joined.empty() ? word : ", " + word;
  }
  return joined;
}

inline std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) {
      words.emplace_back(text.substr(0, comma));
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return words;
}

}  // namespace internal

/// Reads `--figures a,b,c` and `--quick`. Without `--figures` every one of `known` is measured. A
/// mistake ends the program with status 2 and a sentence that names it.
inline Options parse_options(int argc, char** argv, const std::vector<std::string>& known) {
  std::vector<std::string> figures = known;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      quick = true;
    } else if (argument == "--figures" && i + 1 < argc) {
      figures = internal::split_at_commas(argv[++i]);
    } else {
      internal::refuse(argv[0], "does not know the argument '" + std::string(argument) + "'");
    }
  }
  for (const std::string& figure : figures) {
    if (std::find(known.begin(), known.end(), figure) == known.end()) {
      internal::refuse(argv[0],
                       "does not measure '" + figure + "'; it measures " + internal::join(known));
    }
  }
  return Options(std::move(figures), quick);
}

struct Latency {
  double p50_us = 0;
  double p99_us = 0;
};

/// Times `calls` calls one by one, after a tenth as many that are not timed.
template <class Call>
Latency measure_latency(int calls, Call&& call) {
  for (int i = 0; i < calls / 10; ++i) {
    call();
  }
  std::vector<double> times_us;
  times_us.reserve(static_cast<std::size_t>(calls));
  for (int i = 0; i < calls; ++i) {
    const Clock::time_point start = Clock::now();
    call();
    times_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(times_us.begin(), times_us.end());
  return Latency{times_us[times_us.size() / 2], times_us[times_us.size() * 99 / 100]};
}

/// The main function of a program that measures with `run`: what that throws goes to stderr, with
/// the program's name. Returns an exit status.
inline int run_main(const char* program, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

/// Completions per second of work that keeps itself going. `step()` lets some time pass and returns
/// how many completions it saw; it is called until the warm-up is over, and then until the window
/// is.
template <class Step>
double measure_rate(const Options& options, Step&& step) {
  const Clock::time_point warm = Clock::now() + options.rate_warm_up();
  while (Clock::now() < warm) {
    step();
  }
  const Clock::time_point start = Clock::now();
  std::int64_t completions = 0;
  Clock::time_point now = start;
  while (now < start + options.rate_window()) {
    completions += step();
    now = Clock::now();
  }
  return static_cast<double>(completions) / std::chrono::duration<double>(now - start).count();
}

}  // namespace sinew::bench
