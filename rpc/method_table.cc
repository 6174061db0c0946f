#include "sinew/rpc/method_table.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew {

namespace {

// Messages by which workers run the job itself are not restricted.
bool is_of_a_layer(std::string_view method) {
  const auto begins_with = [method](std::string_view text) {
    return method.substr(0, text.size()) == text;
  };
  return begins_with("sinew.") && !begins_with("sinew.worker.") && !begins_with("sinew.link.");
}

}  // namespace

struct MethodTable::Impl {
  absl::flat_hash_map<std::string, Entry> entries;
  std::vector<std::pair<std::string, MethodRules>> restrictions;
};

MethodTable::MethodTable() : impl_(std::make_unique<Impl>()) {}
MethodTable::MethodTable(const MethodTable& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
MethodTable& MethodTable::operator=(const MethodTable& other) {
  if (this != &other) *impl_ = *other.impl_;
  return *this;
}
MethodTable::MethodTable(MethodTable&& other) : MethodTable() { impl_.swap(other.impl_); }
MethodTable& MethodTable::operator=(MethodTable&& other) noexcept {
  impl_.swap(other.impl_);
  return *this;
}
MethodTable::~MethodTable() = default;

void MethodTable::check_no_turns(std::string_view name, const MethodRules& rules) {
  if (rules.turns() == OneAtATime::kNo) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrFormat(
                     "method '%s' is a free function, which has no object whose turn it could wait "
                     "for: one_at_a_time() is for member functions; limit_calls(1) serves one call "
                     "at once, and refuses others",
                     name));
}

void MethodTable::add_entry(Entry entry) {
  if (entry.name.empty() || entry.name.size() > 512) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat("a method's name must have 1 to 512 characters, this one has ",
                                entry.name.size()));
  }
  const auto [found, inserted] = impl_->entries.try_emplace(std::string(entry.name), entry);
  if (!inserted && found->second.serve != entry.serve) {
    throw RpcError(
        ErrorCode::kAlreadyExists,
        absl::StrFormat(
            "two methods have the name '%s' (%s and %s): give one of them another name with "
            "SINEW_METHOD_AS",
            entry.name, found->second.signature, entry.signature));
  }
  if (!inserted && found->second.rules != entry.rules) {
    throw RpcError(ErrorCode::kAlreadyExists,
                   absl::StrFormat("method '%s' was added before with other rules of who may call "
                                   "it, and how much: say them once",
                                   entry.name));
  }
}

MethodTable& MethodTable::restrict(std::string_view pattern, const MethodRules& rules) {
  if (pattern.substr(0, 6) != "sinew.") {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("restrict(\"%s\"): methods of Sinew's layers begin with "
                                   "\"sinew.\"; rules of your own are given to add() and serve()",
                                   internal::printable(pattern, 128)));
  }
  if (rules.has_limits() || rules.turns() != OneAtATime::kNo) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("restrict(\"%s\"): methods of Sinew's layers have no limits and "
                                   "no turns",
                                   internal::printable(pattern, 128)));
  }
  impl_->restrictions.emplace_back(pattern, rules);
  return *this;
}

const MethodRules* MethodTable::restriction(std::string_view method) const {
  for (const auto& [pattern, rules] : impl_->restrictions) {
    if (is_of_a_layer(method) && internal::matches_pattern(pattern, method)) return &rules;
  }
  return nullptr;
}

namespace {

std::string families_of(const std::vector<std::string>& methods) {
  std::set<std::string> families;
  for (const std::string& method : methods) {
    if (!is_of_a_layer(method)) continue;
    const std::size_t dot = method.find('.', method.find('.') + 1);
    families.insert(dot == std::string::npos ? method : method.substr(0, dot) + ".*");
  }
  return absl::StrJoin(families, ", ");
}

}  // namespace

absl::Status MethodTable::check_restrictions(const std::vector<std::string>& methods) const {
  for (const auto& [pattern, rules] : impl_->restrictions) {
    const bool matches_one = std::any_of(
        methods.begin(), methods.end(), [pattern = std::string_view(pattern)](const auto& method) {
          return is_of_a_layer(method) && internal::matches_pattern(pattern, method);
        });
    if (matches_one) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "MethodTable::restrict(\"%s\") matches no method of the layers that this program includes: "
        "%s",
        internal::printable(pattern, 128), families_of(methods)));
  }
  return absl::OkStatus();
}

const MethodTable::Entry* MethodTable::find(std::string_view name) const {
  // Abseil may have been built with a string_view of its own, which its maps look up without a
  // copy.
  const auto found = impl_->entries.find(absl::string_view(name.data(), name.size()));
  return found == impl_->entries.end() ? nullptr : &found->second;
}

std::vector<std::string> MethodTable::names() const {
  std::vector<std::string> names;
  names.reserve(impl_->entries.size());
  for (const auto& [name, entry] : impl_->entries) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t MethodTable::digest() const {
  // FNV-1a over the sorted names and signatures: the digest is compared between builds of different
  // compilers, so it must not depend on a hash that a library may change.
  std::uint64_t digest = 14695981039346656037u;
  const auto mix = [&digest](std::string_view text) {
    for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 1099511628211u;
    digest = (digest ^ 0xffu) * 1099511628211u;
  };
  for (const std::string& name : names()) {
    mix(name);
    mix(impl_->entries.at(name).signature);
  }
  return digest;
}

}  // namespace sinew
