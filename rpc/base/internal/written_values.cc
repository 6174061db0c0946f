#include "sinew/rpc/base/internal/written_values.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"

namespace sinew::internal {
namespace {

using absl::InvalidArgumentError;

constexpr std::size_t kMostShownBytes = 256;

}  // namespace

std::string shown(absl::string_view text) {
  return printable({text.data(), text.size()}, kMostShownBytes);
}

std::string quoted(absl::string_view text) { return absl::StrCat("'", shown(text), "'"); }

// SimpleAtoi forgives blanks and a plus sign, which are likelier a mistake than meant.
std::optional<int> parse_integer(absl::string_view text) {
  absl::string_view digits = text;
  absl::ConsumePrefix(&digits, "-");
  if (digits.empty()) return std::nullopt;
  for (const char c : digits) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
  }
  int value = 0;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

absl::StatusOr<int> parse_integer_of(absl::string_view what, absl::string_view text) {
  if (const std::optional<int> value = parse_integer(text)) return *value;
  return InvalidArgumentError(absl::StrCat(what, " is ", quoted(text), "; write a whole number"));
}

absl::StatusOr<int> parse_port_of(absl::string_view what, absl::string_view text) {
  const std::optional<int> port = parse_integer(text);
  if (port && *port >= 0 && *port <= 65535) return *port;
  return InvalidArgumentError(
      absl::StrCat(what, " is ", quoted(text), "; write a port from 0 to 65535"));
}

absl::Status check_host(absl::string_view what, absl::string_view host) {
  for (const char c : host) {
    const bool fits = is_name_character(c) || c == '%';  // %eth0 of a link-local address
    if (!fits) {
      return InvalidArgumentError(
          absl::StrCat(what, " is ", quoted(host),
                       ", which is no host name or address; write a name, an IPv4 "
                       "address, or an IPv6 address in brackets"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int>> integer_variable(const EnvironmentReader& environment,
                                                    const std::string& name) {
  const std::optional<std::string> value = environment(name);
  if (!value) return std::optional<int>();
  const absl::StatusOr<int> number =
      parse_integer_of(absl::StrCat("the environment variable ", name), *value);
  if (!number.ok()) return number.status();
  return std::optional<int>(*number);
}

}  // namespace sinew::internal
