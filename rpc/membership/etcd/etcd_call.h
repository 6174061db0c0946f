#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "grpcpp/alarm.h"
#include "grpcpp/client_context.h"
#include "sinew/rpc/membership/etcd/etcd_client.h"

namespace sinew::internal::etcd {

// What is under way in an EtcdClient: for its sources.

inline constexpr int kMaxAuthentications = 2;

inline absl::Status to_absl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

/// An operation of gRPC's that will end.
struct EtcdClient::Tag {
  absl::AnyInvocable<void(bool)> task;
  std::unique_ptr<grpc::Alarm> alarm;
};

struct EtcdClient::Call {
  const char* path = nullptr;
  std::unique_ptr<Message> request;
  std::unique_ptr<Message> response;
  Clock::time_point deadline;
  /// After so long without an answer the next server is asked too, so that servers that can be away
  /// while etcd serves do not use up the time of the call one after the other.
  Time patience{};
  Done done;
  int authentications = 0;
  /// Of the attempts before.
  absl::Status last;

  bool is_authentication() const {
    return absl::string_view(path) == Method<pb::AuthenticateRequest>::kPath;
  }
};

struct EtcdClient::Attempt {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Message>> reader;
  /// Of its own: another attempt of the same call may be under way.
  std::unique_ptr<Message> response;
  grpc::Status status;
  std::uint64_t generation = 0;
  std::string endpoint;
  std::string token;
  /// It had less time than a server may take.
  bool is_short = false;
  /// Another one has begun, which goes on with the call if this one fails.
  bool has_successor = false;
};

struct EtcdClient::Watch {
  WatchId id = 0;
  std::string key;
  std::string range_end;
  /// The first one that has not been told.
  std::int64_t next_revision = 0;
  Watcher watcher;
  /// Null between two.
  std::shared_ptr<Stream> stream;
  int refusals = 0;
};

struct EtcdClient::Stream {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<Message, Message>> calls;
  pb::WatchRequest request;
  pb::WatchResponse response;
  /// Of answers that go on.
  std::vector<Event> events;
  bool is_created = false;
  grpc::Status status;
  std::uint64_t generation = 0;
  std::string endpoint;
  std::string token;
};

}  // namespace sinew::internal::etcd
