#include "sinew/tests/etcd/registry_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::testing {

using internal::MutexLock;
using internal::etcd::EtcdClient;
using internal::etcd::EtcdRegistry;
using internal::etcd::MemberNews;

EtcdRegistry::Options RegistryWorker::options(const std::string& name, int rank, int world_size) {
  EtcdRegistry::Options options;
  options.wanted.self.worker = {name, rank, Incarnation{random_secret()}};
  options.wanted.self.details = "details of " + name;
  options.wanted.job = "job";
  options.wanted.world_size = world_size;
  options.wanted.instance = {0, 1, random_secret()};
  options.prefix = "/test";
  options.lease = kLease;
  options.judge = std::chrono::milliseconds(300);
  return options;
}

RegistryWorker::RegistryWorker(const internal::etcd::EtcdOptions& servers,
                               EtcdRegistry::Options options)
    : incarnation_(options.wanted.self.worker.incarnation) {
  EtcdRegistry::Listener listener;
  listener.on_member = [told = told_](const MemberNews& news) {
    MutexLock lock(told->mutex);
    told->news.push_back(news.gone.has_value()
                             ? absl::StrCat("-", news.member.worker.name, " (",
                                            static_cast<int>(*news.gone), ": ", news.reason, ")")
                             : absl::StrCat("+", news.member.worker.name));
  };
  listener.on_state = [told = told_](MembershipState state, const absl::Status& why) {
    MutexLock lock(told->mutex);
    told->states.push_back(state);
    told->why = why;
  };
  registry_ =
      *EtcdRegistry::start(*EtcdClient::start(servers), std::move(options), std::move(listener));
}

RegistryWorker::~RegistryWorker() = default;

std::vector<std::string> RegistryWorker::names() const {
  std::vector<std::string> names;
  for (const auto& record : registry_->view().members) names.push_back(record.worker.name);
  std::sort(names.begin(), names.end());
  return names;
}

internal::registry::Record RegistryWorker::self() const {
  for (const auto& record : registry_->view().members) {
    if (record.worker.incarnation == incarnation_) return record;
  }
  return {};
}

std::vector<std::string> RegistryWorker::news() const {
  MutexLock lock(told_->mutex);
  return told_->news;
}

MembershipState RegistryWorker::state() const {
  MutexLock lock(told_->mutex);
  return told_->states.empty() ? MembershipState::kJoining : told_->states.back();
}

std::vector<MembershipState> RegistryWorker::states() const {
  MutexLock lock(told_->mutex);
  return told_->states;
}

absl::Status RegistryWorker::why() const {
  MutexLock lock(told_->mutex);
  return told_->why;
}

std::future<RegistryWorker::Values> RegistryWorker::gather(const std::string& key,
                                                           std::vector<std::string> names,
                                                           std::string value,
                                                           internal::etcd::Time timeout) {
  auto promise = std::make_shared<std::promise<Values>>();
  registry_->gather(key, std::move(names), std::move(value), timeout,
                    [promise](Values values) { promise->set_value(std::move(values)); });
  return promise->get_future();
}

}  // namespace sinew::testing
