"""Calls methods of Sinew workers from Python.

    import numpy
    import sinew_client

    with sinew_client.connect("127.0.0.1:29500") as client:
        doubled = client.call("app::scale", numpy.ones((2, 3), numpy.float32), 2.0, timeout=1.0)
        future = client.call_async("app::mean", doubled)
        print(future.result())
"""

from sinew_client._client import CallFuture, Client, Metadata, connect
from sinew_client._credentials import Credentials
from sinew_client._errors import ErrorCode, Execution, FailedCall, Origin, RpcError
from sinew_client._streams import Stream
from sinew_client._tensors import BFloat16, SparseTensor
from sinew_client._version import VERSION as __version__

__all__ = [
    "BFloat16",
    "CallFuture",
    "Client",
    "Credentials",
    "ErrorCode",
    "Execution",
    "FailedCall",
    "Metadata",
    "Origin",
    "RpcError",
    "SparseTensor",
    "Stream",
    "__version__",
    "connect",
]
