#pragma once

#include <charconv>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "CLI/CLI.hpp"

/// Checks of the flags' values that all examples make. CLI11 puts the name of the flag in front of
/// what they say.
namespace examples {

/// What a program ends with after a mistake in its flags.
inline constexpr int kUsageError = 2;

template <class Number>
CLI::Validator between(Number low, Number high, const std::string& what) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        Number value{};
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        // Written so that NaN fails too.
        if (parsed.ec == std::errc() && parsed.ptr == end && value >= low && value <= high) {
          return {};
        }
        return "must be " + what + ", and '" + text + "' is not";
      },
      "");
}

inline CLI::Validator whole(long long low, long long high) {
  return between<long long>(
      low, high, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
}

/// A flag that takes a whole number from `low` to `high`.
template <class Integer>
CLI::Option* add_whole(CLI::App& app, const std::string& flag, Integer& value, long long low,
                       long long high, const std::string& help) {
  return app.add_option(flag, value, help)->check(whole(low, high))->capture_default_str();
}

/// A flag that takes a number of `range`, which stands in texts as "0.001 to 1".
inline CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, double low,
                               double high, const std::string& range, const std::string& help) {
  return app.add_option(flag, value, help)
      ->check(between<double>(low, high, "a number from " + range))
      ->capture_default_str();
}

/// What every example that draws random numbers has; small enough to be multiplied.
template <class Integer>
void add_seed(CLI::App& app, Integer& seed) {
  add_whole(app, "--seed", seed, 0, 1'000'000'000, "Seed of all random numbers");
}

struct Parsed {
  bool go_on = false;
  /// Unless it goes on: what the program ends with; 0 after --help.
  int status = 0;
};
/// Reads the command line. The terminal has been told when the program must not go on.
inline Parsed parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return {true, 0};
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {false, app.exit(error)};
    std::cerr << app.get_name() << ": " << error.what() << "\n"
              << "Run it with --help for all flags.\n";
    return {false, kUsageError};
  }
}

/// The same with words that begin with the name of the program.
inline Parsed parse(CLI::App& app, const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return parse(app, static_cast<int>(pointers.size()), pointers.data());
}

}  // namespace examples
