// What threads have queued on devices is noted before others see that a future is complete, and
// whoever reads its value goes on behind it. There is no device here: the test says what is queued.
// tests/devices/streams_test.cc has the order of streams itself.

#include "sinew/rpc/base/internal/completion_work.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/internal/queued_work.h"

namespace sinew::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Asked for by the threads that complete futures.
struct Queue {
  static Queue& of_test() {
    static Queue queue;
    return queue;
  }
  static std::shared_ptr<const QueuedWork> find(QueuedOn which);

  std::vector<QueuedOn> asked_for;
  // By the same.
  std::vector<bool> was_readable;
  std::function<bool()> is_readable = [] { return false; };
  std::weak_ptr<const QueuedWork> last;
  int readers = 0;
};

class Work final : public QueuedWork {
 public:
  void precede_this_thread() const override { ++Queue::of_test().readers; }
};

std::shared_ptr<const QueuedWork> Queue::find(QueuedOn which) {
  Queue& queue = of_test();
  queue.asked_for.push_back(which);
  queue.was_readable.push_back(queue.is_readable());
  auto work = std::make_shared<Work>();
  queue.last = work;
  return work;
}

/// Whether the value of `future` is there for others.
template <class T>
std::function<bool()> readable(const Future<T>& future) {
  return [future] {
    try {
      future.value();
      return true;
    } catch (const RpcError&) {
      return false;
    }
  };
}

using Values = std::vector<double>;

class CompletionWorkTest : public ::testing::Test {
 protected:
  CompletionWorkTest() {
    queue() = {};
    set_find_queued_work(&Queue::find);
  }
  ~CompletionWorkTest() override {
    set_find_queued_work(nullptr);
    queue() = {};
  }
  static Queue& queue() { return Queue::of_test(); }
};

TEST_F(CompletionWorkTest, IsNotedBeforeTheValueCanBeRead) {
  const Promise<Values> promise;
  queue().is_readable = readable(promise.future());
  promise.set_value({1, 2});
  EXPECT_THAT(queue().was_readable, ElementsAre(false));
  EXPECT_TRUE(queue().is_readable());
}

TEST_F(CompletionWorkTest, OfTheReaderThatProducesTheValueIsNotedBeforeOthersReadIt) {
  const Promise<Values> promise;
  const Future<Values> future = promise.future();
  queue().is_readable = readable(future);
  FutureAccess::complete_lazily<Values>(promise, [] { return Values{1, 2}; });
  EXPECT_THAT(queue().asked_for, IsEmpty()) << "nothing is computed yet";
  future.wait();
  EXPECT_THAT(queue().was_readable, ElementsAre(false));
  EXPECT_EQ(queue().readers, 1) << "the thread itself among them: it may have changed its stream";
}

TEST_F(CompletionWorkTest, PrecedesEachReader) {
  const Promise<Values> promise;
  const Future<Values> future = promise.future();
  promise.set_value({1, 2});
  EXPECT_EQ(queue().readers, 0);
  EXPECT_EQ(future.wait().size(), 2U);
  EXPECT_EQ(queue().readers, 1);
  EXPECT_EQ(future.value().size(), 2U);
  EXPECT_EQ(queue().readers, 2);
  EXPECT_EQ(future.error(), nullptr);
  EXPECT_EQ(queue().readers, 3);
}

TEST_F(CompletionWorkTest, GoesWithItsFuture) {
  {
    const Promise<Values> promise;
    promise.set_value({1, 2});
    EXPECT_FALSE(queue().last.expired());
  }
  EXPECT_TRUE(queue().last.expired());
}

TEST_F(CompletionWorkTest, OfValuesWithoutTensorsIsThatOfSideStreams) {
  Promise<void>().set_value();
  Promise<std::string>().set_value("text");
  Promise<Values>().set_value({});
  EXPECT_THAT(queue().asked_for,
              ElementsAre(QueuedOn::kSideStreams, QueuedOn::kSideStreams, QueuedOn::kAllStreams));
}

TEST_F(CompletionWorkTest, IsNoneOfAFutureThatFails) {
  const Promise<Values> promise;
  promise.set_error(std::make_exception_ptr(RpcError(ErrorCode::kInternal, "no value")));
  EXPECT_NE(promise.future().error(), nullptr);
  EXPECT_THAT(queue().asked_for, IsEmpty());
  EXPECT_EQ(queue().readers, 0);
}

}  // namespace
}  // namespace sinew::internal
