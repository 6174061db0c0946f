#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"

namespace at {
class Tensor;
}
namespace c10 {
struct Device;
}
namespace google::protobuf {
class Message;
}

namespace sinew {

namespace proto {
class Reference;
class Value;
class ValueList;
class ValueMap;
}  // namespace proto
namespace internal {
class EncodeContext;
}

class ListWriter;
class MapWriter;

/// Writes exactly one value of the wire format; what a Codec's encode() is given. A codec calls one
/// of the writing functions, once; a second call throws RpcError kInternal. Lists and maps hand out
/// one writer for each part.
///
/// All functions throw RpcError: kInvalidArgument for what the format cannot carry,
/// kResourceExhausted for values nested deeper than internal::kMaxNesting. What was written so far
/// is then of no use. Not thread-safe. Lives no longer than the message and the context it writes
/// to.
class ValueWriter {
 public:
  /// `value` must be empty (null).
  ValueWriter(proto::Value& value, internal::EncodeContext& context)
      : ValueWriter(value, context, 0) {}
  ValueWriter(const ValueWriter&) = delete;
  ValueWriter& operator=(const ValueWriter&) = delete;

  void null();
  void boolean(bool value);
  void integer(std::int64_t value);
  /// Written as an integer when it fits one.
  void natural(std::uint64_t value);
  void real(double value);
  /// UTF-8 only; for other bytes there are binary() and string().
  void text(std::string_view utf8);
  void binary(std::string_view bytes);
  /// Text if `bytes` is valid UTF-8, otherwise binary: what a std::string becomes. Readers take
  /// both for a string.
  void string(std::string_view bytes);

  /// A list of `size` reals or integers in the packed form, for the caller to fill; it starts as
  /// zeros. The span is valid until the message is changed again.
  absl::Span<double> reals(std::size_t size);
  absl::Span<std::int64_t> integers(std::size_t size);

  /// Parts are written through the result; `expected_size` only saves reallocations.
  ListWriter list(std::size_t expected_size);
  MapWriter map(std::size_t expected_size);

  /// Large tensors are not copied: see docs/values.md for what that asks of the caller.
  void tensor(const at::Tensor& tensor);
  void message(const google::protobuf::Message& message);

  /// For autograd/ only: a tensor that goes to `device` of the receiver, whatever the map says.
  void tensor_to(const at::Tensor& tensor, const c10::Device& device);
  /// For rref/ only: the reference to fill in.
  proto::Reference& reference();
  internal::EncodeContext& context() const { return context_; }

 private:
  friend class ListWriter;
  friend class MapWriter;

  ValueWriter(proto::Value& value, internal::EncodeContext& context, int nesting)
      : value_(value), context_(context), nesting_(nesting) {}
  // Called first by each writing function.
  proto::Value& claim();
  int nesting_of_parts() const;

  proto::Value& value_;
  internal::EncodeContext& context_;
  const int nesting_;
  bool written_ = false;
};

/// Appends to a list.
class ListWriter {
 public:
  /// The writer of the next item; use it before the next call.
  ValueWriter next();

 private:
  friend class ValueWriter;
  ListWriter(proto::ValueList& list, internal::EncodeContext& context, int nesting)
      : list_(list), context_(context), nesting_(nesting) {}

  proto::ValueList& list_;
  internal::EncodeContext& context_;
  const int nesting_;
};

/// Appends to a map: for each entry the key, then its value. Keys must be unique; readers refuse a
/// repeated one.
class MapWriter {
 public:
  ValueWriter next_key();
  ValueWriter next_value();

 private:
  friend class ValueWriter;
  MapWriter(proto::ValueMap& map, internal::EncodeContext& context, int nesting)
      : map_(map), context_(context), nesting_(nesting) {}

  proto::ValueMap& map_;
  internal::EncodeContext& context_;
  const int nesting_;
};

}  // namespace sinew
