#pragma once

#include <filesystem>
#include <string>

namespace examples {

/// The shortest text that reads as the same number, whatever the locale.
std::string number(double value);

/// With so many digits after the point, whatever the locale.
std::string fixed(double value, int digits);

/// Writes `content` into `file`, and makes its folder if need be. Throws std::runtime_error with
/// the name of the file and the system's reason.
void write_file(const std::filesystem::path& file, const std::string& content);

/// The same, but who reads `file` meanwhile, or after the machine has lost its power, sees the old
/// content or the new one.
void replace_file(const std::filesystem::path& file, const std::string& content);

/// Throws as write_file.
std::string read_file(const std::filesystem::path& file);

}  // namespace examples
