#pragma once

#include "sinew/standard/etcdserverpb/etcd.pb.h"
#include "sinew/standard/mvccpb/kv.pb.h"

namespace sinew::internal::etcd {

namespace pb = ::sinew::standard::etcdserverpb;
using ::sinew::standard::mvccpb::Event;
using ::sinew::standard::mvccpb::KeyValue;

/// What answers a request, and where it goes: by etcd's own names, which our messages do not have.
template <class Request>
struct Method;

#define SINEW_ETCD_METHOD(request, response, path) \
  template <>                                      \
  struct Method<pb::request> {                     \
    using Response = pb::response;                 \
    static constexpr char kPath[] = path;          \
  }
SINEW_ETCD_METHOD(RangeRequest, RangeResponse, "/etcdserverpb.KV/Range");
SINEW_ETCD_METHOD(PutRequest, PutResponse, "/etcdserverpb.KV/Put");
SINEW_ETCD_METHOD(DeleteRangeRequest, DeleteRangeResponse, "/etcdserverpb.KV/DeleteRange");
SINEW_ETCD_METHOD(TxnRequest, TxnResponse, "/etcdserverpb.KV/Txn");
SINEW_ETCD_METHOD(CompactionRequest, CompactionResponse, "/etcdserverpb.KV/Compact");
SINEW_ETCD_METHOD(LeaseGrantRequest, LeaseGrantResponse, "/etcdserverpb.Lease/LeaseGrant");
SINEW_ETCD_METHOD(LeaseRevokeRequest, LeaseRevokeResponse, "/etcdserverpb.Lease/LeaseRevoke");
// A stream of one request and one answer is a call on the wire.
SINEW_ETCD_METHOD(LeaseKeepAliveRequest, LeaseKeepAliveResponse,
                  "/etcdserverpb.Lease/LeaseKeepAlive");
SINEW_ETCD_METHOD(LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
                  "/etcdserverpb.Lease/LeaseTimeToLive");
SINEW_ETCD_METHOD(AuthenticateRequest, AuthenticateResponse, "/etcdserverpb.Auth/Authenticate");
SINEW_ETCD_METHOD(AuthEnableRequest, AuthEnableResponse, "/etcdserverpb.Auth/AuthEnable");
SINEW_ETCD_METHOD(AuthUserAddRequest, AuthUserAddResponse, "/etcdserverpb.Auth/UserAdd");
SINEW_ETCD_METHOD(AuthUserGrantRoleRequest, AuthUserGrantRoleResponse,
                  "/etcdserverpb.Auth/UserGrantRole");
SINEW_ETCD_METHOD(StatusRequest, StatusResponse, "/etcdserverpb.Maintenance/Status");
#undef SINEW_ETCD_METHOD

inline constexpr char kWatchPath[] = "/etcdserverpb.Watch/Watch";

}  // namespace sinew::internal::etcd
