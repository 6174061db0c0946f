#include "bible.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>

#include "sinew/examples/common/files.h"

namespace ps_rnn {
namespace {

std::string output_of(const std::string& command) {
  int status = -1;
  std::string output;
  {
    const auto close = [&status](std::FILE* pipe) { status = ::pclose(pipe); };
    const std::unique_ptr<std::FILE, decltype(close)> pipe(::popen(command.c_str(), "r"), close);
    if (pipe == nullptr) return {};
    char buffer[1 << 16];
    while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe.get())) {
      output.append(buffer, count);
    }
  }
  return status == 0 ? output : std::string();
}

// Each line is a verse and begins with its number.
std::string without_numbers(const std::string& verses) {
  std::string text;
  for (std::size_t at = 0; at < verses.size();) {
    const std::size_t end = std::min(verses.find('\n', at), verses.size());
    const std::size_t blank = std::min(verses.find(' ', at), end);
    text.append(verses, std::min(blank + 1, end), end - std::min(blank + 1, end));
    text.push_back('\n');
    at = end + 1;
  }
  return text;
}

}  // namespace

std::filesystem::path bible_text(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "bible.txt";
  std::error_code error;
  if (std::filesystem::file_size(file, error) > 0 && !error) return file;
  const std::string verses = output_of("bible -f gen1:1-rev22:21 </dev/null 2>/dev/null");
  if (verses.empty()) {
    throw std::runtime_error(
        "there is no text: pass --data FILE, or install Debian's: apt-get install bible-kjv "
        "bible-kjv-text");
  }
  // Of this process alone, so that whoever reads bible.txt finds all of it.
  std::filesystem::path fresh = file;
  fresh += "." + std::to_string(::getpid());
  examples::write_file(fresh, without_numbers(verses));
  std::filesystem::rename(fresh, file);
  return file;
}

}  // namespace ps_rnn
