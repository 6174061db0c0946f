#include "sinew/rpc/membership/registrar/registrar_process.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

constexpr char kName[] = "registrar";

Executor::Options one_thread() {
  Executor::Options options;
  options.num_threads = 1;
  options.min_threads = 1;
  options.name = "sinew-registrar";
  return options;
}

}  // namespace

RegistrarProcess::RegistrarProcess(const Options& options, std::unique_ptr<Transport> transport)
    : options_(options),
      executor_(one_thread()),
      scheduler_(executor_, timers_, Clock::system()),
      transport_(std::move(transport)) {
  self_.key = WorkerKey::draw();
  self_.worker = {kName, -1, self_.key->incarnation()};
  self_.job = options_.job;
  self_.token = options_.token;
  registry::Options table;
  table.registrar = self_.worker.incarnation;
  table.job = options_.job;
  table.world_size = options_.world_size;
  table.lease = options_.lease;
  table.instance = draw_job_instance();
  registrar_ = std::make_shared<Registrar>(table, self_, *transport_, scheduler_, nullptr);
}

absl::StatusOr<std::unique_ptr<RegistrarProcess>> RegistrarProcess::start(
    const Options& options, std::unique_ptr<Transport> transport) {
  std::unique_ptr<RegistrarProcess> made(new RegistrarProcess(options, std::move(transport)));
  if (absl::Status status = made->transport_->start(made.get(), nullptr); !status.ok()) {
    return status;
  }
  made->registrar_->start();
  return made;
}

RegistrarProcess::~RegistrarProcess() {
  registrar_->close([] {});
  transport_->shutdown();
  executor_.shutdown();
  timers_.stop();
}

absl::StatusOr<Acceptor::Accepted> RegistrarProcess::on_connection(
    const std::string& hello, const AuthenticatedPeer& remote) {
  const absl::StatusOr<proto::Hello> said = parse_hello(hello, remote.address);
  if (!said.ok()) return said.status();
  if (Unwelcome unwelcome = check_hello(*said, self_, remote);
      unwelcome.refusal != Refusal::kNone) {
    return refuse(self_, unwelcome.refusal, unwelcome.text, *said);
  }
  if (said->asks_registrar()) return registrar_->accept(*said);
  return refuse(self_, Refusal::kWhoAnswers,
                absl::StrCat("the registrar of job '", options_.job, "' answers here"), *said);
}

}  // namespace sinew::internal
