#include "sinew/launch/internal/output_relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>

namespace sinew::internal {
namespace {

using namespace std::chrono_literals;

/// Two processes, "a" and "b", whose output goes to one pipe.
class Relay : public ::testing::Test {
 protected:
  Relay() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_ = FileDescriptor(ends[0]);
    output_ = FileDescriptor(ends[1]);
    for (const char* name : {"a", "b"}) {
      absl::StatusOr<FileDescriptor> writer =
          relay_.open({std::string(name) + ": ", output_.number(), FileDescriptor()});
      EXPECT_TRUE(writer.ok());
      writers_[name] = *std::move(writer);
    }
  }

  void write(const std::string& name, const std::string& text) {
    EXPECT_EQ(::write(writers_[name].number(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    relay_.step(now_);
  }
  void end(const std::string& name) {
    writers_.erase(name);
    relay_.step(now_);
  }
  /// Until the relay wants to be asked again.
  void pass() {
    ASSERT_NE(relay_.wake(), OutputRelay::TimePoint::max());
    now_ = relay_.wake();
    relay_.step(now_);
  }
  /// Since the last time.
  std::string shown() {
    char bytes[4096];
    const ssize_t size = ::read(reader_.number(), bytes, sizeof bytes);
    return size > 0 ? std::string(bytes, static_cast<std::size_t>(size)) : "";
  }

  OutputRelay::TimePoint now_{1h};
  OutputRelay relay_;
  FileDescriptor reader_;
  FileDescriptor output_;
  std::map<std::string, FileDescriptor> writers_;
};

TEST_F(Relay, KeepsLinesWhole) {
  write("a", "one, ");
  write("b", "other\nand ");
  write("a", "two\n");
  EXPECT_EQ(shown(), "b: other\na: one, two\n");
  end("b");
  EXPECT_EQ(shown(), "b: and \n");
}

TEST_F(Relay, ShowsWhatWaitsTooLong) {
  write("a", "how many?");
  EXPECT_EQ(relay_.wake(), now_ + 500ms);
  now_ += 499ms;
  relay_.step(now_);
  EXPECT_EQ(shown(), "");
  pass();
  EXPECT_EQ(shown(), "a: how many?");
  EXPECT_EQ(relay_.wake(), OutputRelay::TimePoint::max());
  write("a", " three\nnext\n");
  EXPECT_EQ(shown(), " three\na: next\n");
}

TEST_F(Relay, WaitsFromTheLastPieceOn) {
  write("a", "1");
  now_ += 400ms;
  write("a", "2");
  now_ += 400ms;
  relay_.step(now_);
  EXPECT_EQ(shown(), "");
  pass();
  EXPECT_EQ(shown(), "a: 12");
}

TEST_F(Relay, ALineIsNotContinuedBehindThatOfAnother) {
  write("a", "one");
  pass();
  write("b", "other\n");
  write("a", " more\n");
  EXPECT_EQ(shown(), "a: one\nb: other\na:  more\n");
  write("a", "one");
  pass();
  relay_.say(output_.number(), "said");
  relay_.step(now_);
  EXPECT_EQ(shown(), "a: one\nsaid\n");
}

TEST_F(Relay, ShowsWhatIsOverwritten) {
  write("a", "\r10%");
  EXPECT_EQ(shown(), "");
  write("a", "\r20%");
  EXPECT_EQ(shown(), "a: 10%\r");
  pass();
  EXPECT_EQ(shown(), "a: 20%");
  write("a", "\r30%\r");
  pass();
  EXPECT_EQ(shown(), "\ra: 30%\r");
  write("b", "other\n");
  EXPECT_EQ(shown(), "\nb: other\n");
  write("a", "done\n");
  EXPECT_EQ(shown(), "a: done\n");
}

TEST_F(Relay, AReturnMayBePartOfALinesEnd) {
  write("a", "one\r\ntwo\r");
  EXPECT_EQ(shown(), "a: one\r\n");
  write("a", "\n");
  EXPECT_EQ(shown(), "a: two\r\n");
}

TEST_F(Relay, EndsALineThatItsWriterLeaves) {
  write("a", "one");
  pass();
  end("a");
  EXPECT_EQ(shown(), "a: one\n");
}

}  // namespace
}  // namespace sinew::internal
