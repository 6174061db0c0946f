// Writers and readers of weights in processes of their own, which are killed; and what a version
// costs.

#include <csignal>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sinew/tests/support/processes.h"

namespace {

using sinew::testing::ChildProcess;
using namespace std::chrono_literals;
using Child = std::unique_ptr<ChildProcess>;

struct Checked {
  std::uint64_t version = 0;
  std::uint64_t seen = 0;
  std::uint64_t wrong = 0;
};

struct Status {
  std::uint64_t mapped = 0;
  std::uint64_t changed = 0;
  std::uint64_t whole = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t fetched_bytes = 0;
};

class PublicationProcesses : public ::testing::Test {
 protected:
  Child begin(const std::string& name, int rank) const {
    auto child = std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_PUBLICATION_WORKER});
    child->send(absl::StrCat("start ", name, " tcp://127.0.0.1:", port_, " ", rank));
    return child;
  }
  Child start(const std::string& name, int rank) const {
    Child child = begin(name, rank);
    EXPECT_EQ(child->receive(), "ok");
    return child;
  }
  static std::uint64_t number(const std::string& answer) {
    std::uint64_t number = 0;
    EXPECT_TRUE(absl::SimpleAtoi(answer, &number)) << answer;
    return number;
  }
  static Checked check(ChildProcess& child) {
    Checked checked;
    std::istringstream(child.ask("check")) >> checked.version >> checked.seen >> checked.wrong;
    return checked;
  }
  static Status status(ChildProcess& child) {
    Status status;
    std::istringstream(child.ask("status")) >> status.mapped >> status.changed >> status.whole >>
        status.received_bytes >> status.fetched_bytes;
    return status;
  }

  const int port_ = sinew::testing::free_port();
};

// Rank 0 holds the job, and is not killed.
TEST_F(PublicationProcesses, KillsMakeNoMixtureAndNoStepBack) {
  constexpr int kReaders = 3;
  constexpr int kRounds = 6;
  std::mt19937_64 random(11);
  const Child host = start("host", 0);
  Child writer = start("writer", 1);
  ASSERT_EQ(writer->ask("write 100000 10"), "ok");
  const auto read = [&](int reader) {
    Child child = start(absl::StrCat("reader", reader), 2 + reader);
    EXPECT_EQ(child->ask(reader == 0 ? "read writer/weights own" : "read writer/weights share"),
              "ok");
    return child;
  };
  std::vector<Child> readers;
  for (int reader = 0; reader < kReaders; ++reader) readers.push_back(read(reader));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::uint64_t> before;
    for (const Child& child : readers) {
      const std::uint64_t version = number(child->ask("wait 1"));
      before.push_back(number(child->ask(absl::StrCat("wait ", version + 3))));
    }
    writer->signal(SIGKILL);
    const auto victim = static_cast<std::size_t>(random() % kReaders);
    readers[victim]->signal(SIGKILL);
    for (std::size_t reader = 0; reader < kReaders; ++reader) {
      if (reader == victim) continue;
      EXPECT_GE(check(*readers[reader]).version, before[reader]);
    }
    readers[victim] = read(static_cast<int>(victim));
    before[victim] = 0;
    writer = start("writer", 1);
    ASSERT_EQ(writer->ask("write 100000 10"), "ok");
    std::uint64_t seen = 0;
    for (std::size_t reader = 0; reader < kReaders; ++reader) {
      // Others may have told the new writer of more.
      const std::uint64_t version =
          number(readers[reader]->ask(absl::StrCat("wait ", before[reader] + 1)));
      EXPECT_GT(version, before[reader]);
      const Checked checked = check(*readers[reader]);
      EXPECT_EQ(checked.wrong, 0U);
      seen += checked.seen;
    }
    std::cout << "round " << round << ": " << seen << " versions seen since" << std::endl;
  }
}

TEST_F(PublicationProcesses, AStoppedReaderHoldsUpNobody) {
  const Child host = start("host", 0);
  const Child writer = start("writer", 1);
  std::vector<Child> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.push_back(start(absl::StrCat("reader", reader), 2 + reader));
    ASSERT_EQ(readers.back()->ask("read writer/weights own"), "ok");
  }
  ASSERT_EQ(writer->ask("publish 100000 1"), "1");
  for (const Child& child : readers) EXPECT_EQ(child->ask("wait 1"), "1");
  readers[0]->signal(SIGSTOP);
  for (int version = 2; version <= 6; ++version) {
    ASSERT_EQ(writer->ask("step"), std::to_string(version));
    EXPECT_EQ(number(readers[1]->ask(absl::StrCat("wait ", version))), version);
    EXPECT_EQ(number(readers[2]->ask(absl::StrCat("wait ", version))), version);
  }
  readers[0]->signal(SIGCONT);
  EXPECT_EQ(number(readers[0]->ask("wait 6")), 6U);
}

// 300 MB as bfloat16.
TEST_F(PublicationProcesses, OneCopyIsEnoughForAHost) {
  constexpr std::uint64_t kElements = 150'000'000;
  const Child host = start("host", 0);
  const Child writer = start("writer", 1);
  std::vector<Child> readers;
  for (int reader = 0; reader < 4; ++reader) {
    readers.push_back(start(absl::StrCat("reader", reader), 2 + reader));
    ASSERT_EQ(readers.back()->ask("read writer/weights share"), "ok");
  }
  ASSERT_EQ(writer->ask(absl::StrCat("publish ", kElements, " 0.02")), "1");
  std::uint64_t fetched = 0;
  for (const Child& child : readers) {
    EXPECT_EQ(child->ask("wait 1"), "1");
    std::cout << "reader: " << child->ask("status") << std::endl;
    const Status each = status(*child);
    EXPECT_EQ(each.mapped, 1U);
    fetched += each.received_bytes + each.fetched_bytes;
  }
  std::cout << "4 readers of " << 2 * kElements << " bytes fetched " << fetched << std::endl;
  EXPECT_LT(fetched, kElements / 5);
  // What changes, for one that has no memory with others.
  const Child own = start("own", 7);
  ASSERT_EQ(own->ask("read writer/weights figures"), "ok");
  EXPECT_EQ(own->ask("wait 1"), "1");
  const std::uint64_t whole = status(*own).received_bytes;
  EXPECT_EQ(whole, 2 * kElements);
  ASSERT_EQ(writer->ask("step"), "2");
  EXPECT_EQ(own->ask("wait 2"), "2");
  const Status after = status(*own);
  EXPECT_EQ(after.changed, 1U);
  const double share =
      static_cast<double>(after.received_bytes - whole) / static_cast<double>(whole);
  std::cout << "changes: " << after.received_bytes - whole << " bytes, " << 100 * share << " %"
            << std::endl;
  EXPECT_LT(share, 0.05);
}

}  // namespace
