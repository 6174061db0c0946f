#pragma once

/// Typed remote calls: everything that a program without remote references needs.

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/call.h"
#include "sinew/rpc/call_context.h"
#include "sinew/rpc/cancellation.h"
#include "sinew/rpc/member_event.h"
#include "sinew/rpc/method.h"
#include "sinew/rpc/method_table.h"
#include "sinew/rpc/peer.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/rpc/worker.h"
#include "sinew/rpc/worker_options.h"
