#include "sinew/groups/internal/c10d_store.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// How often it is asked whether the others are still there.
constexpr std::chrono::milliseconds kKeyLook{500};

using Bytes = std::vector<std::uint8_t>;

std::string_view view(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

class C10dStore final : public c10d::Store {
 public:
  C10dStore(const sinew::Store& store, std::function<absl::Status()> health)
      : c10d::Store(std::chrono::ceil<std::chrono::milliseconds>(store.timeout())),
        store_(store),
        health_(std::move(health)) {}

  // Not yet a function of the base in all versions of LibTorch.
  c10::intrusive_ptr<c10d::Store> clone() {
    return c10::make_intrusive<C10dStore>(store_, health_);
  }

  void set(const std::string& key, const Bytes& value) override {
    store_.set(key, view(value), options());
  }
  Bytes get(const std::string& key) override {
    wait({key});
    return bytes_of(store_.get(key, options()));
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return bytes_of(store_.compare_set(key, view(expected), view(desired), options()));
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_.add(key, amount, options());
  }
  bool deleteKey(const std::string& key) override { return store_.delete_key(key, options()); }
  bool check(const std::vector<std::string>& keys) override {
    return store_.check(keys, options());
  }
  std::int64_t getNumKeys() override { return store_.num_keys(options()); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    const Clock::TimePoint deadline = deadline_after(timeout);
    for (;;) {
      const auto left = std::max<std::chrono::nanoseconds>(deadline - Clock::system().now(),
                                                           std::chrono::milliseconds(1));
      try {
        return store_.wait(keys, {std::min<std::chrono::nanoseconds>(left, kKeyLook)});
      } catch (const RpcError& error) {
        if (error.code() != ErrorCode::kDeadlineExceeded || left <= kKeyLook) throw;
      }
      const absl::Status health = health_ ? health_() : absl::OkStatus();
      if (!health.ok()) throw_error(health);
    }
  }

 private:
  StoreCallOptions options() const { return {getTimeout()}; }

  const sinew::Store store_;
  const std::function<absl::Status()> health_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> make_c10d_store(const Store& store,
                                                std::function<absl::Status()> health) {
  return c10::make_intrusive<C10dStore>(store, std::move(health));
}

}  // namespace sinew::internal
