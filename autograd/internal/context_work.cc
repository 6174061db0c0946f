#include "sinew/autograd/internal/context_work.h"

#include <functional>

namespace sinew::internal {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Not absl::Hash, whose values differ from process to process.
std::uint64_t hash_of(std::uint64_t which, std::uint64_t number) {
  return mixed(mixed(which) + 0x9e3779b97f4a7c15ULL * (number + 1));
}

}  // namespace

ContextWork::ContextWork(std::shared_ptr<ContextState> context, const CallName& call)
    : context_(std::move(context)), id_(hash_of(call.work, call.number)) {}

ContextWork::ContextWork(std::shared_ptr<ContextState> context, std::string_view worker,
                         std::uint64_t scope)
    : context_(std::move(context)), id_(hash_of(std::hash<std::string_view>()(worker), scope)) {}

}  // namespace sinew::internal
