// Word of contexts and passes from those who are no members of the job: clients, and workers that
// have not joined. Members: hostile_test.cc.

#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/autograd.pb.h"
#include "sinew/rpc.pb.h"
#include "sinew/sinew.h"
#include "sinew/tests/autograd/context_message.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/raw_peer.h"
#include "sinew/tests/transport/grpc_fixture.h"

using sinew::ErrorCode;
using sinew::autograd::backward;
using sinew::autograd::Context;
using sinew::autograd::ContextId;
using sinew::autograd::gradient_of;
using testgrad::write;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace testoutside {

using at::Tensor;

/// The weight of the one worker that has any.
Tensor& weight() {
  static Tensor& all = *new Tensor();
  return all;
}
Tensor weigh(const Tensor& x) { return weight() * x; }
Tensor gradient(const ContextId& context) {
  return gradient_of(sinew::current_worker(), context, weight());
}

}  // namespace testoutside
SINEW_METHOD(testoutside::weigh, testoutside::gradient);

namespace {

using at::Tensor;

/// worker0 trains with a weight of worker1's.
class OutsideAutograd : public ::testing::Test {
 protected:
  OutsideAutograd() {
    sinew::testing::ClusterOptions options;
    options.transport = sinew::testing::ClusterTransport::kGrpc;
    options.methods.add<&testoutside::weigh>().add<&testoutside::gradient>();
    testoutside::weight() = at::full({2}, 3.0).set_requires_grad(true);
    cluster_ = std::make_unique<sinew::testing::Cluster>(std::move(options));
  }
  const sinew::Worker& trainer() const { return cluster_->worker(0); }
  const sinew::Worker& server() const { return cluster_->worker(1); }

  absl::Status call_as_client(const sinew::proto::Call& call) const {
    sinew::internal::Frame frame;
    frame.envelope = call.SerializeAsString();
    return sinew::internal::call_as_foreign_client(server().address(), std::move(frame), 30s)
        .status();
  }
  template <class Message>
  absl::Status call_as_client(const std::string& method, const Message& message) const {
    sinew::proto::Call call;
    call.set_method(method);
    call.add_arguments()->set_binary(message.SerializeAsString());
    return call_as_client(call);
  }

 private:
  std::unique_ptr<sinew::testing::Cluster> cluster_;
};

TEST_F(OutsideAutograd, ClientsTakeNoPart) {
  const Context context(trainer());
  const Tensor loss = trainer().peer(1).call<&testoutside::weigh>(at::full({2}, 5.0)).sum();
  const auto expect_refused = [](const absl::Status& answer) {
    EXPECT_EQ(answer.code(), ErrorCode::kPermissionDenied) << answer;
    EXPECT_THAT(std::string(answer.message()), HasSubstr("a client takes no part"));
  };
  // Even with the secret.
  sinew::proto::AutogradRun run;
  write(context.id(), *run.mutable_pass()->mutable_context());
  run.mutable_pass()->set_initiator(trainer().info().incarnation.value);
  run.mutable_pass()->set_serial(1000);
  expect_refused(call_as_client("sinew.autograd.run", run));
  sinew::proto::AutogradDelivery delivery;
  *delivery.mutable_pass() = run.pass();
  expect_refused(call_as_client("sinew.autograd.gradients", delivery));
  sinew::proto::AutogradFactsRequest facts;
  write(context.id(), *facts.mutable_context());
  expect_refused(call_as_client("sinew.autograd.facts", facts));

  // Nor does a call of a method open a context here.
  sinew::proto::AutogradAttachment attachment;
  write({trainer().info().incarnation, 1000}, *attachment.mutable_context());
  sinew::proto::Call call;
  call.set_method("testoutside::weigh");
  (*call.mutable_attachments())["autograd"] = attachment.SerializeAsString();
  EXPECT_EQ(call_as_client(call).code(), ErrorCode::kInvalidArgument) << "it has no argument";
  EXPECT_EQ(server().counters()["autograd.contexts"], 1);

  backward(context, {loss});
  EXPECT_TRUE(at::allclose(trainer().peer(1).call<&testoutside::gradient>(context.id()),
                           at::full({2}, 5.0)));
}

TEST_F(OutsideAutograd, WorkersThatHaveNotJoinedTakeNoPart) {
  const Context context(trainer());
  const Tensor loss = trainer().peer(1).call<&testoutside::weigh>(at::full({2}, 5.0)).sum();
  // It says that it is the trainer, with which the server has a link: then it is not let in.
  sinew::testing::RawPeer impostor(trainer().info());
  EXPECT_FALSE(impostor.connect(server().address()).ok());
  EXPECT_EQ(impostor.refused_as(), sinew::proto::NOT_ALLOWED);
  // Under a name of its own it is, and not heard.
  sinew::testing::RawPeer guest({"guest", trainer().info().rank, {}});
  ASSERT_TRUE(guest.connect(server().address()).ok());
  const auto tell = [&](std::uint64_t id, const std::string& method, const std::string& body) {
    sinew::proto::Envelope envelope;
    envelope.mutable_call()->set_id(id);
    envelope.mutable_call()->set_method(method);
    envelope.mutable_call()->add_arguments()->set_binary(body);
    guest.send(sinew::internal::FrameKind::kControl, envelope);
  };
  sinew::proto::AutogradRelease release;
  sinew::proto::AutogradReleased& released = *release.add_contexts();
  write(context.id(), *released.mutable_context());
  released.set_live_from(std::uint64_t{1} << 60);
  sinew::proto::Envelope note;
  note.mutable_note()->set_layer("autograd");
  note.mutable_note()->set_body(release.SerializeAsString());
  guest.send(sinew::internal::FrameKind::kControl, note);
  sinew::proto::AutogradAbort abort;
  write(context.id(), *abort.mutable_pass()->mutable_context());
  abort.mutable_pass()->set_initiator(trainer().info().incarnation.value);
  abort.mutable_pass()->set_serial(1000);
  tell(1002, "sinew.autograd.abort", abort.SerializeAsString());
  // Control work is done in order: both have been looked at when this is answered.
  EXPECT_TRUE(guest.control_call("sinew.worker.heard").ok());
  EXPECT_EQ(guest.heard().size(), 1u) << "nothing else was answered";
  backward(context, {loss});
  EXPECT_TRUE(at::allclose(trainer().peer(1).call<&testoutside::gradient>(context.id()),
                           at::full({2}, 5.0)));
}

}  // namespace
