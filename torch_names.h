#pragma once

#include <utility>

#include "sinew/rpc/call.h"
#include "sinew/rref/remote.h"

/// Peer::call(), async() and remote(), and those of RRef, with the names of torch.distributed.rpc,
/// for programs that are ported: `sinew::rpc_sync<&app::f>(worker.peer("other"), 1.0)`. See
/// docs/porting.md.
namespace sinew {

/// `to` is a Peer, or an RRef with a member function.
template <auto Method, class To, class... Args>
auto rpc_sync(const To& to, Args&&... arguments) {
  return to.template call<Method>(std::forward<Args>(arguments)...);
}
template <auto Method, class To, class... Args>
auto rpc_async(const To& to, Args&&... arguments) {
  return to.template async<Method>(std::forward<Args>(arguments)...);
}
template <auto Method, class To, class... Args>
auto remote(const To& to, Args&&... arguments) {
  return to.template remote<Method>(std::forward<Args>(arguments)...);
}
/// Makes an object at a peer.
template <class ClassOrSignature, class... Args>
auto remote(const Peer& peer, Args&&... arguments) {
  return peer.remote<ClassOrSignature>(std::forward<Args>(arguments)...);
}

}  // namespace sinew
