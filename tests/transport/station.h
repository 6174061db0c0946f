#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/tests/transport/recording_handler.h"
#include "sinew/tests/transport/transport_conformance.h"

namespace sinew::internal {

inline Frame make_frame(std::string envelope, std::vector<absl::Cord> payloads = {}) {
  Frame frame;
  frame.envelope = std::move(envelope);
  frame.payloads = std::move(payloads);
  return frame;
}

/// Bytes that tell their position, so that a piece in the wrong place shows.
inline std::string pattern(std::size_t bytes, std::size_t seed) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    text[i] = static_cast<char>((i * 31 + (i >> 8U) * 7 + (i >> 16U) + seed) & 0xffU);
  }
  return text;
}

inline std::vector<std::string> numbers(std::size_t count) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(absl::StrCat(i));
  return texts;
}

inline absl::Status send_number(Connection& connection, Lane lane, std::size_t number) {
  return connection.send(lane, make_frame(absl::StrCat(number)));
}

/// One transport and what it accepted.
struct Station {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<RecordingAcceptor> acceptor = std::make_unique<RecordingAcceptor>();
  UnaryHandler* unary = nullptr;

  explicit Station(TransportFixture& fixture, const Transport::Limits& limits = {})
      : transport(fixture.make(limits)) {}
  Station(Station&&) = default;
  ~Station() {
    if (transport != nullptr) transport->shutdown();
  }
  Station& start() {
    const absl::Status started = transport->start(acceptor.get(), unary);
    EXPECT_TRUE(started.ok()) << started;
    return *this;
  }
  std::string address() const { return transport->address(); }
};

/// A connection that is up at both ends.
struct Pair {
  std::shared_ptr<RecordingHandler> opener;
  std::shared_ptr<RecordingHandler> acceptor;
  std::shared_ptr<Connection> from_opener;
  std::shared_ptr<Connection> from_acceptor;

  bool ok() const { return from_opener != nullptr && from_acceptor != nullptr; }
};

inline Pair open(Station& from, Station& to, std::size_t index = 0,
                 std::shared_ptr<RecordingHandler> handler = std::make_shared<RecordingHandler>()) {
  Pair pair;
  pair.opener = std::move(handler);
  pair.from_opener =
      from.transport->connect(to.address(), "hello from the opener", "", pair.opener);
  EXPECT_TRUE(pair.opener->wait_up());
  pair.acceptor = to.acceptor->handler(index);
  if (pair.acceptor == nullptr || !pair.acceptor->wait_up()) {
    ADD_FAILURE() << "the connection was not accepted";
    return pair;
  }
  pair.from_acceptor = pair.acceptor->connection();
  return pair;
}

/// Two stations and a connection that `a` opened to `b`; check ok().
struct Connected : Pair {
  explicit Connected(TransportFixture& fixture, const Transport::Limits& limits = {})
      : a(fixture, limits), b(fixture, limits) {
    a.start();
    b.start();
    Pair::operator=(open(a, b));
  }

  Station a;
  Station b;
};

}  // namespace sinew::internal
