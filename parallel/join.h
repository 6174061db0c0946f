#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sinew/groups/process_group.h"

namespace sinew::parallel {

/// By what the sum of gradients is divided while some ranks have run out of inputs.
enum class JoinDivision {
  /// The size of the group: those ranks count as zeros.
  kInitialWorldSize,
  /// The number of ranks that go on. What a CommHook returns, which is a mean over the group, is
  /// made one over them.
  kEffectiveWorldSize,
};

/// What the first rank that runs out of inputs means for the others.
enum class EarlyTermination {
  /// They go on, and it takes part in what they do together.
  kShadow,
  /// They throw at their next step, and so does it.
  kThrow,
};

struct JoinOptions {
  JoinDivision division = JoinDivision::kInitialWorldSize;
  EarlyTermination early_termination = EarlyTermination::kShadow;
};

/// One step of the ranks that still have inputs.
struct JoinRound {
  /// Whose step it is: its place among those that join() was given.
  int joinable = 0;
  /// How many there are.
  int active = 0;
  /// The highest of them.
  int root = 0;
  /// The backward pass reduces gradients, the forward records a graph, both in an autograd context.
  bool reduces = false;
  bool records = false;
  bool in_context = false;
  /// No step, but what the ranks agree on after a pass: see optim/clip_grad.h. Only for the
  /// Joinable that has announced it.
  bool agrees = false;
};

class JoinSession;

/// Something that does collective operations in each step of a loop. Calls come from join().
class Joinable {
 public:
  virtual ~Joinable() = default;

  virtual const ProcessGroup& join_group() const = 0;
  /// A loop begins. Each of the steps in which there are collective operations is announced there,
  /// before any other operation. Outlives the loop; never null.
  virtual void enter_join(JoinSession* session) = 0;
  virtual void leave_join() = 0;
  /// Takes part in the operations of a step without inputs of its own.
  virtual void shadow(const JoinRound& round) = 0;
  /// No rank has inputs any more. Takes over the state of `root`, which went on longest.
  virtual void finish_join(int root) = 0;
};

/// Who still has inputs: the ranks say so to each other once in each step.
class JoinSession {
 public:
  /// Of the Joinable with the number `joinable`. All of a join() use one `last_root`.
  JoinSession(ProcessGroup group, const JoinOptions& options, int joinable,
              std::shared_ptr<int> last_root);

  const JoinOptions& options() const { return options_; }
  /// A step of this rank. Of `round`, `joinable`, `active` and `root` are not used. Throws
  /// RpcError: kAborted when a rank has run out and that is to end the loop, kFailedPrecondition
  /// when ranks do different things.
  JoinRound announce(const JoinRound& round);
  /// This rank has run out: a step of the others, with `active` 0 when there are none. Throws as
  /// announce().
  JoinRound listen();
  /// The rank that went on longest, as far as this rank has seen; 0 when no rank did a step.
  int last_root() const { return *last_root_; }

 private:
  JoinRound exchange(const JoinRound& own, bool active);

  const ProcessGroup group_;
  const JoinOptions options_;
  const int joinable_;
  const std::shared_ptr<int> last_root_;
};

/// Runs `body`, a loop over this rank's inputs, and then takes part in what the other ranks do
/// together until their loops have ended too: for inputs of which ranks have different numbers. All
/// ranks of the group call it, with the same joinables in the same order. Blocks. Throws RpcError,
/// and what `body` throws, without taking part then.
///
/// At the end all ranks have the parameters and buffers of a rank that went on longest. The state
/// of an optimizer of LibTorch does not follow: with momentum, or Adam, the ranks differ after a
/// join(), which the next passes find. A ZeroRedundancyOptimizer among the joinables goes on at all
/// ranks.
///
///     sinew::parallel::join({&model}, {}, [&] {
///       for (const app::Batch& batch : batches) train(model, batch);
///     });
void join(const std::vector<Joinable*>& joinables, const JoinOptions& options,
          const std::function<void()>& body);

}  // namespace sinew::parallel
