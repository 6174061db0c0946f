#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace at {
class Tensor;
}
namespace google::protobuf {
class Message;
}

namespace sinew {

namespace proto {
class Reference;
class Value;
}  // namespace proto
namespace internal {
class DecodeContext;
}

class ListReader;
class MapReader;

/// What a value is. The packed forms are lists, and naturals are integers.
enum class ValueKind : std::uint8_t {
  kNull,
  kBoolean,
  kInteger,
  kReal,
  kText,
  kBinary,
  kList,
  kMap,
  kTensor,
  kReference,
  kMessage,
};

/// Where a value stands in its message, for error texts: "argument 2, item 5". A chain of frames on
/// the stack; the text is made only when an error is.
struct ValuePath {
  /// Null at the root. Must outlive this frame.
  const ValuePath* outer = nullptr;
  /// "argument", "result", "item"; a string literal.
  const char* noun = "value";
  /// Counted from 1; 0 for a part that needs no number.
  std::size_t number = 0;

  std::string text() const;
};

/// Reads one value of the wire format; what a Codec's decode() is given. The value comes from the
/// network: each function checks the kind and the range and throws RpcError kInvalidArgument with a
/// text such as "argument 2, item 5: expected an integer, got a text", or kResourceExhausted when
/// the message passes one of the DecodeLimits.
///
/// Not thread-safe. Refers to the message, the context and the reader it came from; a reader of
/// parts is taken from a named reader only (the overloads for temporaries are deleted), since error
/// texts walk the chain of readers.
class ValueReader {
 public:
  ValueReader(const proto::Value& value, internal::DecodeContext& context, ValuePath path);
  ValueReader(const ValueReader&) = delete;
  ValueReader& operator=(const ValueReader&) = delete;

  /// For codecs of types that take several.
  ValueKind kind() const;
  bool is_null() const { return kind() == ValueKind::kNull; }
  /// Checks that the value is null.
  void null() const;
  bool boolean() const;
  /// Both bounds are allowed values. The two functions take integers and naturals alike.
  std::int64_t integer(std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  std::uint64_t natural(std::uint64_t max = std::numeric_limits<std::uint64_t>::max()) const;
  /// Takes an integer too if a double holds it exactly, since many languages write 2.0 as 2.
  double real() const;
  /// A real that is finite and beyond the range of float is an error; others are rounded.
  float real32() const;

  // The views are valid as long as the message.
  std::string_view text() const;
  std::string_view binary() const;
  /// Takes text and binary alike.
  std::string_view string() const;

  /// Takes the packed forms too.
  ListReader list() const&;
  /// Checks that there are exactly `size` items.
  ListReader list(std::size_t size) const&;
  MapReader map() const&;
  ListReader list() const&& = delete;
  ListReader list(std::size_t size) const&& = delete;
  MapReader map() const&& = delete;

  /// Takes the tensor out of the message: a second call for the same value throws.
  at::Tensor tensor() const;
  /// Parses into `message`, whose type must be the one that was sent.
  void message(google::protobuf::Message& message) const;

  /// For rref/ only.
  const proto::Reference& reference() const;
  internal::DecodeContext& context() const { return context_; }
  const ValuePath& path() const { return path_; }

  /// Throws RpcError kInvalidArgument with `problem` behind the path: for codecs that check more
  /// than types.
  [[noreturn]] void fail(std::string_view problem) const;
  /// "expected <wanted>, got <what the value is>", e.g. fail_kind("a colour").
  [[noreturn]] void fail_kind(std::string_view wanted) const;

 private:
  friend class ListReader;
  friend class MapReader;
  // Items of the packed lists have no proto::Value of their own.
  enum class Source : std::uint8_t { kValue, kPackedReal, kPackedInteger };
  union Packed {
    double real;
    std::int64_t integer;
  };

  ValueReader(const ValueReader& outer, const char* noun, std::size_t index,
              const proto::Value* value, Source source, Packed packed);
  void count() const;

  const proto::Value* const value_;
  internal::DecodeContext& context_;
  const ValuePath path_;
  const Packed packed_{};
  const std::size_t nesting_;
  const Source source_ = Source::kValue;
};

/// The items of a list. Refers to the reader it came from.
class ListReader {
 public:
  std::size_t size() const { return size_; }
  /// `index` counts from 0 (error texts count from 1). Beyond the end: RpcError kInvalidArgument.
  ValueReader item(std::size_t index) const;

  /// The items at once if the list has that packed form, otherwise empty.
  absl::Span<const double> packed_reals() const;
  absl::Span<const std::int64_t> packed_integers() const;

 private:
  friend class ValueReader;
  ListReader(const ValueReader& reader, std::size_t size) : reader_(reader), size_(size) {}

  const ValueReader& reader_;
  const std::size_t size_;
};

/// The entries of a map, in no particular order. Refers to the reader it came from. Whether a key
/// is repeated is for the codec to check, which knows what equal means.
class MapReader {
 public:
  std::size_t size() const { return size_; }
  ValueReader key(std::size_t index) const;
  ValueReader value(std::size_t index) const;

 private:
  friend class ValueReader;
  MapReader(const ValueReader& reader, std::size_t size) : reader_(reader), size_(size) {}

  const ValueReader& reader_;
  const std::size_t size_;
};

}  // namespace sinew
