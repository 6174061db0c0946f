#include "sinew/rpc/base/error.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>
#include <sstream>
#include <system_error>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/environment.h"

namespace sinew {
namespace {

const char* words(Execution execution) {
  return execution == Execution::kDidNotRun ? "did not run" : "may have run";
}

const char* words(ErrorOrigin origin) {
  switch (origin) {
    case ErrorOrigin::kThisWorker:
      return "this worker";
    case ErrorOrigin::kNetwork:
      return "the network";
    case ErrorOrigin::kCallee:
      return "the callee";
    case ErrorOrigin::kHandler:
      return "the handler";
    case ErrorOrigin::kNestedCall:
      return "a nested call";
  }
  return "nowhere";
}

// "from a nested call: 'app::find' at 'store' -> 'app::read' at 'disk' (the handler)".
std::string from(const ErrorInfo& info) {
  std::string text = absl::StrCat("from ", words(info.origin));
  const char* before = ": ";
  for (const FailedCall& call : info.causes) {
    absl::StrAppend(&text, std::exchange(before, " -> "), "'", call.method, "' at '", call.peer,
                    "'");
  }
  if (!info.causes.empty()) {
    absl::StrAppend(&text, " (", words(info.causes.back().origin), ")");
  }
  return text;
}

// The message comes first and unchanged, since it may have many lines; what the program knows
// besides follows in brackets: "no such worker [NOT_FOUND; peer 'observer1'; method 'app::step';
// from the handler; may have run]".
std::string render(const ErrorInfo& info) {
  std::string text = absl::StrCat(info.message, info.message.empty() ? "[" : " [",
                                  absl::StatusCodeToString(info.code));
  if (!info.peer.empty()) absl::StrAppend(&text, "; peer '", info.peer, "'");
  if (!info.method.empty()) absl::StrAppend(&text, "; method '", info.method, "'");
  const bool concerns_call = !info.peer.empty() || !info.method.empty();
  if (concerns_call || info.origin != ErrorOrigin::kThisWorker) {
    absl::StrAppend(&text, "; ", from(info));
  }
  if (concerns_call || info.execution == Execution::kMayHaveRun) {
    absl::StrAppend(&text, "; ", words(info.execution));
  }
  return absl::StrCat(text, "]");
}

}  // namespace

RpcError::RpcError(ErrorInfo info)
    : std::runtime_error(render(info)), info_(std::make_shared<ErrorInfo>(std::move(info))) {}

namespace {

ErrorInfo local_failure(ErrorCode code, std::string message) {
  ErrorInfo info;
  info.code = code;
  info.message = std::move(message);
  return info;
}

}  // namespace

RpcError::RpcError(ErrorCode code, std::string message)
    : RpcError(local_failure(code, std::move(message))) {}

std::ostream& operator<<(std::ostream& out, Execution execution) { return out << words(execution); }
std::ostream& operator<<(std::ostream& out, ErrorOrigin origin) { return out << words(origin); }

namespace internal {
namespace {

constexpr char kPeerPayload[] = "sinew/peer";

std::string demangled(const std::type_info& type) {
  if (type == typeid(std::string)) return "std::string";
  if (type == typeid(std::string_view)) return "std::string_view";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return name == nullptr ? type.name() : name.get();
}

ErrorInfo foreign(ErrorCode code, std::string type_name, std::string text) {
  ErrorInfo info;
  info.code = code;
  info.message = text.empty() ? type_name : absl::StrCat(type_name, ": ", text);
  info.type_name = std::move(type_name);
  info.remote_message = std::move(text);
  return info;
}

// The switch of LibTorch's own front end.
bool shows_backtraces() {
  static const bool shows = process_environment()("TORCH_SHOW_CPP_STACKTRACES") == "1";
  return shows;
}

// c10::Error puts a C++ backtrace of some forty lines behind its text, and so do texts that are
// made of such. By the text, since c10::Error::what_without_backtrace() is LibTorch's, which not
// every program has that uses this file.
std::string_view without_backtrace(std::string_view text) {
  const std::size_t begin = text.find("\nException raised from ");
  if (begin == std::string_view::npos || shows_backtraces()) return text;
  const std::size_t first_line = text.find('\n', begin + 1);
  const std::string_view header = text.substr(begin, first_line - begin);
  constexpr std::string_view kEnd = "(most recent call first):";
  return header.find(kEnd) == std::string_view::npos ? text : text.substr(0, begin);
}

ErrorInfo foreign(ErrorCode code, const std::exception& error) {
  const char* text = error.what();
  return foreign(code, demangled(typeid(error)),
                 std::string(without_backtrace(text == nullptr ? "" : text)));
}

// By their names, for the same reason.
ErrorCode code_of_c10(const std::exception& error) {
  const std::string type = demangled(typeid(error));
  if (type == "c10::IndexError") return ErrorCode::kOutOfRange;
  if (type == "c10::ValueError" || type == "c10::TypeError") return ErrorCode::kInvalidArgument;
  if (type == "c10::NotImplementedError") return ErrorCode::kUnimplemented;
  if (type == "c10::OutOfMemoryError") return ErrorCode::kResourceExhausted;
  return ErrorCode::kUnknown;
}

template <class T>
std::string text_of_thrown(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, char>) {
    return std::string(1, value);
  } else if constexpr (std::is_same_v<T, const char*>) {
    return value == nullptr ? "" : value;
  } else {
    std::ostringstream text;
    text << value;
    return text.str();
  }
}

template <class T>
bool is_thrown(const std::type_info& type, std::string& text) {
  if (type != typeid(T) && !(std::is_same_v<T, const char*> && type == typeid(char*))) return false;
  try {
    throw;
  } catch (const T& value) {
    text = text_of_thrown(value);
  }
  return true;
}

template <class... T>
std::optional<std::string> find_thrown(const std::type_info& type) {
  std::string text;
  if ((is_thrown<T>(type, text) || ...)) return text;
  return std::nullopt;
}

// In a handler of what is no std::exception.
ErrorInfo describe_odd() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return foreign(ErrorCode::kUnknown, "an exception of another language", "");
  const std::optional<std::string> text =
      find_thrown<const char*, std::string, std::string_view, bool, char, short, unsigned short,
                  int, unsigned int, long, unsigned long, long long, unsigned long long, float,
                  double, long double>(*type);
  ErrorInfo info = foreign(ErrorCode::kUnknown, demangled(*type), text.value_or(""));
  if (!text.has_value()) {
    absl::StrAppend(&info.message, ": it is no std::exception, so nothing more is known");
  }
  return info;
}

ErrorInfo from_status(const absl::Status& status) {
  ErrorInfo info;
  info.code = status.code();
  info.message = std::string(status.message());
  if (const auto peer = status.GetPayload(kPeerPayload)) {
    info.peer = std::string(*peer);
    info.origin = ErrorOrigin::kNetwork;
  }
  if (status.ok()) {
    info.code = ErrorCode::kInternal;
    info.message = "an error was made of a status that is OK";
  }
  return info;
}

}  // namespace

std::exception_ptr make_error(const absl::Status& status, std::string_view peer,
                              std::string_view method, Execution execution, ErrorOrigin origin) {
  ErrorInfo info = from_status(status);
  if (!peer.empty()) info.peer = std::string(peer);
  info.method = std::string(method);
  info.execution = execution;
  if (origin != ErrorOrigin::kThisWorker) info.origin = origin;
  return make_error(std::move(info));
}

std::exception_ptr make_error(ErrorInfo info) {
  return std::make_exception_ptr(RpcError(std::move(info)));
}

void throw_error(const absl::Status& status) { throw RpcError(from_status(status)); }

absl::Status about_peer(absl::Status status, std::string_view peer) {
  status.SetPayload(kPeerPayload, absl::Cord(std::string(peer)));
  return status;
}

ErrorInfo describe(const std::exception_ptr& error) {
  // The order matters: a derived class comes before its base.
  try {
    std::rethrow_exception(error);
  } catch (const RpcError& e) {
    return e.info();
  } catch (const std::bad_alloc& e) {
    return foreign(ErrorCode::kResourceExhausted, e);
  } catch (const std::invalid_argument& e) {
    return foreign(ErrorCode::kInvalidArgument, e);
  } catch (const std::domain_error& e) {
    return foreign(ErrorCode::kInvalidArgument, e);
  } catch (const std::length_error& e) {
    return foreign(ErrorCode::kInvalidArgument, e);
  } catch (const std::out_of_range& e) {
    return foreign(ErrorCode::kOutOfRange, e);
  } catch (const std::range_error& e) {
    return foreign(ErrorCode::kOutOfRange, e);
  } catch (const std::overflow_error& e) {
    return foreign(ErrorCode::kOutOfRange, e);
  } catch (const std::underflow_error& e) {
    return foreign(ErrorCode::kOutOfRange, e);
  } catch (const std::system_error& e) {
    const bool is_errno = e.code().category() == std::generic_category() ||
                          e.code().category() == std::system_category();
    const absl::StatusCode code =
        is_errno ? absl::ErrnoToStatusCode(e.code().value()) : absl::StatusCode::kUnknown;
    return foreign(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code, e);
  } catch (const std::exception& e) {
    return foreign(code_of_c10(e), e);
  } catch (const absl::Status& status) {
    return from_status(status);
  } catch (...) {
    return describe_odd();
  }
}

absl::Status to_status(const std::exception_ptr& error) {
  const ErrorInfo info = describe(error);
  // A Status of code OK would lose the text and turn the failure into a success.
  return absl::Status(info.code == ErrorCode::kOk ? ErrorCode::kInternal : info.code, info.message);
}

namespace {

// The length of the well-formed UTF-8 sequence that `text` begins with, or 0 (RFC 3629: no overlong
// forms, no surrogates, nothing beyond U+10FFFF).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto continues = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool second = continues(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF);
    return second && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool second = continues(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF);
    return second && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

std::string hex_escape(std::string_view character) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string escaped;
  for (const char c : character) {
    const auto byte = static_cast<unsigned char>(c);
    escaped.append({'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return escaped;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) {
    return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
  }
  // U+0080 to U+009F: terminals take some of them for the start of an escape sequence.
  return character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit_bytes) {
  static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
  std::string out;
  out.reserve(std::min(text.size(), limit_bytes));
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t length = utf8_length(rest);
    const std::string_view character = rest.substr(0, std::max<std::size_t>(length, 1));
    rest.remove_prefix(character.size());
    std::string escaped;
    std::string_view shown = character;
    if (length == 0) {
      shown = kReplacement;
    } else if (is_control(character)) {
      escaped = hex_escape(character);
      shown = escaped;
    }
    if (out.size() + shown.size() > limit_bytes) {
      absl::StrAppend(&out, " ... (cut; ", text.size(), " bytes in all)");
      break;
    }
    out.append(shown);
  }
  return out;
}

std::string indented(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    out.push_back(text[i]);
    const bool ends = text[i] == '\n' && i + 1 < text.size();
    if (ends && std::string_view(" \t\n").find(text[i + 1]) == std::string_view::npos) out += "  ";
  }
  return out;
}

}  // namespace internal
}  // namespace sinew
