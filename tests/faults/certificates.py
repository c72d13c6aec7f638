"""Certificate authorities and server certificates for tests."""

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
    """Returns the authority of that name, the same one for each call."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    response = Authority(trustme.CA(organization_name=name), folder)
    response._ca.cert_pem.write_to_path(response.bundle)
    return response


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
