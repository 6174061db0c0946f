#include "sinew/launch/ctl/tables.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/launch/ctl/columns.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using Lines = std::vector<std::vector<std::string>>;
using google::protobuf::RepeatedPtrField;

std::string names_of(const RepeatedPtrField<proto::WorkerIdentity>& workers) {
  std::vector<std::string> names;
  for (const auto& worker : workers) names.push_back(worker.name());
  std::sort(names.begin(), names.end());
  return names.empty() ? "-" : absl::StrJoin(names, ", ");
}

std::string caller_of(const proto::ServedCall& call) {
  return call.caller().name().empty() ? absl::StrCat("client at ", call.origin())
                                      : call.caller().name();
}

template <class Entry>
std::string left_of(const Entry& entry) {
  return entry.has_left_us() ? time_text(entry.left_us()) : "no limit";
}

std::int64_t counter(const WorkerView& view, const std::string& name) {
  const auto found = view.state.counters().find(name);
  return found == view.state.counters().end() ? 0 : found->second;
}

/// Below a table: who has not answered, and which lists were cut.
std::string remarks(const JobView& job) {
  std::string text;
  for (const WorkerView& view : job) {
    if (!view.answered.ok()) {
      absl::StrAppend(&text, printable(view.name, 128), " at ", printable(view.address, 128),
                      " does not answer: ", cut_text(std::string(view.answered.message())), "\n");
    }
    for (const auto& [list, count] : view.state.left_out()) {
      absl::StrAppend(&text, printable(view.name, 128), " has ", count, " more ",
                      printable(list, 128), "\n");
    }
  }
  return text;
}

std::string table(const Lines& lines, const JobView& job) {
  return absl::StrCat(as_columns(lines), remarks(job));
}

std::string show_status(const JobView& job) {
  Lines lines = {{"RANK", "WORKER", "ADDRESS", "PROCESS", "AGE", "STATE", "MEMORY", "THREADS",
                  "CALLS MADE", "SERVED", "LINKS"}};
  for (const WorkerView& view : job) {
    const proto::WorkerState& state = view.state;
    if (!view.answered.ok()) {
      lines.push_back({absl::StrCat(view.rank), view.name, view.address, "-", "-", "NO ANSWER"});
      continue;
    }
    int up = 0;
    int suspected = 0;
    for (const proto::LinkState& link : state.links()) {
      up += link.state() == "up" ? 1 : 0;
      suspected += link.suspected() ? 1 : 0;
    }
    lines.push_back(
        {absl::StrCat(view.rank), view.name, view.address, absl::StrCat(state.process()),
         time_text(state.age_us()), state.membership(), size_text(state.resident_bytes()),
         absl::StrCat(counter(view, "rpc.threads"), ", ", counter(view, "rpc.blocked_threads"),
                      " wait"),
         absl::StrCat(counter(view, "rpc.client_active_calls")),
         absl::StrCat(counter(view, "rpc.server_active_calls")),
         absl::StrCat(up, " of ", state.links_size(), " up",
                      suspected > 0 ? absl::StrCat(", ", suspected, " suspected") : "")});
  }
  std::string heading;
  for (const WorkerView& view : job) {
    if (!view.answered.ok()) continue;
    heading = absl::StrCat("job '", printable(view.state.job(), 128), "', Sinew ",
                           printable(view.state.version(), 32), ", ", job.size(), " workers\n");
    break;
  }
  return absl::StrCat(heading, table(lines, job));
}

std::string show_calls(const JobView& job) {
  std::vector<std::pair<std::uint64_t, std::vector<std::string>>> calls;
  for (const WorkerView& view : job) {
    for (const proto::ServedCall& call : view.state.served_calls()) {
      calls.push_back(
          {call.age_us(),
           {time_text(call.age_us()), left_of(call), view.name, state_text(call.state()),
            call.method().empty() ? "(not read yet)" : call.method(), caller_of(call),
            absl::StrCat(call.id()),
            call.chain().empty() ? "-" : absl::StrJoin(call.chain(), " > ")}});
    }
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  Lines lines = {{"AGE", "LEFT", "AT", "STATE", "METHOD", "CALLER", "ID", "FROM"}};
  for (auto& [age, line] : calls) lines.push_back(std::move(line));
  return table(lines, job);
}

std::string show_references(const JobView& job) {
  Lines lines = {{"AT", "REFERENCE", "ROLE", "STATE", "TYPE", "AGE", "HANDLES", "OWNER OR HOLDERS",
                  "MADE AT"}};
  for (const WorkerView& view : job) {
    for (const proto::HeldReference& each : view.state.references()) {
      const bool is_owner = each.role() == proto::HeldReference::OWNER;
      lines.push_back({view.name, absl::StrFormat("%016x.%d", each.creator(), each.serial()),
                       is_owner ? "owner" : "user", each.state(), each.type(),
                       is_owner ? time_text(each.age_us()) : "-",
                       absl::StrCat(each.local_handles()), names_of(each.peers()), each.site()});
    }
  }
  return table(lines, job);
}

std::string show_contexts(const JobView& job) {
  Lines lines = {{"AT", "CONTEXT", "SENT", "RECEIVED", "PASSES", "WITH"}};
  for (const WorkerView& view : job) {
    for (const proto::GradientContext& each : view.state.contexts()) {
      lines.push_back({view.name, absl::StrFormat("%016x.%d", each.creator(), each.serial()),
                       absl::StrCat(each.sends()), absl::StrCat(each.receives()),
                       absl::StrCat(each.passes()), names_of(each.peers())});
    }
  }
  return table(lines, job);
}

std::string show_groups(const JobView& job) {
  Lines lines = {{"GROUP", "RANK", "WORKER", "COLLECTIVES CALLED", "UNDER WAY", "LEFT"}};
  for (const WorkerView& view : job) {
    for (const proto::GroupState& group : view.state.groups()) {
      const std::vector<std::string> begin = {group.name(),
                                              absl::StrCat(group.rank(), " of ", group.size()),
                                              view.name, absl::StrCat(group.called())};
      for (const proto::GroupOperation& operation : group.operations()) {
        lines.push_back(begin);
        const std::string which = operation.number() > 0
                                      ? absl::StrCat("number ", operation.number())
                                  : operation.peer() >= 0 ? absl::StrCat("rank ", operation.peer())
                                                          : "any rank";
        lines.back().push_back(absl::StrCat(operation.what(), ", ", which));
        lines.back().push_back(operation.has_left_us() ? time_text(operation.left_us()) : "-");
      }
      if (group.operations().empty()) lines.push_back(begin);
    }
  }
  return table(lines, job);
}

std::string show_names(const JobView& job) {
  Lines lines = {{"NAME", "TYPE"}};
  for (const WorkerView& view : job) {
    for (const proto::PublishedName& name : view.state.names()) {
      lines.push_back({absl::StrCat(view.name, "/", name.name()), name.type()});
    }
  }
  return table(lines, job);
}

std::string show_limits(const JobView& job) {
  Lines lines = {{"WORKER", "LIMIT", "NOW", "AT MOST"}};
  const auto line = [&](const WorkerView& view, const char* what, std::string now,
                        std::string most) {
    lines.push_back({view.name, what, std::move(now), std::move(most)});
  };
  for (const WorkerView& view : job) {
    if (!view.answered.ok()) continue;
    const auto number = [&view](const char* name) { return counter(view, name); };
    const auto size = [&](const char* name) {
      return size_text(static_cast<std::uint64_t>(std::max<std::int64_t>(0, number(name))));
    };
    const auto unless_none = [&](const char* name, std::string text) {
      return view.state.counters().count(name) > 0 ? std::move(text) : "no limit";
    };
    line(view, "threads that run handlers",
         absl::StrCat(number("rpc.threads") - number("rpc.idle_threads") -
                      number("rpc.blocked_threads")),
         absl::StrCat(number("rpc.max_threads")));
    line(view, "tasks that wait for one", absl::StrCat(number("rpc.queued_tasks")), "no limit");
    line(view, "memory of received tensors, kept", size("rpc.receive_pool_idle_bytes"),
         size("rpc.receive_pool_max_idle_bytes"));
    line(view, "memory of the process", size_text(view.state.resident_bytes()),
         unless_none("rpc.limit_memory_bytes", size("rpc.limit_memory_bytes")));
    line(view, "threads that may be started", absl::StrCat(number("rpc.limit_threads_left")),
         unless_none("rpc.limit_threads", absl::StrCat(number("rpc.limit_threads"))));
    line(view, "calls turned away for limits of methods",
         absl::StrCat(number("rpc.calls_over_limit")), "-");
    for (const proto::LinkState& link : view.state.links()) {
      if (link.request_bytes() == 0 && link.calls_without_room() == 0) continue;
      lines.push_back(
          {view.name,
           absl::StrCat("requests on their way to ", link.peer().name(),
                        link.calls_without_room() > 0
                            ? absl::StrCat(", ", link.calls_without_room(), " more wait")
                            : ""),
           size_text(link.request_bytes()), size_text(link.window_bytes())});
    }
  }
  return table(lines, job);
}

std::string show_links(const JobView& job) {
  Lines lines = {{"FROM", "TO", "STATE", "FRAMES", "LARGE TENSORS", "WHY NOT"}};
  for (const WorkerView& view : job) {
    for (const proto::LinkState& link : view.state.links()) {
      lines.push_back(
          {view.name, link.peer().name(),
           absl::StrCat(link.state(), link.suspected() ? ", does not answer" : ""),
           absl::StrCat(link.frames()),
           link.planes().empty() ? "over the connection" : absl::StrJoin(link.planes(), "; "),
           link.why_down().empty() ? "-" : link.why_down()});
    }
  }
  return table(lines, job);
}

/// A time that such a part of the calls did not exceed, as the upper end of its class.
std::string percentile(const google::protobuf::RepeatedField<std::uint64_t>& by_power,
                       double part) {
  std::uint64_t all = 0;
  for (const std::uint64_t count : by_power) all += count;
  std::uint64_t seen = 0;
  for (int power = 0; power < by_power.size(); ++power) {
    seen += by_power.Get(power);
    if (seen > 0 && static_cast<double>(seen) >= part * static_cast<double>(all)) {
      return time_text(std::uint64_t{1} << power);
    }
  }
  return "-";
}

std::string show_top(const JobView& job) {
  std::vector<std::pair<std::uint64_t, std::vector<std::string>>> methods;
  for (const WorkerView& view : job) {
    const double age = std::max(1e-3, static_cast<double>(view.state.age_us()) * 1e-6);
    for (const proto::MethodState& each : view.state.methods()) {
      methods.push_back({each.time_us(),
                         {view.name, each.name(), absl::StrCat(each.calls()),
                          absl::StrFormat("%.1f", static_cast<double>(each.calls()) / age),
                          absl::StrCat(each.errors()), time_text(each.time_us()),
                          time_text(each.calls() > 0 ? each.time_us() / each.calls() : 0),
                          percentile(each.by_power(), 0.5), percentile(each.by_power(), 0.99),
                          size_text(each.bytes())}});
    }
  }
  std::stable_sort(methods.begin(), methods.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  Lines lines = {{"AT", "METHOD", "CALLS", "PER S", "ERRORS", "TIME", "MEAN",
                  "P50 <=", "P99 <=", "ARGUMENTS"}};
  for (auto& [time, line] : methods) lines.push_back(std::move(line));
  return table(lines, job);
}

}  // namespace

const std::vector<Shown>& all_shown() {
  static const std::vector<Shown> shown = {
      {"status", "Who is in the job, and how they are", {"links"}, &show_status},
      {"calls", "Calls that are being served, the oldest first", {"served_calls"}, &show_calls},
      {"refs",
       "Remote references: owners, holders, and where they were made",
       {"references"},
       &show_references},
      {"contexts", "Contexts of distributed autograd", {"contexts"}, &show_contexts},
      {"groups", "Process groups, and what their ranks are at", {"groups"}, &show_groups},
      {"names", "Objects that are published", {"names"}, &show_names},
      {"limits", "What is bounded, and how much of it is used", {"links"}, &show_limits},
      {"links", "Connections between workers, and how large tensors go", {"links"}, &show_links},
      {"top", "Methods by the time that their calls have taken", {"methods"}, &show_top},
  };
  return shown;
}

}  // namespace sinew::internal
