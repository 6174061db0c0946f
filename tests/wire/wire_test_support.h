#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/rpc/wire/message_context.h"
#include "sinew/value.pb.h"

namespace sinew::testing {

/// What stands in a frame for one value.
struct Encoded {
  proto::Value value;
  std::vector<absl::Cord> payloads;
};

template <class T>
Encoded encode(const T& value) {
  Encoded encoded;
  internal::EncodeContext context;
  ValueWriter writer(encoded.value, context);
  Codec<T>::encode(writer, value);
  encoded.payloads = std::move(context.payloads());
  return encoded;
}

/// Decodes as argument 2 of a call.
template <class T>
T decode(const Encoded& encoded, internal::DecodeLimits limits = {}) {
  internal::DecodeContext context(encoded.payloads, nullptr, limits);
  const ValueReader reader(encoded.value, context, ValuePath{nullptr, "argument", 2});
  return Codec<T>::decode(reader);
}

/// Through the bytes of the message, as between two processes.
template <class T>
T round_trip(const T& value) {
  Encoded encoded = encode(value);
  const std::string bytes = encoded.value.SerializeAsString();
  encoded.value.Clear();
  EXPECT_TRUE(encoded.value.ParseFromString(bytes));
  return decode<T>(encoded);
}

/// Runs `action`, which must throw an RpcError, and returns it.
template <class Action>
RpcError error_of(Action&& action) {
  try {
    std::forward<Action>(action)();
  } catch (const RpcError& error) {
    return error;
  }
  ADD_FAILURE() << "no RpcError was thrown";
  return RpcError(ErrorCode::kUnknown, "no error");
}

/// The text of the error with which decoding as T ends; it must be kInvalidArgument.
template <class T>
std::string decode_error(const Encoded& encoded) {
  const RpcError error = error_of([&] { decode<T>(encoded); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.message();
  return error.message();
}

}  // namespace sinew::testing
