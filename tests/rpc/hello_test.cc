// What a hello must bring before anything of a worker is asked.

#include "sinew/rpc/link/hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace sinew::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kToken[] = "0123456789abcdef";

SelfDescription worker(const std::string& name, const std::string& token) {
  const auto key = WorkerKey::draw();
  return {{name, -1, key->incarnation()}, "job", "there", 0, key, token};
}

/// What `self` finds wrong with a hello of `other`, of which something is changed on its way.
std::string said_of(const SelfDescription& self, const SelfDescription& other,
                    const std::function<void(proto::Hello&)>& change = {}) {
  proto::Hello hello;
  write_self(other, hello);
  EXPECT_TRUE(hello.ParseFromString(seal_hello(hello, other)));
  if (change) change(hello);
  const Unwelcome unwelcome = check_hello(hello, self, AuthenticatedPeer());
  EXPECT_EQ(unwelcome.refusal == Refusal::kNone, unwelcome.text.empty());
  return unwelcome.text;
}

TEST(HelloTest, IsItsSendersOwn) {
  const SelfDescription self = worker("self", "");
  const SelfDescription other = worker("other", "");
  EXPECT_THAT(said_of(self, other), IsEmpty());
  for (const auto& change : std::vector<std::function<void(proto::Hello&)>>{
           [](proto::Hello& hello) { hello.clear_signature(); },
           [](proto::Hello& hello) { hello.clear_key(); },
           [](proto::Hello& hello) { hello.set_address("elsewhere"); },
           [](proto::Hello& hello) { hello.mutable_worker()->set_name("another"); },
           [](proto::Hello& hello) { hello.mutable_worker()->set_incarnation(77); },
           [](proto::Hello& hello) { hello.set_attempt(7); }}) {
    EXPECT_THAT(said_of(self, other, change), HasSubstr("has not signed its hello"));
  }
}

TEST(HelloTest, TheTokenOfAJobIsKnownAtBothEndsOrAtNone) {
  const SelfDescription with = worker("self", kToken);
  const SelfDescription without = worker("self", "");
  EXPECT_THAT(said_of(with, worker("other", kToken)), IsEmpty());
  EXPECT_THAT(said_of(without, worker("other", "")), IsEmpty());
  for (const std::string& token : {std::string(), std::string("0123456789abcdeg")}) {
    EXPECT_THAT(said_of(with, worker("other", token)),
                HasSubstr("'other' does not know the token of this job: give all processes"));
  }
  EXPECT_THAT(said_of(without, worker("other", kToken)),
              HasSubstr("'other' has a token of its job, and worker 'self' has none"));
}

TEST(HelloTest, TheTokenItselfIsNotSaid) {
  const SelfDescription self = worker("self", kToken);
  proto::Hello hello;
  write_self(self, hello);
  EXPECT_THAT(seal_hello(hello, self), Not(HasSubstr(kToken)));
  // Nor is the proof in another's hello one of this one's.
  const SelfDescription thief = worker("thief", "");
  proto::Hello stolen;
  ASSERT_TRUE(stolen.ParseFromString(seal_hello(hello, self)));
  const std::string proof = stolen.token_proof();
  proto::Hello own;
  write_self(thief, own);
  own.set_token_proof(proof);
  ASSERT_TRUE(own.ParseFromString(seal_hello(own, thief)));
  EXPECT_THAT(check_hello(own, self, AuthenticatedPeer()).text,
              HasSubstr("does not know the token"));
}

TEST(HelloTest, ARefusalIsForWhomItAnswers) {
  const SelfDescription self = worker("self", kToken);
  const SelfDescription other = worker("other", kToken);
  proto::Hello said;
  write_self(other, said);
  said.set_attempt(7);
  const auto refusal = read_refusal(refuse(self, Refusal::kLostHere, "it is lost", said));
  ASSERT_TRUE(refusal.ok()) << refusal.status();
  EXPECT_TRUE(is_signed(*refusal));
  EXPECT_EQ(refusal->expected().incarnation(), other.worker.incarnation.value);
  EXPECT_EQ(refusal->attempt(), 7u);
}

}  // namespace
}  // namespace sinew::internal
