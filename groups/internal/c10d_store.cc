#include "sinew/groups/internal/c10d_store.h"

#include <string>
#include <vector>

namespace sinew::internal {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::string_view view(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

class C10dStore final : public c10d::Store {
 public:
  explicit C10dStore(const sinew::Store& store)
      : c10d::Store(std::chrono::ceil<std::chrono::milliseconds>(store.timeout())), store_(store) {}

  void set(const std::string& key, const Bytes& value) override {
    store_.set(key, view(value), options());
  }
  Bytes get(const std::string& key) override { return bytes_of(store_.get(key, options())); }
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
  void wait(const std::vector<std::string>& keys) override { store_.wait(keys, options()); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    store_.wait(keys, {timeout});
  }

 private:
  StoreCallOptions options() const { return {getTimeout()}; }

  const sinew::Store store_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> make_c10d_store(const Store& store) {
  return c10::make_intrusive<C10dStore>(store);
}

}  // namespace sinew::internal
