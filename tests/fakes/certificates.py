"""A certificate authority for tests, and its certificates."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files for a client, and TLS contexts for servers of 127.0.0.1."""

    ca_bundle: str
    client: str
    """A client's certificate with its key."""
    client_cert: str
    client_key: str
    server: ssl.SSLContext
    strict_server: ssl.SSLContext
    """Requires a certificate of the client."""

    @classmethod
    def made(cls, folder: Path) -> Certificates:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        client = authority.issue_cert("client@example.com")
        client.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
        client.private_key_pem.write_to_path(str(folder / "client.key"))
        for blob in client.cert_chain_pems:
            blob.write_to_path(str(folder / "client.crt"), append=True)
        host = authority.issue_cert("127.0.0.1")
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
