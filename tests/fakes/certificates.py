"""Certificate authorities for tests, and certificates of servers and clients."""

from __future__ import annotations

import atexit
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files for a client, and TLS contexts for servers of 127.0.0.1."""

    ca_bundle: str
    client: str  # A client's certificate with its key
    client_cert: str
    client_key: str
    server: ssl.SSLContext
    strict_server: ssl.SSLContext  # Requires a certificate of the client

    @classmethod
    def made(cls, folder: Path) -> Certificates:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        client = authority.issue_cert("client@example.com")
        client.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
        client.private_key_pem.write_to_path(str(folder / "client.key"))
        for blob in client.cert_chain_pems:
            blob.write_to_path(str(folder / "client.crt"), append=True)
        host = authority.issue_cert("127.0.0.1", "localhost")
        server, strict = (ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) for _ in range(2))
        host.configure_cert(server)
        host.configure_cert(strict)
        authority.configure_trust(strict)
        strict.verify_mode = ssl.CERT_REQUIRED
        return cls(
            ca_bundle=str(folder / "ca.pem"),
            client=str(folder / "client.pem"),
            client_cert=str(folder / "client.crt"),
            client_key=str(folder / "client.key"),
            server=server,
            strict_server=strict,
        )


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority; its file exists until the process ends."""

    _ca: trustme.CA
    _folder: TemporaryDirectory[str]

    @property
    def bundle(self) -> str:
        """The path of the PEM file for clients that trust the authority."""
        return str(Path(self._folder.name) / "ca.pem")

    def server(self, host: str = "127.0.0.1", *, until: datetime | None = None) -> ssl.SSLContext:
        """Returns the TLS context of a server with a certificate for `host`, valid until `until`."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._ca.issue_cert(host, not_after=until).configure_cert(context)
        return context


@cache
def authority(name: str = "ours") -> Authority:
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    response = Authority(trustme.CA(organization_name=name), folder)
    response._ca.cert_pem.write_to_path(response.bundle)
    return response


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
