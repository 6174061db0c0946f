"""Mutual TLS: with a worker that asks for certificates."""

from __future__ import annotations

import subprocess
import tempfile
import unittest
from pathlib import Path

import sinew_client
from sinew_client import Credentials, ErrorCode, RpcError
from tests.server import PATIENCE_S, Server


class Certificates:
    """A folder with two authorities, and certificates that they have signed."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        for authority in ("ca", "other"):
            self._openssl("req", "-x509", "-nodes", "-subj", f"/CN={authority}", *self._new_key(authority), "-out", self.path(f"{authority}.pem"))

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def issue(self, name: str, signer: str = "ca") -> None:
        request, extensions = self.path(f"{name}.csr"), self.path(f"{name}.ext")
        Path(extensions).write_text(f"subjectAltName=DNS:{name}\n")
        self._openssl("req", "-nodes", "-subj", f"/CN={name}", *self._new_key(name), "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.path(f"{signer}.pem"), "-CAkey", self.path(f"{signer}.key"),
                      "-CAcreateserial", "-extfile", extensions, "-out", self.path(f"{name}.pem"))  # fmt: skip

    def _new_key(self, name: str) -> tuple:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", self.path(f"{name}.key"))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.certificates = Certificates(folder)
        for name in ("server", "client"):
            cls.certificates.issue(name)
        cls.certificates.issue("stranger", "other")
        path = cls.certificates.path
        cls.server = Server(path("ca.pem"), path("server.pem"), path("server.key"))
        cls.addClassCleanup(cls.server.stop)

    def credentials(self, name: str, ca: str = "ca") -> Credentials:
        path = self.certificates.path
        return Credentials.mutual_tls(path(f"{ca}.pem"), path(f"{name}.pem"), path(f"{name}.key"))

    def connect(self, credentials: Credentials, expected_name: str = "server", timeout: float = PATIENCE_S) -> sinew_client.Client:
        return sinew_client.connect(
            self.server.address, credentials, expected_name=expected_name, connect_timeout=timeout
        )

    def refuse(self, credentials: Credentials, expected_name: str = "server") -> RpcError:
        with self.assertRaises(RpcError) as caught:
            self.connect(credentials, expected_name, 1.0)
        self.assertEqual((caught.exception.code, caught.exception.did_not_run), (ErrorCode.UNAVAILABLE, True))
        return caught.exception

    def test_both_prove_who_they_are(self) -> None:
        with self.connect(self.credentials("client")) as client:
            self.assertEqual(client.call("interop::add", 2, 3), 5)

    def test_credentials_from_memory(self) -> None:
        ca, certificate, key = (Path(self.certificates.path(name)).read_bytes() for name in ("ca.pem", "client.pem", "client.key"))
        with self.connect(Credentials.mutual_tls(ca, certificate, key)) as client:
            self.assertEqual(client.call("interop::add", 2, 3), 5)

    def test_who_is_not_let_in(self) -> None:
        self.refuse(self.credentials("stranger"))
        self.refuse(Credentials.tls(self.certificates.path("ca.pem")))
        self.refuse(Credentials.insecure())

    def test_a_worker_that_is_not_trusted(self) -> None:
        self.refuse(self.credentials("client", ca="other"))
        self.refuse(self.credentials("client"), expected_name="somebody")
        # The host's name is the one that counts where no other is said.
        self.refuse(self.credentials("client"), expected_name="")

    def test_files_that_are_none(self) -> None:
        with self.assertRaisesRegex(FileNotFoundError, "missing.pem"):
            Credentials.tls(self.certificates.path("missing.pem"))
        with self.assertRaisesRegex(ValueError, "server.ext"):
            Credentials.tls(self.certificates.path("server.ext"))
        with self.assertRaisesRegex(ValueError, "`ca`"):
            Credentials.tls(b"no certificate")
