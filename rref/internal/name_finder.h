#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <typeinfo>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/worker.h"
#include "sinew/rref/internal/reference_handle.h"

// What Worker::publish() and find() are made of, without T.
namespace sinew::internal {

void publish_value(const Worker& worker, std::string_view name,
                   std::shared_ptr<ReferenceHandle> handle, const std::type_info& type,
                   WhenTaken when_taken);
/// Finds `worker/name`; see Worker::find_async().
Future<std::shared_ptr<ReferenceHandle>> find_value(
    const Worker& worker, std::string_view address, const std::type_info& type,
    std::optional<std::chrono::nanoseconds> timeout);

}  // namespace sinew::internal
