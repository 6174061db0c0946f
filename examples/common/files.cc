#include "sinew/examples/common/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace examples {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& file,
                       const std::error_code& error) {
  throw std::runtime_error(std::string("cannot ") + what + " " + file.string() + ": " +
                           error.message());
}

std::error_code last_error() { return {errno, std::generic_category()}; }

// Waits until the content is on the disk.
void sync_file(const std::filesystem::path& file) {
  const int opened = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = opened >= 0 && fsync(opened) == 0;
  const std::error_code error = last_error();
  if (opened >= 0) close(opened);
  if (!synced) fail("write", file, error);
}

}  // namespace

// Not printf: it writes a comma in some locales.
std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

std::string fixed(double value, int digits) {
  char text[512];
  const auto end =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, digits).ptr;
  return std::string(text, end);
}

void write_file(const std::filesystem::path& file, const std::string& content) {
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  if (error) fail("write", file, error);
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << content;
  out.close();
  if (!out) fail("write", file, last_error());
}

void replace_file(const std::filesystem::path& file, const std::string& content) {
  std::filesystem::path fresh = file;
  fresh += ".new";
  write_file(fresh, content);
  // Otherwise the new name may reach the disk before the content does.
  sync_file(fresh);
  std::error_code error;
  std::filesystem::rename(fresh, file, error);
  if (error) fail("write", file, error);
}

std::string read_file(const std::filesystem::path& file) {
  // A stream opens folders too.
  if (std::filesystem::is_directory(file)) {
    fail("read", file, std::make_error_code(std::errc::is_a_directory));
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) fail("read", file, last_error());
  std::string content((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) fail("read", file, last_error());
  return content;
}

}  // namespace examples
