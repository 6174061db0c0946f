#include "sinew/rpc/link/worker_key.h"

#include <gtest/gtest.h>

#include <string>

namespace sinew::internal {
namespace {

TEST(WorkerKeyTest, OnlyItsOwnerSignsForAnIncarnation) {
  const auto key = WorkerKey::draw();
  const auto other = WorkerKey::draw();
  EXPECT_NE(key->incarnation(), other->incarnation());
  const std::string signature = key->sign("a hello");
  EXPECT_TRUE(is_signed_by(key->incarnation(), key->public_half(), "a hello", signature));
  EXPECT_FALSE(is_signed_by(key->incarnation(), key->public_half(), "a hallo", signature));
  EXPECT_FALSE(
      is_signed_by(key->incarnation(), key->public_half(), "a hello", other->sign("a hello")));
  // Another's key says nothing of this incarnation.
  EXPECT_FALSE(
      is_signed_by(key->incarnation(), other->public_half(), "a hello", other->sign("a hello")));
}

TEST(WorkerKeyTest, BytesThatAreNoKeyOrSignature) {
  const auto key = WorkerKey::draw();
  const std::string signature = key->sign("a hello");
  for (const std::string& half : {std::string(), std::string(31, 'x'), std::string(33, 'x'),
                                  std::string(32, '\0'), std::string(32, '\xff')}) {
    EXPECT_FALSE(is_signed_by(key->incarnation(), half, "a hello", signature));
  }
  for (const std::string& wrong : {std::string(), signature.substr(1), signature + "x",
                                   std::string(64, '\0'), std::string(64, '\xff')}) {
    EXPECT_FALSE(is_signed_by(key->incarnation(), key->public_half(), "a hello", wrong));
  }
  EXPECT_FALSE(is_signed_by({}, key->public_half(), "a hello", signature));
}

// RFC 4231, test case 2.
TEST(WorkerKeyTest, MacIsHmacSha256) {
  const std::string mac = mac_of("Jefe", "what do ya want for nothing?");
  ASSERT_EQ(mac.size(), 32u);
  EXPECT_EQ(static_cast<unsigned char>(mac.front()), 0x5b);
  EXPECT_EQ(static_cast<unsigned char>(mac.back()), 0x43);
  EXPECT_TRUE(are_equal_secrets(mac, mac));
  EXPECT_FALSE(are_equal_secrets(mac, mac.substr(1)));
}

}  // namespace
}  // namespace sinew::internal
