#include "sinew/tests/optim/history.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/optim/standby.h"

namespace testoptim {
namespace {

std::function<void()>& what_happens() {
  static auto& happens = *new std::function<void()>();
  return happens;
}

bool is_lost(const Acknowledged& one, std::size_t owner, const std::vector<std::int64_t>& loaded) {
  return std::any_of(loaded.begin() + one.run + 1, loaded.end(),
                     [&](std::int64_t version) { return version < one.versions[owner]; });
}

}  // namespace

std::string check_history(const std::vector<Acknowledged>& history,
                          const std::vector<std::int64_t>& loaded, std::int64_t steps) {
  std::string wrong;
  std::set<std::int64_t> kept;
  std::vector<std::set<std::int64_t>> versions;
  for (const Acknowledged& one : history) {
    versions.resize(one.versions.size());
    const bool lost = is_lost(one, 0, loaded);
    for (std::size_t owner = 0; owner < one.versions.size(); ++owner) {
      if (is_lost(one, owner, loaded) != lost) {
        absl::StrAppend(&wrong, "step ", one.step, " is lost at some owners only\n");
      }
      if (!lost && !versions[owner].insert(one.versions[owner]).second) {
        absl::StrAppendFormat(&wrong, "owner %d has version %d twice, again at step %d\n", owner,
                              one.versions[owner], one.step);
      }
    }
    if (!lost && !kept.insert(one.step).second) {
      absl::StrAppend(&wrong, "step ", one.step, " is there twice\n");
    }
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    if (kept.count(step) == 0) absl::StrAppend(&wrong, "step ", step, " is not there\n");
    for (std::size_t owner = 0; owner < versions.size(); ++owner) {
      if (versions[owner].count(step + 1) > 0) continue;
      absl::StrAppendFormat(&wrong, "owner %d has a step of version %d that nobody knows of\n",
                            owner, step + 1);
    }
  }
  return wrong;
}

void Picker::pick(const std::vector<sinew::RRef<Table>>& tables,
                  const sinew::optim::DistributedOptimizer& optimizer, std::int64_t run,
                  std::int64_t first, std::int64_t count) {
  if (run != run_ || first + count != end_) {
    run_ = run;
    next_ = first;
    end_ = first + count;
    failed_.reset();
  }
  for (; next_ < end_; ++next_) {
    try {
      step(tables, optimizer);
    } catch (const sinew::optim::PartialStep& error) {
      failed_ = error;
      throw;
    }
    failed_.reset();
  }
}

void Picker::step(const std::vector<sinew::RRef<Table>>& tables,
                  const sinew::optim::DistributedOptimizer& optimizer) {
  const sinew::Worker worker = sinew::current_worker();
  const sinew::Peer observer = worker.peer("worker0");
  Acknowledged acknowledged{next_, run_, {}};
  {
    const sinew::autograd::Context context(worker);
    pick_from(tables, next_, context);
    observer.call<&reached>();
    const auto report =
        failed_ ? sinew::optim::repeat(optimizer, *failed_, context) : optimizer.step(context);
    for (const auto& owner : report.owners) {
      acknowledged.versions.push_back(static_cast<std::int64_t>(owner.version));
    }
  }
  history_.push_back(std::move(acknowledged));
  observer.call<&reached>();
}

void reached() { what_happens()(); }
void on_reached(std::function<void()> happens) { what_happens() = std::move(happens); }

}  // namespace testoptim
