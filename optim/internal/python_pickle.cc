#include "sinew/optim/internal/python_pickle.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace sinew::internal {
namespace {

// Of the second protocol (PEP 307), as Python's pickletools describes it.
constexpr char kProto = '\x80';
constexpr char kGlobal = 'c';
constexpr char kBinPut = 'q';
constexpr char kBinGet = 'h';
constexpr char kEmptyTuple = ')';
constexpr char kEmptyDict = '}';
constexpr char kReduce = 'R';
constexpr char kUnicode = 'X';
constexpr char kBuild = 'b';
constexpr char kStop = '.';
constexpr std::string_view kOrderedDict = "ccollections\nOrderedDict\n";

/// One operation, with its argument.
using Token = std::string_view;

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

/// The size of the token that `rest` begins with; nullopt: unknown.
std::optional<std::size_t> size_of_token(std::string_view rest) {
  switch (rest.front()) {
    case kGlobal: {
      const std::size_t first = rest.find('\n');
      const std::size_t second = first == rest.npos ? rest.npos : rest.find('\n', first + 1);
      if (second == rest.npos) return std::nullopt;
      return second + 1;
    }
    case kUnicode:
      if (rest.size() < 5) return std::nullopt;
      return std::size_t{5} + little_endian(rest.substr(1));
    case kProto:
    case kBinPut:
    case kBinGet:
    case 'K':  // a number of one byte
      return 2;
    case '\x8a':  // a long one, with its size before it
      if (rest.size() < 2) return std::nullopt;
      return std::size_t{2} + static_cast<unsigned char>(rest[1]);
    case 'M':  // of two
      return 3;
    case 'J':  // of four
    case 'r':  // as q and h, with four bytes
    case 'j':
      return 5;
    case 'G':  // a double
      return 9;
    case kEmptyTuple:
    case kEmptyDict:
    case kReduce:
    case kBuild:
    case kStop:
    case '(':
    case ']':
    case 'N':
    case 'Q':
    case 'a':
    case 'e':
    case 's':
    case 't':
    case 'u':
    case '\x85':
    case '\x86':
    case '\x87':
    case '\x88':
    case '\x89':
      return 1;
    default:
      return std::nullopt;
  }
}

/// Empty: it is damaged, or has an unknown opcode.
std::vector<Token> tokens_of(std::string_view program) {
  std::vector<Token> tokens;
  while (!program.empty()) {
    const std::optional<std::size_t> size = size_of_token(program);
    if (!size || *size > program.size()) return {};
    tokens.push_back(program.substr(0, *size));
    program.remove_prefix(*size);
  }
  return tokens;
}

bool is(const Token& token, char operation) { return token.front() == operation; }

/// Where the attributes of the outermost object begin, which its last operation sets; the end if it
/// has none.
std::size_t begin_of_attributes(const std::vector<Token>& tokens) {
  const std::size_t end = tokens.size() - 1;
  if (!is(tokens[end - 1], kBuild)) return end;
  for (std::size_t i = end - 1; i-- > 0;) {
    if (!is(tokens[i], kUnicode) || tokens[i].substr(5) != "_metadata") continue;
    if (i >= 2 && is(tokens[i - 1], kBinPut) && is(tokens[i - 2], kEmptyDict)) return i - 2;
    if (i >= 2 && is(tokens[i - 1], 'r') && is(tokens[i - 2], kEmptyDict)) return i - 2;
  }
  return end;
}

}  // namespace

std::string with_plain_dictionary(const std::string& program) {
  const std::vector<Token> tokens = tokens_of(program);
  // PROTO, OrderedDict, its number, no arguments, the call.
  if (tokens.size() < 7 || !is(tokens[0], kProto) || tokens[1] != kOrderedDict ||
      !is(tokens[2], kBinPut) || !is(tokens[3], kEmptyTuple) || !is(tokens[4], kReduce) ||
      !is(tokens.back(), kStop)) {
    return program;
  }
  const char number = tokens[2][1];
  std::string plain(tokens[0]);
  plain += kEmptyDict;
  const std::size_t end = begin_of_attributes(tokens);
  for (std::size_t i = 5; i < end; ++i) {
    // Tensors refer to the class by its number, which it no longer has.
    const bool refers = is(tokens[i], kBinGet) && tokens[i][1] == number;
    plain += refers ? kOrderedDict : tokens[i];
  }
  plain += kStop;
  return plain;
}

}  // namespace sinew::internal
