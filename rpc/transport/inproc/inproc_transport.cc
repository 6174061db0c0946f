#include "sinew/rpc/transport/inproc/inproc_transport.h"

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_room.h"
#include "sinew/rpc/transport/inproc/internal/inproc_core.h"

namespace sinew::internal {
namespace {

class InprocTransport final : public Transport {
 public:
  InprocTransport(const std::shared_ptr<InprocCore>& core, InprocOptions options)
      : core_(core),
        endpoint_(core->add_endpoint(std::move(options.name), options.limits,
                                     std::move(options.proven_names))) {
    if (core_->mode() == InprocMode::kThreaded) {
      // From the start, not from start(): connections can be opened by one that does not listen.
      thread_ = start_thread([this] { core_->run_endpoint(endpoint_); });
    }
  }
  ~InprocTransport() override { shutdown(); }

  absl::Status start(Acceptor* acceptor, UnaryHandler* unary) override {
    return core_->listen(endpoint_, acceptor, unary);
  }

  std::string address() const override { return endpoint_->address; }

  std::shared_ptr<Connection> connect(const std::string& address, const std::string& hello,
                                      const std::string& expected_name,
                                      std::shared_ptr<ConnectionHandler> handler) override {
    return core_->connect(endpoint_, address, hello, expected_name, std::move(handler));
  }

  void shutdown() override {
    MutexLock lock(shutdown_mutex_);
    core_->begin_shutdown(endpoint_);
    if (thread_.joinable()) thread_.join();
    core_->finish_shutdown(endpoint_);
  }

 private:
  const std::shared_ptr<InprocCore> core_;
  const std::shared_ptr<InprocEndpoint> endpoint_;
  /// Lets a second shutdown() wait for the first.
  Mutex shutdown_mutex_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Transport> make_inproc_transport(std::shared_ptr<InprocNetwork> network,
                                                 InprocOptions options) {
  return std::make_unique<InprocTransport>(network->core(), std::move(options));
}

}  // namespace sinew::internal
