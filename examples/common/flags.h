#pragma once

#include <charconv>
#include <iostream>
#include <string>
#include <system_error>

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

struct Parsed {
  bool go_on = false;
  /// Unless it goes on: what the program ends with; 0 after --help.
  int status = 0;
};
/// Reads the command line. The terminal has been told when the program must not go on.
inline Parsed parse(CLI::App& app, int argc, char** argv) {
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

}  // namespace examples
