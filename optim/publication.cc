#include "sinew/optim/publication.h"

#include "sinew/optim/internal/publication_core.h"
#include "sinew/optim/internal/subscription_core.h"
#include "sinew/rpc/base/error.h"

namespace sinew::optim {
namespace {

template <class Handle>
auto& core_of(const std::shared_ptr<Handle>& handle, const char* what) {
  if (handle == nullptr) {
    throw RpcError(ErrorCode::kFailedPrecondition, std::string("this ") + what + " is empty");
  }
  return *handle->core;
}

}  // namespace

// What is published, and continuations, keep the cores: the last handle ends them.
struct Publication::Handle {
  explicit Handle(std::shared_ptr<internal::PublicationCore> made) : core(std::move(made)) {}
  ~Handle() { core->close(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  const std::shared_ptr<internal::PublicationCore> core;
};

struct Subscription::Handle {
  explicit Handle(std::shared_ptr<internal::SubscriptionCore> made) : core(std::move(made)) {}
  ~Handle() { core->close(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  const std::shared_ptr<internal::SubscriptionCore> core;
};

Publication::Publication(const Worker& worker, std::string_view name,
                         const PublicationOptions& options) {
  auto core = std::make_shared<internal::PublicationCore>(std::string(name), options);
  core->move_to(worker);
  core_ = std::make_shared<Handle>(std::move(core));
}

std::uint64_t Publication::publish(const StateDict& tensors) const {
  return core_of(core_, "Publication").publish(tensors);
}
PublicationStatus Publication::status() const { return core_of(core_, "Publication").status(); }
void Publication::move_to(const Worker& worker) const {
  core_of(core_, "Publication").move_to(worker);
}

Subscription::Subscription(const Worker& worker, std::string_view address,
                           SubscriptionOptions options) {
  auto core =
      std::make_shared<internal::SubscriptionCore>(std::string(address), std::move(options));
  core->move_to(worker);
  core_ = std::make_shared<Handle>(std::move(core));
}

std::shared_ptr<const Weights> Subscription::latest() const {
  return core_of(core_, "Subscription").latest();
}
std::shared_ptr<const Weights> Subscription::wait_for(
    std::uint64_t version, std::optional<std::chrono::nanoseconds> timeout) const {
  return core_of(core_, "Subscription").wait_for(version, timeout);
}
SubscriptionStatus Subscription::status() const { return core_of(core_, "Subscription").status(); }
void Subscription::move_to(const Worker& worker) const {
  core_of(core_, "Subscription").move_to(worker);
}

}  // namespace sinew::optim
