#pragma once

#include <memory>

// What the headers of Gloo's TCP need of a header that Debian does not install with them: how much
// room a pointer takes. Nothing of this is called: the library has its own.
namespace gloo {

template <typename T>
class NonOwningPtr;

template <typename T>
class WeakNonOwningPtr {
  std::weak_ptr<T> pointer_;
};

}  // namespace gloo
