#include "sinew/tests/support/faulty_transport.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/tests/support/faulty_link.h"

namespace sinew::internal {
namespace {

class FaultyTransport final : public Transport, public Acceptor {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, std::shared_ptr<FaultPlan> plan)
      : inner_(std::move(inner)), plan_(std::move(plan)) {}
  ~FaultyTransport() override { shutdown(); }

  absl::Status start(Acceptor* acceptor, UnaryHandler* unary) override {
    acceptor_ = acceptor;
    return inner_->start(this, unary);
  }
  std::string address() const override { return inner_->address(); }
  std::shared_ptr<PollingDuty> polling_duty() const override { return inner_->polling_duty(); }
  std::map<std::string, std::int64_t> counters() const override { return inner_->counters(); }

  std::shared_ptr<Connection> connect(const std::string& address, const std::string& hello,
                                      const std::string& expected_name,
                                      std::shared_ptr<ConnectionHandler> handler) override {
    const std::shared_ptr<FaultyLink> link = make_link(std::move(handler), address, true);
    const absl::Status failed = plan_->impl()->decide_connect(FaultDirection::kOutgoing, address);
    if (failed.ok()) {
      link->set_inner(inner_->connect(address, hello, expected_name, link));
    } else {
      plan_->impl()->run_after(std::chrono::nanoseconds(0),
                               [link, failed] { link->on_down(nullptr, failed); });
    }
    return link;
  }

  absl::StatusOr<Accepted> on_connection(const std::string& hello,
                                         const AuthenticatedPeer& remote) override {
    if (plan_->impl()->frozen) return absl::UnavailableError("this worker is frozen");
    if (absl::Status refused =
            plan_->impl()->decide_connect(FaultDirection::kIncoming, remote.address);
        !refused.ok()) {
      return refused;
    }
    absl::StatusOr<Accepted> accepted = acceptor_->on_connection(hello, remote);
    if (accepted.ok()) {
      accepted->handler = make_link(std::move(accepted->handler), remote.address, false);
    }
    return accepted;
  }

  void shutdown() override {
    inner_->shutdown();
    std::vector<std::weak_ptr<FaultyLink>> links;
    {
      MutexLock lock(mutex_);
      std::swap(links, links_);
    }
    for (const std::weak_ptr<FaultyLink>& weak : links) {
      if (auto link = weak.lock()) link->finish();
    }
  }

 private:
  std::shared_ptr<FaultyLink> make_link(std::shared_ptr<ConnectionHandler> handler,
                                        const std::string& address, bool opened_here) {
    auto link =
        std::make_shared<FaultyLink>(plan_->impl(), std::move(handler), address, opened_here);
    link->set_number(plan_->impl()->add_link(link));
    MutexLock lock(mutex_);
    links_.erase(std::remove_if(links_.begin(), links_.end(),
                                [](const std::weak_ptr<FaultyLink>& old) { return old.expired(); }),
                 links_.end());
    links_.push_back(link);
    return link;
  }

  const std::unique_ptr<Transport> inner_;
  const std::shared_ptr<FaultPlan> plan_;
  Acceptor* acceptor_ = nullptr;
  Mutex mutex_;
  std::vector<std::weak_ptr<FaultyLink>> links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner,
                                                 std::shared_ptr<FaultPlan> plan) {
  return std::make_unique<FaultyTransport>(std::move(inner), std::move(plan));
}

}  // namespace sinew::internal
