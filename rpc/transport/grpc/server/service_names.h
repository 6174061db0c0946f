#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sinew/rpc/transport/grpc/connection/lane_stream.h"

namespace sinew::internal {

constexpr char kWorkerService[] = "sinew.proto.Worker";
constexpr char kHealthService[] = "grpc.health.v1.Health";
constexpr char kReflectionService[] = "grpc.reflection.v1.ServerReflection";
/// The same messages: only clients that are old ask for it.
constexpr char kReflectionAlphaService[] = "grpc.reflection.v1alpha.ServerReflection";

constexpr char kExchangeMethod[] = "/sinew.proto.Worker/Exchange";
constexpr char kCallMethod[] = "/sinew.proto.Worker/Call";
constexpr char kHealthCheckMethod[] = "/grpc.health.v1.Health/Check";
constexpr char kHealthWatchMethod[] = "/grpc.health.v1.Health/Watch";
/// Of both versions.
constexpr const char* kReflectionMethods[] = {
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};

/// Request metadata of an Exchange stream: which lane it is, and which connection it belongs to
/// (not on the control stream, whose first answer carries the token).
constexpr char kLaneMetadata[] = "sinew-lane";
constexpr char kTokenMetadata[] = "sinew-connection";
/// In the trailers of a status that the acceptor chose itself, as opposed to one that gRPC made up.
constexpr char kRefusalMetadata[] = "sinew-refusal";

inline std::string lane_text(StreamKind kind) {
  switch (kind) {
    case StreamKind::kControl:
      return "control";
    case StreamKind::kCalls:
      return "calls";
    case StreamKind::kBulk:
      return "bulk";
  }
  return "";
}

inline std::optional<StreamKind> parse_lane(std::string_view text) {
  for (const StreamKind kind : {StreamKind::kControl, StreamKind::kCalls, StreamKind::kBulk}) {
    if (text == lane_text(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace sinew::internal
