#include "sinew/rpc/membership/registrar/registry_channel.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/link/identity_codec.h"

namespace sinew::internal {
namespace {

// A peer that reads nothing is asked to connect again.
constexpr std::uint64_t kMostUnread = std::uint64_t{256} << 20;

class Question final : public ConnectionHandler {
 public:
  explicit Question(std::function<void(Incarnation)> on_answer)
      : on_answer_(std::move(on_answer)) {}

  void on_up(const std::shared_ptr<Connection>& connection) override {
    connection->close(absl::InvalidArgumentError("it was only asked who it is"));
  }
  void on_frames(const std::shared_ptr<Connection>&, Lane, std::vector<Frame>) override {}
  void on_down(const std::shared_ptr<Connection>&, const absl::Status& reason) override {
    const absl::StatusOr<proto::Hello> said = read_refusal(reason);
    if (said.ok() && said->refusal() == proto::WHO_ANSWERS && is_signed(*said)) {
      on_answer_({said->worker().incarnation()});
    } else if (absl::IsNotFound(reason)) {
      on_answer_({});
    }
  }

 private:
  const std::function<void(Incarnation)> on_answer_;
};

}  // namespace

std::shared_ptr<RegistryChannel> RegistryChannel::open(Transport& transport,
                                                       const SelfDescription& self,
                                                       const Contact& contact, Events events) {
  auto channel =
      std::make_shared<RegistryChannel>(std::move(events), std::numeric_limits<std::size_t>::max());
  channel->self_ = std::make_unique<const SelfDescription>(self);
  proto::Hello hello;
  write_self(self, hello);
  hello.set_asks_registrar(true);
  std::shared_ptr<Connection> connection =
      transport.connect(contact.address, seal_hello(hello, self), contact.certified(), channel);
  absl::Status closed;
  {
    MutexLock lock(channel->mutex_);
    channel->connection_ = connection;
    closed = channel->closed_;
  }
  if (!closed.ok()) connection->close(closed);
  return channel;
}

std::shared_ptr<RegistryChannel> RegistryChannel::accept(Events events) {
  return std::make_shared<RegistryChannel>(std::move(events), kMostAskedBytes);
}

void RegistryChannel::send(std::string message) {
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mutex_);
    connection = connection_;
  }
  if (connection == nullptr) return;
  if (connection->kept_bytes() > kMostUnread) {
    return connection->close(absl::UnavailableError("the other end does not read"));
  }
  Frame frame;
  frame.envelope = std::move(message);
  if (absl::Status status = connection->send(Lane::kControl, std::move(frame)); !status.ok()) {
    connection->close(status);
  }
}

void RegistryChannel::close(const absl::Status& reason) {
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mutex_);
    if (closed_.ok()) closed_ = reason;
    connection = connection_;
  }
  if (connection != nullptr) connection->close(reason);
}

void RegistryChannel::on_up(const std::shared_ptr<Connection>& connection) {
  {
    MutexLock lock(mutex_);
    connection_ = connection;
  }
  if (self_ == nullptr) return;
  const absl::StatusOr<proto::Hello> said =
      parse_hello(connection->remote_hello(), connection->remote().address);
  if (!said.ok()) return connection->close(said.status());
  if (Unwelcome unwelcome =
          check_hello(*said, *self_, connection->remote(), Certified::kTheAddress);
      unwelcome.refusal != Refusal::kNone) {
    return connection->close(absl::FailedPreconditionError(unwelcome.text));
  }
  events_.on_up(read_identity(said->worker()));
}

void RegistryChannel::on_frames(const std::shared_ptr<Connection>& /*connection*/, Lane /*lane*/,
                                std::vector<Frame> frames) {
  for (Frame& frame : frames) events_.on_message(std::move(frame.envelope));
}

absl::Status RegistryChannel::on_announced(const std::shared_ptr<Connection>& /*connection*/,
                                           Lane /*lane*/, absl::string_view /*header*/,
                                           std::uint64_t size_bytes, std::size_t /*payloads*/) {
  if (size_bytes <= most_bytes_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a message of ", size_bytes, " bytes for a registrar: it takes ", most_bytes_));
}

void RegistryChannel::on_down(const std::shared_ptr<Connection>& connection,
                              const absl::Status& reason) {
  events_.on_down(reason, connection->remote_process());
}

void ask_who_answers(Transport& transport, const SelfDescription& self, const Contact& contact,
                     std::function<void(Incarnation answerer)> on_answer) {
  proto::Hello hello;
  write_self(self, hello);
  transport.connect(contact.address, seal_hello(hello, self), contact.certified(),
                    std::make_shared<Question>(std::move(on_answer)));
}

}  // namespace sinew::internal
