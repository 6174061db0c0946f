#include "sinew/groups/internal/gloo/parts_exchange.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ATen/ATen.h"
#include "gloo/transport/unbound_buffer.h"
#include "gloo/types.h"
#include "sinew/groups/internal/reduction.h"

namespace sinew::internal {
namespace {

using Tensors = std::vector<at::Tensor>;
using Buffers = std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>>;

/// With all other ranks: `into` and `from` by rank, of which this rank's own are left alone. Also
/// what is empty is sent, so that ranks that do not agree never pass each other unseen.
void exchange_with_all(const GlooPlace& place, const Tensors& into, const Tensors& from) {
  const gloo::Context& context = *place.context;
  const gloo::Slot slot = gloo::Slot::build(gloo::kAlltoallSlotPrefix, place.tag);
  const auto buffer_of = [&](const at::Tensor& tensor) {
    return place.context->createUnboundBuffer(tensor.data_ptr(), tensor.nbytes());
  };
  Buffers sent;
  Buffers received;
  for (int step = 1; step < context.size; ++step) {
    const int to = (context.rank + step) % context.size;
    const int source = (context.rank + context.size - step) % context.size;
    sent.push_back(buffer_of(from[static_cast<std::size_t>(to)]));
    sent.back()->send(to, slot);
    received.push_back(buffer_of(into[static_cast<std::size_t>(source)]));
    received.back()->recv(source, slot);
  }
  for (const auto& buffer : received) buffer->waitRecv(context.getTimeout());
  for (const auto& buffer : sent) buffer->waitSend(context.getTimeout());
}

/// Work that Gloo's own threads run. Later versions of LibTorch also want its kind and number.
struct AnyWork final : c10d::ProcessGroupGloo::AsyncWork {
  using AsyncWork::AsyncWork;
  void run() override {}
};
constexpr bool kIsNumbered = std::is_constructible_v<AnyWork, std::vector<Tensors>, c10d::OpType,
                                                     std::uint64_t, const char*>;
template <class Base, bool is_numbered>
struct NamedWork : Base {
  NamedWork(std::vector<Tensors> outputs, c10d::OpType /*kind*/, const char* title)
      : Base(std::move(outputs), title) {}
};
template <class Base>
struct NamedWork<Base, true> : Base {
  NamedWork(std::vector<Tensors> outputs, c10d::OpType kind, const char* title)
      : Base(std::move(outputs), kind, 0, title) {}
};
using PartsWork = NamedWork<c10d::ProcessGroupGloo::AsyncWork, kIsNumbered>;

/// Of bytes.
class PartsExchange final : public PartsWork {
 public:
  PartsExchange(GlooPlace place, Tensors outputs, Tensors inputs)
      : PartsWork({outputs}, c10d::OpType::ALLTOALL, "gloo:all_to_all"),
        place_(std::move(place)),
        outputs_(std::move(outputs)),
        inputs_(std::move(inputs)) {}

  void run() override {
    const auto own = static_cast<std::size_t>(place_.context->rank);
    TORCH_CHECK(outputs_[own].sizes() == inputs_[own].sizes(), "rank ", own, " sends itself ",
                inputs_[own].numel(), " bytes and expects ", outputs_[own].numel());
    outputs_[own].copy_(inputs_[own]);
    exchange_with_all(place_, outputs_, inputs_);
  }

 private:
  const GlooPlace place_;
  const Tensors outputs_;
  const Tensors inputs_;
};

/// What is left of the tensor from `begin` on, `count` at most.
at::Tensor piece_of(const at::Tensor& tensor, std::int64_t begin, std::int64_t count) {
  const std::int64_t from = std::min(begin, tensor.numel());
  return tensor.narrow(0, from, std::min(count, tensor.numel() - from));
}

class PartsReduction final : public PartsWork {
 public:
  PartsReduction(GlooPlace place, const at::Tensor& output, Tensors inputs, ReduceOp op,
                 std::size_t piece_bytes)
      : PartsWork({{output}}, c10d::OpType::REDUCE_SCATTER, "gloo:reduce_scatter"),
        place_(std::move(place)),
        output_(output),
        inputs_(std::move(inputs)),
        op_(op),
        piece_(std::max<std::int64_t>(
            static_cast<std::int64_t>(piece_bytes / output.element_size() / inputs_.size()), 1)) {}

  void run() override {
    std::int64_t longest = 0;
    for (const at::Tensor& input : inputs_) longest = std::max(longest, input.numel());
    Tensors received;
    const std::int64_t held = std::min(piece_, output_.numel());
    for (const at::Tensor& input : inputs_) {
      const bool is_own = received.size() == static_cast<std::size_t>(place_.context->rank);
      received.push_back(is_own ? input : at::empty({held}, output_.options()));
    }
    std::int64_t begin = 0;
    // Also where no rank has any elements: then it is a barrier.
    do {
      run_piece(begin, received);
      begin += piece_;
    } while (begin < longest);
  }

 private:
  void run_piece(std::int64_t begin, const Tensors& received) const {
    const auto own = static_cast<std::size_t>(place_.context->rank);
    const at::Tensor result = piece_of(output_, begin, piece_);
    Tensors parts;
    Tensors sent;
    for (std::size_t rank = 0; rank < inputs_.size(); ++rank) {
      sent.push_back(piece_of(inputs_[rank], begin, piece_));
      parts.push_back(rank == own ? sent[own] : received[rank].narrow(0, 0, result.numel()));
    }
    exchange_with_all(place_, parts, sent);
    if (result.numel() > 0) reduce_here(parts, op_, result);
  }

  const GlooPlace place_;
  const at::Tensor output_;
  const Tensors inputs_;
  const ReduceOp op_;
  // Elements of each rank's part.
  const std::int64_t piece_;
};

}  // namespace

GlooWork make_parts_exchange(GlooPlace place, Tensors outputs, Tensors inputs) {
  return c10::make_intrusive<PartsExchange>(std::move(place), std::move(outputs),
                                            std::move(inputs));
}

GlooWork make_parts_reduction(GlooPlace place, const at::Tensor& output, Tensors inputs,
                              ReduceOp op, std::size_t piece_bytes) {
  return c10::make_intrusive<PartsReduction>(std::move(place), output, std::move(inputs), op,
                                             piece_bytes);
}

}  // namespace sinew::internal
