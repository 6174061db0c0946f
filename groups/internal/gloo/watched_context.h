#pragma once

#include <functional>
#include <memory>

#include "gloo/transport/context.h"
#include "gloo/transport/device.h"

namespace sinew::internal {

/// Called once for each rank whose connection breaks, or cannot be made, as soon as this process
/// notices, in that order. Not for connections that are closed here. Gloo holds a lock meanwhile:
/// it must not call Gloo, block or throw.
using OnBroken = std::function<void(int rank)>;

/// A context of the device's whose connections say when they break, where Gloo itself tells a
/// buffer that one of those that it uses has, and which write to one that the other end has closed
/// without a SIGPIPE. A context as the device makes it, which does neither, if the device is not
/// Gloo's plain TCP.
std::shared_ptr<gloo::transport::Context> make_watched_context(
    const std::shared_ptr<gloo::transport::Device>& device, int rank, int size, OnBroken on_broken);

/// Returns when OnBroken has been called for every connection of a context of
/// make_watched_context() of whose breaking a buffer has heard: Gloo wakes the buffers first. Not
/// while a lock is held that OnBroken takes.
void await_on_broken(gloo::transport::Context& context);

}  // namespace sinew::internal
