"""TLS settings: trusted certificate authorities and the client certificate."""

from __future__ import annotations

import ssl

UNTRUSTED = "set ca_bundle to trust a private authority; renew a certificate that is expired or has another host's name"
"""Advice in messages about a server certificate that is not trusted."""


def tls_context(
    ca_bundle: str | None, client_cert: str | None, client_key: str | None, *, check_hostname: bool = True
) -> ssl.SSLContext:
    """Returns a context with the system's authorities or those of the bundle, and with the client certificate.

    Args:
        ca_bundle: Path of a PEM file; None means the system's authorities.
        client_cert: Path of a PEM file; None means no client certificate.
        client_key: Path of a PEM file; None means that `client_cert` contains the key.
        check_hostname: Whether the server's certificate must name the host.
    """
    context = ssl.create_default_context(cafile=ca_bundle)
    context.check_hostname = check_hostname
    if client_cert is not None:
        context.load_cert_chain(client_cert, client_key)
    return context
