#pragma once

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/optim/internal/local_optimizer.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/call_options.h"
#include "sinew/rref/remote.h"

namespace sinew::optim {
struct ParameterGroup;
}

namespace sinew::internal {

/// The part of a distributed optimizer at one owner.
struct OptimizerPart {
  WorkerInfo owner;
  RRef<LocalOptimizer> optimizer;
};

/// What one owner has answered: a result, or an error.
template <class Result>
struct OwnerAnswer {
  /// An empty struct's for void.
  std::optional<std::conditional_t<std::is_void_v<Result>, char, Result>> result;
  std::optional<ErrorInfo> error;
};

/// Makes a call at one owner. Does not throw.
template <auto Method, class... Args>
auto start_part(const OptimizerPart& part, const CallOptions& options, const Args&... arguments) {
  using Result = typename MethodTraits<decltype(Method)>::result_type;
  try {
    return part.optimizer.with(options).template async<Method>(arguments...);
  } catch (...) {
    return make_failed_future<Result>(std::current_exception());
  }
}

/// All answers, in the order of the calls. Does not fail.
template <class Result>
Future<std::vector<OwnerAnswer<Result>>> gather(const std::vector<Future<Result>>& calls) {
  std::vector<Future<OwnerAnswer<Result>>> answers;
  for (const Future<Result>& call : calls) {
    answers.push_back(call.then([](Future<Result> done) {
      OwnerAnswer<Result> answer;
      try {
        if constexpr (std::is_void_v<Result>) {
          done.value();
          answer.result = char();
        } else {
          answer.result = done.value();
        }
      } catch (...) {
        answer.error = describe(std::current_exception());
      }
      return answer;
    }));
  }
  return collect_all(std::move(answers));
}

/// Makes a call at each owner; the answers are in the order of the parts.
template <auto Method, class... Args>
auto start_parts(const std::vector<OptimizerPart>& parts, const CallOptions& options,
                 const Args&... arguments) {
  std::vector<Future<typename MethodTraits<decltype(Method)>::result_type>> calls;
  for (const OptimizerPart& part : parts) {
    calls.push_back(start_part<Method>(part, options, arguments...));
  }
  return gather(calls);
}

/// As start_parts(); waits for all answers.
template <auto Method, class... Args>
auto ask_parts(const std::vector<OptimizerPart>& parts, const CallOptions& options,
               const Args&... arguments) {
  return start_parts<Method>(parts, options, arguments...).take();
}

/// Throws what the first one failed with, with a text that lists all that did.
template <class Result>
void throw_if_any_failed(const std::vector<OptimizerPart>& parts,
                         const std::vector<OwnerAnswer<Result>>& answers) {
  std::vector<std::string> failures;
  std::optional<ErrorInfo> first;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].error) continue;
    failures.push_back(absl::StrFormat("'%s': %s", parts[i].owner.name, answers[i].error->message));
    if (!first) first = answers[i].error;
  }
  if (!first) return;
  first->message = absl::StrFormat("%d of %d owners failed: %s", failures.size(), parts.size(),
                                   absl::StrJoin(failures, "; "));
  throw RpcError(*std::move(first));
}

/// As ask_parts(); returns the results, or throws.
template <auto Method, class... Args>
auto call_parts(const std::vector<OptimizerPart>& parts, const CallOptions& options,
                const Args&... arguments) {
  auto answers = ask_parts<Method>(parts, options, arguments...);
  throw_if_any_failed(parts, answers);
  using Value = typename decltype(answers.front().result)::value_type;
  std::vector<Value> results;
  for (auto& answer : answers) results.push_back(*std::move(answer.result));
  return results;
}

std::vector<optim::ParameterGroup> one_group(std::vector<RRef<at::Tensor>> parameters,
                                             optim::Options options);

/// Makes a part at each owner of parameters, or throws what the first one failed with.
std::vector<OptimizerPart> make_parts(const Worker& worker,
                                      const std::vector<optim::ParameterGroup>& groups,
                                      const CallOptions& call);

struct BoundParts {
  std::vector<OptimizerPart> parts;
  Binding binding;
};
/// What DistributedOptimizer::rebind() does.
BoundParts rebind_parts(const Worker& worker, const std::vector<OptimizerPart>& before,
                        const std::vector<optim::ParameterGroup>& groups, const CallOptions& call);

}  // namespace sinew::internal
