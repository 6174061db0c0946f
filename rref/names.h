#pragma once

/// Objects that are found by name: Worker::publish(), unpublish() and find().

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "sinew/rpc/worker.h"
#include "sinew/rref/internal/name_finder.h"
#include "sinew/rref/rref.h"

namespace sinew {

template <class T>
void Worker::publish(std::string_view name, const RRef<T>& object, WhenTaken when_taken) const {
  internal::publish_value(*this, name, RRefAccess::handle(object), typeid(T), when_taken);
}

template <class T>
void Worker::publish(std::string_view name, std::shared_ptr<T> object, WhenTaken when_taken) const {
  publish(name, share_rref(*this, std::move(object)), when_taken);
}

template <class T>
Future<RRef<T>> Worker::find_async(std::string_view address,
                                   std::optional<std::chrono::nanoseconds> timeout) const {
  return internal::find_value(*this, address, typeid(T), timeout)
      .then([](const std::shared_ptr<internal::ReferenceHandle>& handle) {
        return RRefAccess::make<T>(handle);
      });
}

template <class T>
RRef<T> Worker::find(std::string_view address,
                     std::optional<std::chrono::nanoseconds> timeout) const {
  return find_async<T>(address, timeout).take();
}

}  // namespace sinew
