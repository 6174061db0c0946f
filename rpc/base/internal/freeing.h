#pragma once

namespace sinew::internal {

/// A deleter by a function of C: `std::unique_ptr<BIO, Freeing<&BIO_free>>`.
template <auto kFree>
struct Freeing {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};

}  // namespace sinew::internal
