#pragma once

#include "sinew/autograd.pb.h"
#include "sinew/autograd/context.h"

namespace testgrad {

/// A context as other workers name it, with its secret.
inline void write(const sinew::autograd::ContextId& id, sinew::proto::AutogradContext& out) {
  out.set_creator(id.creator.value);
  out.set_serial(id.serial);
  out.set_secret(id.secret);
}

}  // namespace testgrad
