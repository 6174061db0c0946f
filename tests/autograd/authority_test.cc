// From whom word of contexts and passes is taken: the rules by themselves.

#include "sinew/autograd/internal/authority.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sinew/autograd/internal/ended_contexts.h"

namespace sinew::internal {
namespace {

using autograd::ContextId;
using ::testing::HasSubstr;

constexpr Incarnation kTrainer{0xa};
constexpr Incarnation kServer{0xb};
constexpr Incarnation kEve{0xe};
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

const WorkerInfo trainer{"trainer", 0, kTrainer};
const WorkerInfo server{"server", 1, kServer};
const WorkerInfo eve{"eve", 3, kEve};
// It says that it is the trainer.
const WorkerInfo guest{"trainer", -1, kTrainer};
const WorkerInfo client;

const PassId pass{kTrainer, 1};
const ContextId context{kTrainer, 5, 77};

bool refused(const absl::Status& status) { return absl::IsPermissionDenied(status); }

TEST(Authority, ClientsAndGuestsHaveNoSay) {
  EXPECT_TRUE(check_member(trainer).ok());
  EXPECT_THAT(std::string(check_member(client).message()), HasSubstr("a client takes no part"));
  EXPECT_THAT(std::string(check_member(guest).message()), HasSubstr("worker 'trainer' takes no"));
  for (const WorkerInfo& nobody : {client, guest}) {
    EXPECT_TRUE(refused(check_member(nobody)));
    EXPECT_TRUE(refused(check_asks(nobody, pass)));
    EXPECT_TRUE(refused(check_aborts(nobody, pass)));
    for (const Part part : {Part::kNone, Part::kTakesPart}) {
      EXPECT_TRUE(refused(check_brings(nobody, pass, Answering::kAtTheEnd, part)));
      EXPECT_TRUE(refused(check_brings(nobody, pass, Answering::kInSteps, part)));
      EXPECT_FALSE(may_end(nobody, context, part));
    }
  }
}

TEST(Authority, ThePassOfAnother) {
  EXPECT_TRUE(check_asks(trainer, pass).ok());
  EXPECT_TRUE(refused(check_asks(server, pass)));

  EXPECT_TRUE(check_brings(server, pass, Answering::kAtTheEnd, Part::kTakesPart).ok());
  EXPECT_TRUE(refused(check_brings(eve, pass, Answering::kAtTheEnd, Part::kNone)));
  EXPECT_TRUE(check_brings(trainer, pass, Answering::kInSteps, Part::kTakesPart).ok());
  EXPECT_TRUE(refused(check_brings(server, pass, Answering::kInSteps, Part::kTakesPart)));

  EXPECT_TRUE(check_aborts(trainer, pass).ok());
  const absl::Status stranger = check_aborts(eve, pass);
  EXPECT_TRUE(refused(stranger));
  EXPECT_THAT(std::string(stranger.message()), HasSubstr("worker 'eve' may not end"));
}

TEST(Authority, TheContextOfAnother) {
  EXPECT_TRUE(may_end(trainer, context, Part::kNone));
  EXPECT_TRUE(may_end(server, context, Part::kTakesPart));
  EXPECT_FALSE(may_end(eve, context, Part::kNone));
}

TEST(EndedContexts, TheCreatorsWordHoldsForAll) {
  EndedContexts ended;
  ended.add(kTrainer, context, 3);
  for (const Incarnation caller : {kTrainer, kServer, kEve}) {
    EXPECT_TRUE(ended.contains(context, caller));
    EXPECT_TRUE(ended.contains({kTrainer, 2, 1}, caller));
    EXPECT_FALSE(ended.contains({kTrainer, 3, 1}, caller));
    EXPECT_FALSE(ended.contains({kTrainer, 5, 78}, caller)) << "another secret, another context";
    EXPECT_FALSE(ended.contains({kServer, 1, 1}, caller));
  }
  EXPECT_EQ(ended.live_from(kTrainer), 3U);
}

TEST(EndedContexts, TheWordOfOthersHoldsForThemselves) {
  EndedContexts ended;
  ended.add(kEve, {kTrainer, 1, 0}, kMax);
  EXPECT_FALSE(ended.contains(context, kTrainer));
  EXPECT_FALSE(ended.contains(context, kServer));
  EXPECT_TRUE(ended.contains(context, kEve));
  EXPECT_EQ(ended.live_from(kTrainer), 0U);
  EXPECT_EQ(ended.live_from(kEve), 0U);
}

TEST(EndedContexts, WhatHasEndedStaysSo) {
  EndedContexts ended;
  ended.add(kTrainer, {kTrainer, 9, 1}, 8);
  ended.add(kTrainer, {kTrainer, 4, 1}, 2);  // Late.
  EXPECT_EQ(ended.live_from(kTrainer), 8U);
  EXPECT_TRUE(ended.contains({kTrainer, 7, 5}, kServer));
  EXPECT_EQ(ended.size(), 1U) << "what lies below needs no memory";
  ended.add(kTrainer, {kTrainer, 9, 1}, kMax);
  EXPECT_EQ(ended.size(), 0U);
  EXPECT_TRUE(ended.contains({kTrainer, kMax - 1, 5}, kServer));
  EXPECT_FALSE(ended.contains({kTrainer, kMax, 5}, kServer));
  ended.add(kTrainer, {kTrainer, kMax, 5}, 0);
  EXPECT_TRUE(ended.contains({kTrainer, kMax, 5}, kServer));
  EXPECT_EQ(ended.live_from(kTrainer), kMax);
}

TEST(EndedContexts, NobodyFillsTheMemory) {
  EndedContexts ended;
  ended.add(kTrainer, context, 0);
  for (std::uint64_t i = 1; i <= EndedContexts::kMaxPerTeller + 10; ++i) {
    ended.add(kEve, {kTrainer, i, 0}, 0);
  }
  EXPECT_EQ(ended.size(), EndedContexts::kMaxPerTeller + 1);
  EXPECT_TRUE(ended.contains(context, kServer)) << "nor pushes out what others have said";
  EXPECT_FALSE(ended.contains({kTrainer, 10, 0}, kEve));
  EXPECT_TRUE(ended.contains({kTrainer, 11, 0}, kEve));
  for (std::uint64_t i = 1; i <= EndedContexts::kMaxCreatorsPerTeller + 10; ++i) {
    ended.add(kServer, {Incarnation{1000 + i}, 1, 0}, 0);
  }
  EXPECT_LE(ended.size(), EndedContexts::kMaxPerTeller + EndedContexts::kMaxCreatorsPerTeller + 1);
  ended.forget(kEve);
  ended.forget(kServer);
  EXPECT_EQ(ended.size(), 1U);
  ended.add(kServer, context, 0);
  ended.forget(kTrainer);
  EXPECT_EQ(ended.size(), 0U);
}

}  // namespace
}  // namespace sinew::internal
