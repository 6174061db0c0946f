#include "sinew/tests/chaos/chaos_methods.h"

#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/tests/process/churn_methods.h"

namespace chaos {
namespace {

std::shared_ptr<Belongings>& belongings_slot() {
  static auto& slot = *new std::shared_ptr<Belongings>(std::make_shared<Belongings>());
  return slot;
}

std::unique_ptr<HistoryFile>& history_slot() {
  static auto& slot = *new std::unique_ptr<HistoryFile>();
  return slot;
}

}  // namespace

std::string counter_of(const sinew::WorkerInfo& worker) {
  return absl::StrCat(worker.name, ":", absl::Hex(worker.incarnation.value));
}

std::int64_t Counter::increment(const std::string& id) {
  history().applied(id, counter_of(sinew::current_worker().info()));
  return ++count_;
}

Model::Model() : weight_(at::zeros({kSize}).set_requires_grad(true)) {}
sinew::RRef<at::Tensor> Model::parameter() { return sinew::make_rref(weight_); }
at::Tensor Model::pick(std::int64_t index) { return weight_[index]; }
at::Tensor Model::value() { return weight_.detach().clone(); }

std::shared_ptr<Belongings> belongings() { return std::atomic_load(&belongings_slot()); }
void begin_anew() { std::atomic_store(&belongings_slot(), std::make_shared<Belongings>()); }

HistoryFile& history() { return *history_slot(); }
void set_history(std::unique_ptr<HistoryFile> file) { history_slot() = std::move(file); }

std::int64_t increment(const std::string& id) { return belongings()->counter->increment(id); }
at::Tensor scale(const at::Tensor& tensor, double factor) { return tensor * factor; }

sinew::MethodTable methods() {
  sinew::MethodTable table = churn::methods();
  table.add<&Counter::increment>().add<&Model::parameter>().add<&Model::pick>();
  table.add<&Model::value>().add<&increment>().add<&scale>();
  return table;
}

}  // namespace chaos
