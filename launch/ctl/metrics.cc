#include "sinew/launch/ctl/metrics.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Counters that only grow; all others may fall.
constexpr absl::string_view kGrowing[] = {"rpc.requests",
                                          "rpc.retries",
                                          "rpc.calls_not_allowed",
                                          "rpc.calls_over_limit",
                                          "rpc.polls_paid",
                                          "rpc.polls_in_vain",
                                          "rpc.polled_us",
                                          "rpc.plane_fetched_bytes",
                                          "rpc.plane_fetched_tensors",
                                          "rpc.plane_failures",
                                          "optim.steps",
                                          "nccl.bytes_received",
                                          "nccl.bytes_sent",
                                          "nccl.transfers_sent",
                                          "nccl.transfers_received",
                                          "nccl.failures",
                                          "nccl.aborts",
                                          "device.transfers",
                                          "device.fetches"};

class Families {
 public:
  ClientMetric& add(const std::string& name, MetricType type, const std::string& help,
                    Labels labels) {
    MetricFamily& family = families_[name];
    family.name = name;
    family.type = type;
    family.help = help;
    family.metric.emplace_back();
    family.metric.back().label = std::move(labels);
    return family.metric.back();
  }
  void gauge(const std::string& name, const std::string& help, Labels labels, double value) {
    add(name, MetricType::Gauge, help, std::move(labels)).gauge.value = value;
  }
  void counter(const std::string& name, const std::string& help, Labels labels, double value) {
    add(name, MetricType::Counter, help, std::move(labels)).counter.value = value;
  }
  std::string text() const {
    std::vector<MetricFamily> all;
    for (const auto& [name, family] : families_) all.push_back(family);
    return prometheus::TextSerializer().Serialize(all);
  }

 private:
  std::map<std::string, MetricFamily> families_;
};

double seconds(std::uint64_t us) { return static_cast<double>(us) * 1e-6; }

Labels of(const WorkerView& view) { return {{"worker", printable(view.name, 128)}}; }

Labels with(Labels labels, const char* name, const std::string& value) {
  labels.push_back({name, printable(value, 512)});
  return labels;
}

void add_worker(const WorkerView& view, Families& families) {
  const proto::WorkerState& state = view.state;
  families.gauge("sinew_worker_up", "Whether the worker has answered.", of(view),
                 view.answered.ok() ? 1 : 0);
  if (!view.answered.ok()) return;
  families.gauge(
      "sinew_worker_info", "1, with what the worker is in its labels.",
      with(with(with(of(view), "rank", absl::StrCat(view.rank)), "address", view.address),
           "version", state.version()),
      1);
  families.gauge("sinew_worker_member",
                 "1: it is on the list of members, and the registrar answers.", of(view),
                 state.membership() == "MEMBER" ? 1 : 0);
  families.gauge("sinew_worker_members", "Members on the list as this worker has it.", of(view),
                 state.members_size());
  families.gauge("sinew_worker_age_seconds", "Time since the worker was started.", of(view),
                 seconds(state.age_us()));
  families.gauge("sinew_worker_resident_memory_bytes", "Memory of its process.", of(view),
                 static_cast<double>(state.resident_bytes()));
}

void add_methods(const WorkerView& view, Families& families) {
  for (const proto::MethodState& method : view.state.methods()) {
    const Labels labels = with(of(view), "method", method.name());
    ClientMetric::Histogram& times =
        families
            .add("sinew_call_duration_seconds", MetricType::Histogram,
                 "Times of calls that were served, from their arrival to their answer.", labels)
            .histogram;
    times.sample_count = method.calls();
    times.sample_sum = seconds(method.time_us());
    std::uint64_t so_far = 0;
    for (int power = 0; power < std::min(method.by_power_size(), 63); ++power) {
      so_far += method.by_power(power);
      times.bucket.push_back({so_far, seconds(std::uint64_t{1} << power)});
    }
    // Of calls that ended between two of the numbers.
    times.sample_count = std::max(times.sample_count, so_far);
    families.counter("sinew_call_errors_total", "Calls that were served and ended with an error.",
                     labels, static_cast<double>(method.errors()));
    families.counter("sinew_call_arguments_bytes_total",
                     "Bytes of their arguments, tensors included.", labels,
                     static_cast<double>(method.bytes()));
  }
}

void add_links(const WorkerView& view, Families& families) {
  for (const proto::LinkState& link : view.state.links()) {
    const Labels labels = with(of(view), "peer", link.peer().name());
    families.gauge("sinew_link_up", "Whether there is a connection.", labels,
                   link.state() == "up" ? 1 : 0);
    families.gauge("sinew_link_suspected", "1: the peer has not answered for half a lease.", labels,
                   link.suspected() ? 1 : 0);
    families.gauge("sinew_link_frames", "Messages that have not arrived there.", labels,
                   static_cast<double>(link.frames()));
    families.gauge("sinew_link_requests_bytes",
                   "Of calls on their way, or that wait for a thread there.", labels,
                   static_cast<double>(link.request_bytes()));
    families.gauge("sinew_link_window_bytes", "How many of those there may be.", labels,
                   static_cast<double>(link.window_bytes()));
    families.gauge("sinew_link_calls_without_room", "Calls that wait for that.", labels,
                   static_cast<double>(link.calls_without_room()));
  }
}

/// "rpc.polled_us" is `sinew_rpc_polled_seconds_total`.
void add_counters(const WorkerView& view, Families& families) {
  for (const auto& [name, number] : view.state.counters()) {
    const bool grows =
        std::find(std::begin(kGrowing), std::end(kGrowing), name) != std::end(kGrowing);
    absl::string_view stem = name;
    double scale = 1;
    if (absl::ConsumeSuffix(&stem, "_us")) scale = 1e-6;
    if (absl::ConsumeSuffix(&stem, "_ns")) scale = 1e-9;
    std::string text = absl::StrCat("sinew_", absl::StrReplaceAll(stem, {{".", "_"}}),
                                    scale != 1 ? "_seconds" : "", grows ? "_total" : "");
    for (char& each : text) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(each))) each = '_';
    }
    const std::string help = absl::StrCat("Worker::counters(): ", printable(name, 128), ".");
    const double value = static_cast<double>(number) * scale;
    grows ? families.counter(text, help, of(view), value)
          : families.gauge(text, help, of(view), value);
  }
}

}  // namespace

const std::vector<std::string>& metrics_wanted() {
  static const std::vector<std::string> wanted = {"links", "methods"};
  return wanted;
}

std::string metrics_text(const JobView& job) {
  Families families;
  for (const WorkerView& view : job) {
    add_worker(view, families);
    if (!view.answered.ok()) continue;
    add_methods(view, families);
    add_links(view, families);
    add_counters(view, families);
  }
  return families.text();
}

}  // namespace sinew::internal
