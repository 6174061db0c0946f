"""Who the ends of a connection are to each other."""

from __future__ import annotations

import ipaddress
import os
from os import PathLike
from pathlib import Path
from typing import Any, Optional, Union

import grpc

#: A path of a PEM file, or PEM text as bytes.
Pem = Union[str, "PathLike[str]", bytes]


class Credentials:
    """How this client and a worker prove who they are. Make one with the class methods below.

    The names are those of sinew::Credentials in C++, of which worker and client need the same kind.
    """

    def __init__(self, channel_credentials: Optional[Any], loopback_only: bool) -> None:
        """For the class methods below."""
        self._channel_credentials = channel_credentials
        self._loopback_only = loopback_only

    @classmethod
    def insecure(cls) -> Credentials:
        """No encryption and no proof of identity; addresses of this machine (loopback) only."""
        return cls(None, loopback_only=True)

    @classmethod
    def insecure_on_any_network(cls) -> Credentials:
        """No encryption and no proof of identity, on any network: for those where everybody is trusted."""
        return cls(None, loopback_only=False)

    @classmethod
    def tls(cls, ca: Pem) -> Credentials:
        """Encryption, and the worker proves its name by a certificate that an authority of `ca` has signed."""
        return cls(grpc.ssl_channel_credentials(root_certificates=_pem(ca, "ca")), loopback_only=False)

    @classmethod
    def mutual_tls(cls, ca: Pem, certificate: Pem, key: Pem) -> Credentials:
        """As tls(), and the client proves who it is too: by `certificate`, whose private key is `key`."""
        return cls(
            grpc.ssl_channel_credentials(
                root_certificates=_pem(ca, "ca"),
                private_key=_pem(key, "key"),
                certificate_chain=_pem(certificate, "certificate"),
            ),
            loopback_only=False,
        )

    def channel(self, host: str, target: str, options: Any) -> grpc.Channel:
        """A channel to `target`, whose host is `host`. ValueError: these credentials may not be used there."""
        if self._channel_credentials is not None:
            return grpc.secure_channel(target, self._channel_credentials, options)
        if self._loopback_only and not _is_loopback(host):
            raise ValueError(
                f"{host} is not a loopback address, and Credentials.insecure() stays on this machine: pass "
                "Credentials.mutual_tls() or Credentials.tls(), or, on a network where everybody is trusted, "
                "Credentials.insecure_on_any_network()"
            )
        return grpc.insecure_channel(target, options)


def job_token() -> str:
    """The token of the job that the environment tells; "": none."""
    path = os.environ.get("SINEW_JOB_TOKEN_FILE", "")
    if path:
        return Path(path).read_text(encoding="ascii").strip()
    return os.environ.get("SINEW_JOB_TOKEN", "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _pem(given: Pem, name: str) -> bytes:
    if isinstance(given, bytes):
        text, source = given, f"`{name}`"
    else:
        text, source = Path(given).read_bytes(), str(given)
    if b"-----BEGIN " not in text:
        raise ValueError(f"{source} is not in PEM format: it has no line that begins with -----BEGIN")
    return text
