#include "sinew/launch/ctl/job_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

constexpr char kState[] = "sinew.operator.state";
constexpr char kCancel[] = "sinew.operator.cancel";
constexpr char kStop[] = "sinew.operator.stop";
constexpr char kEvents[] = "sinew.operator.events";

proto::Call state_call(const std::vector<std::string>& wanted) {
  proto::Call call;
  call.set_method(kState);
  proto::ValueList& list = *call.add_arguments()->mutable_list();
  for (const std::string& name : wanted) list.add_items()->set_text(name);
  return call;
}

absl::StatusOr<proto::WorkerState> state_of(const absl::StatusOr<proto::Value>& value) {
  if (!value.ok()) return value.status();
  proto::WorkerState state;
  if (!value->has_message() || !value->message().UnpackTo(&state)) {
    return absl::InternalError("it answered with what is no state of a worker");
  }
  return state;
}

WorkerView view_of(const proto::Member& member) {
  WorkerView view;
  view.name = member.worker().name();
  view.rank = member.worker().rank();
  view.address = member.address();
  return view;
}

void note(const absl::StatusOr<proto::Value>& value, WorkerView& view) {
  absl::StatusOr<proto::WorkerState> state = state_of(value);
  view.answered = state.status();
  if (state.ok()) view.state = *std::move(state);
}

absl::Status about(const std::string& address, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("the worker at ", address,
                                                  " does not answer: ", status.message()));
}

}  // namespace

const char* state_text(proto::ServedCall::State state) {
  switch (state) {
    case proto::ServedCall::QUEUED:
      return "waits for a thread";
    case proto::ServedCall::WAITS_FOR_TURN:
      return "waits for its turn at its object";
    case proto::ServedCall::WAITS_FOR_ARGUMENTS:
      return "waits for its arguments";
    default:
      return "runs";
  }
}

absl::StatusOr<JobView> ask_job(const JobAccess& access, const std::vector<std::string>& wanted) {
  const proto::Call call = state_call(wanted);
  absl::StatusOr<proto::WorkerState> first = state_of(
      call_all({{access.address, access.worker_name, call}}, access.client, access.patience)
          .front());
  if (!first.ok()) return about(access.address, first.status());
  JobView job;
  std::vector<UnaryRequest> requests;
  for (const proto::Member& member : first->members()) {
    job.push_back(view_of(member));
    if (member.worker().incarnation() == first->worker().incarnation()) continue;
    requests.push_back({member.address(), member.worker().name(), call});
  }
  const auto answers = call_all(requests, access.client, access.patience);
  auto answer = answers.begin();
  for (int i = 0; i < first->members_size(); ++i) {
    WorkerView& view = job[static_cast<std::size_t>(i)];
    if (first->members(i).worker().incarnation() != first->worker().incarnation()) {
      note(*answer++, view);
    }
  }
  const auto own = std::find_if(job.begin(), job.end(), [&](const WorkerView& view) {
    return view.name == first->worker().name() && view.state.address().empty() &&
           view.answered.ok();
  });
  if (own != job.end()) own->state = *std::move(first);
  std::stable_sort(job.begin(), job.end(),
                   [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return job;
}

namespace {

absl::StatusOr<bool> ask_yes_or_no(const JobAccess& access, const proto::Call& call) {
  const absl::StatusOr<proto::Value> answer =
      call_all({{access.address, access.worker_name, call}}, access.client, access.patience)
          .front();
  if (!answer.ok()) return about(access.address, answer.status());
  return answer->boolean();
}

}  // namespace

absl::StatusOr<std::vector<WorkerEvents>> ask_events(const JobAccess& access, std::uint64_t most) {
  const absl::StatusOr<JobView> job = ask_job(access, {});
  if (!job.ok()) return job.status();
  proto::Call call;
  call.set_method(kEvents);
  call.add_arguments()->set_natural(most);
  std::vector<UnaryRequest> requests;
  for (const WorkerView& view : *job) requests.push_back({view.address, view.name, call});
  const auto answers = call_all(requests, access.client, access.patience);
  std::vector<WorkerEvents> all;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    all.push_back({(*job)[i].name, answers[i].status(), {}});
    if (!answers[i].ok()) continue;
    for (const proto::Value& line : answers[i]->list().items())
      all.back().lines.push_back(line.text());
  }
  return all;
}

absl::StatusOr<bool> ask_cancel(const JobAccess& access, const std::string& caller,
                                std::uint64_t id) {
  proto::Call call;
  call.set_method(kCancel);
  call.add_arguments()->set_text(caller);
  call.add_arguments()->set_natural(id);
  return ask_yes_or_no(access, call);
}

absl::StatusOr<bool> ask_stop(const JobAccess& access) {
  proto::Call call;
  call.set_method(kStop);
  return ask_yes_or_no(access, call);
}

}  // namespace sinew::internal
