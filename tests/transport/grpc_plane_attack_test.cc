// A peer that means harm, over whole connections: it has the number of the same-host plane, and
// says in its place whose memory the other end should read, and where.

#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/plane.pb.h"
#include "sinew/rpc/planes/challenge.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/transport/grpc_fixture.h"
#include "sinew/tests/transport/station.h"

namespace sinew::internal {
namespace {

using sinew::testing::eventually;

constexpr std::size_t kLarge = std::size_t{300} << 10;

/// What the other end would hold if it were asked to (an echoed tensor, say): here it is the same
/// process.
struct Held {
  Digest digest{};
  std::string secret = pattern(kLarge, 99);
};

/// Proves itself by an address in the victim's process, and locates the victim's secret.
class NamingPlane final : public PullPlane {
 public:
  explicit NamingPlane(std::shared_ptr<Held> held) : held_(std::move(held)) {}

  std::uint32_t number() const override { return 1; }
  absl::string_view name() const override { return "an attack"; }
  std::unique_ptr<PullLink> open(ConnectionEnds ends) override {
    return std::make_unique<Link>(held_, std::move(ends.local_hello));
  }

 private:
  class Link final : public PullLink {
   public:
    Link(std::shared_ptr<Held> held, std::string hello)
        : held_(std::move(held)), hello_(std::move(hello)) {
      proto::SameHostChallenge challenge;
      challenge.set_nonce(new_challenge());
      std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), *challenge.mutable_boot_id());
      challenge_ = challenge.SerializeAsString();
    }

    const std::string& challenge() const override { return challenge_; }
    absl::StatusOr<std::string> prove(absl::string_view bytes) override {
      proto::SameHostChallenge challenge;
      EXPECT_TRUE(challenge.ParseFromString(std::string(bytes)));
      held_->digest = *digest_of(challenge.nonce(), hello_);
      std::string proof("\x08");
      for (auto number = static_cast<std::uint32_t>(::getpid());; number >>= 7) {
        proof.push_back(static_cast<char>((number & 0x7fU) | (number > 0x7fU ? 0x80U : 0)));
        if (number <= 0x7fU) break;
      }
      proof.push_back('\x11');
      proof.append(address_of(held_->digest.data()));
      return proof;
    }
    void verify(absl::string_view, OnEnd on_end) override { std::move(on_end)(absl::OkStatus()); }
    std::optional<std::string> locate(const absl::Cord&) override {
      return address_of(held_->secret.data());
    }
    void release(absl::string_view) override {}
    void fetch(absl::string_view, PullTarget, OnEnd on_end) override {
      std::move(on_end)(absl::UnavailableError("not wanted"));
    }
    bool fetches_in_place() const override { return false; }
    void close() override {}

   private:
    static std::string address_of(const void* memory) {
      const auto address = reinterpret_cast<std::uintptr_t>(memory);
      return {reinterpret_cast<const char*>(&address), sizeof address};
    }

    const std::shared_ptr<Held> held_;
    const std::string hello_;
    std::string challenge_;
  };

  const std::shared_ptr<Held> held_;
};

/// The attacker opens a connection, and sends until it is closed. True: the victim has got its own
/// secret, and would give it to the attacker as the result of a method that returns what it got.
bool gets_the_secret(const Credentials& credentials) {
  const auto held = std::make_shared<Held>();
  GrpcTransportOptions options;
  options.credentials = credentials;
  Worker victim(options);
  options.tuning.same_host_plane = false;
  options.planes.push_back(std::make_shared<NamingPlane>(held));
  Worker attacker(options);
  const auto handler = std::make_shared<RecordingHandler>();
  const auto connection = attacker.transport->connect(victim.address(), "attacker", "", handler);
  EXPECT_TRUE(handler->wait_up());
  const auto accepted = victim.acceptor.handler();
  const std::string harmless = pattern(kLarge, 1);
  bool gets = false;
  EXPECT_TRUE(eventually([&] {
    const absl::Cord payload = absl::MakeCordFromExternal(harmless, [] {});
    const bool is_closed = !connection->send(Lane::kCalls, make_frame("echo", {payload})).ok();
    for (const Frame& received : accepted->take_frames(Lane::kCalls)) {
      gets = gets || std::string(received.payloads.at(0)) == held->secret;
    }
    return gets || is_closed;
  }));
  return gets;
}

TEST(GrpcPlaneAttack, NobodyNamesMemoryOfOthers) {
  EXPECT_FALSE(gets_the_secret(GrpcTransportOptions().credentials));
}

TEST(GrpcPlaneAttack, NorWithACertificate) {
  const sinew::testing::Certificates certificates;
  EXPECT_FALSE(gets_the_secret(
      Credentials::mutual_tls(certificates.issue("worker", "DNS:worker,IP:127.0.0.1"))));
}

}  // namespace
}  // namespace sinew::internal
