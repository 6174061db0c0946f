// What workers and their registrar say to each other.

#include <string>
#include <vector>

#include "sinew/rpc/membership/registrar/registry_codec.h"
#include "sinew/tests/fuzz/target.h"

namespace sinew::fuzz {

// The questions of `machine_targets.cc` are made of these too.
std::vector<std::string> questions() {
  using namespace sinew::internal;
  using namespace sinew::internal::registry;
  const Record self{{"worker", 1, {42}}, "127.0.0.1:4000"};
  Return back;
  back.self = self;
  back.job = "job";
  back.version = {3, {9}, 12};
  back.joined = {3, {9}, 4};
  back.known = {{"other", 0, {41}}};
  const std::vector<Request> requests = {Join{self, "job", 0},
                                         back,
                                         Renew{{3, {9}, 12}},
                                         Leave{true},
                                         Report{{41}, "its connection was reset"},
                                         Enter{5, "key", {"other", "worker"}, "value"},
                                         Cancel{5}};
  std::vector<std::string> all;
  std::uint64_t number = 0;
  for (const Request& request : requests) all.push_back(encode({1, request, ++number}));
  return all;
}

namespace {

using namespace sinew::internal;
using namespace sinew::internal::registry;

bool feed_question(std::string_view bytes) {
  const absl::StatusOr<AskedOfRegistrar> asked = decode_asked(std::string(bytes));
  if (!asked.ok()) return false;
  const std::string written = encode(*asked);
  const absl::StatusOr<AskedOfRegistrar> again = decode_asked(written);
  expect(again.ok() && encode(*again) == written, "a question reads the same");
  return true;
}

std::vector<std::string> answers() {
  SaidByRegistrar said;
  said.registrar = {9};
  said.lease = std::chrono::seconds(15);
  said.answered = 4;
  const Record member{{"worker", 1, {42}}, "127.0.0.1:4000"};
  List list;
  list.version = {3, {9}, 12};
  list.members = {member};
  Update update;
  update.since = 12;
  update.version = {3, {9}, 13};
  update.changes = {{member, Gone::kSilent, "not heard"}};
  said.items = {{1, list},
                {2, update},
                {3, Wait{"for rank 0"}},
                {4, Refused{absl::InvalidArgumentError("no")}},
                {5, Out{Gone::kSilent, "not heard"}},
                {6, Finished{5, absl::OkStatus(), {"a", "b"}}},
                {7, Missing{5, "worker2"}},
                {8, Probe{}},
                {9, ComeBack{}},
                {10, Renewed{{3, {9}, 13}}}};
  return {encode(said)};
}

bool feed_answer(std::string_view bytes) {
  const absl::StatusOr<SaidByRegistrar> said = decode_said(std::string(bytes));
  if (!said.ok()) return false;
  const std::string written = encode(*said);
  const absl::StatusOr<SaidByRegistrar> again = decode_said(written);
  expect(again.ok() && encode(*again) == written, "an answer reads the same");
  return true;
}

}  // namespace

std::vector<Target> job_targets() {
  return {{"registry_question", questions, feed_question},
          {"registry_answer", answers, feed_answer}};
}

}  // namespace sinew::fuzz
