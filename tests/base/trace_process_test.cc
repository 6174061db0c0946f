// Spans as SINEW_TRACE has them written, by a process of its own: what that says is read once.

#include "sinew/rpc/base/trace.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/support/temporary_folder.h"

namespace sinew::internal {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// Runs `work` in a child whose environment says that; returns what its traces are.
std::vector<std::string> traces(const std::string& every, const std::function<void()>& work) {
  const testing::TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    setenv("SINEW_TRACE", absl::StrCat(folder.path().string(), "/trace").c_str(), 1);
    if (!every.empty()) setenv("SINEW_TRACE_EVERY", every.c_str(), 1);
    work();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_THAT(entry.path().filename().string(), AllOf(StartsWith("trace."), EndsWith(".json")));
    std::ifstream file(entry.path());
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

TEST(Traces, HaveSpansOfProgramsAndPartsOfCalls) {
  const std::vector<std::string> written = traces("", [] {
    Trace& trace = *Trace::of_process();
    trace.note_worker("w\"0");
    { const TraceSpan span("load\nbatch"); }
    const auto now = Clock::system().now();
    trace.part({0xa1, 0xb2, 7}, "app::f at w1", now, now + std::chrono::milliseconds(3));
    trace.flush();
  });
  ASSERT_THAT(written, SizeIs(1));
  EXPECT_THAT(written[0], StartsWith("[\n{"));
  EXPECT_THAT(written[0], HasSubstr(R"("args":{"name":"w\"0"})"));
  EXPECT_THAT(written[0], HasSubstr(R"("ph":"X","cat":"program")"));
  EXPECT_THAT(written[0], HasSubstr(R"("name":"load batch")"));
  EXPECT_THAT(written[0], HasSubstr(R"("id2":{"global":"00000000000000a1.00000000000000b2.7"})"));
  EXPECT_THAT(written[0], AllOf(HasSubstr(R"("ph":"b")"), HasSubstr(R"("ph":"e")")));
}

TEST(Traces, AreOfEachSoManyThCallAtBothEnds) {
  const std::vector<std::string> written = traces("10", [] {
    int traced = 0;
    for (std::uint64_t i = 0; i < 1000; ++i)
      traced += Trace::of_process()->has({0xa1, 0xb2, i}) ? 1 : 0;
    // Neither all nor none, and about a tenth.
    if (traced < 50 || traced > 200) _exit(1);
  });
  EXPECT_THAT(written, IsEmpty());
}

TEST(Traces, AreNotWrittenWhereTheNumberIsNone) {
  for (const char* every : {"0", "-1", "ten", "1.5"}) {
    EXPECT_THAT(traces(every,
                       [] {
                         if (Trace::of_process() != nullptr) _exit(1);
                         const TraceSpan span("nothing");
                       }),
                IsEmpty());
  }
}

TEST(Traces, ThatCannotBeWrittenStopNothing) {
  traces("", [] {
    setenv("SINEW_TRACE", "/nowhere/at/all", 1);
    { const TraceSpan span("work"); }
    Trace::of_process()->flush();
  });
}

TEST(Traces, AreWrittenWhenTheProgramEnds) {
  const std::vector<std::string> written = traces("", [] {
    { const TraceSpan span("last"); }
    std::exit(0);
  });
  ASSERT_THAT(written, SizeIs(1));
  EXPECT_THAT(written[0], HasSubstr("\"last\""));
}

TEST(Traces, TakeThreads) {
  const std::vector<std::string> written = traces("", [] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        for (int j = 0; j < 1000; ++j) const TraceSpan span("work");
      });
    }
    for (std::thread& thread : threads) thread.join();
    Trace::of_process()->flush();
  });
  ASSERT_THAT(written, SizeIs(1));
  std::size_t count = 0;
  for (std::size_t at = 0; (at = written[0].find("\"work\"", at)) != std::string::npos; ++at)
    ++count;
  EXPECT_EQ(count, 4000U);
  EXPECT_THAT(written[0], Not(HasSubstr("}{")));
}

}  // namespace
}  // namespace sinew::internal
