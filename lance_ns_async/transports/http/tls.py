"""What to trust and to show on connections over TLS."""

from __future__ import annotations

import ssl

UNTRUSTED = (
    "an authority of your own goes into ca_bundle; a certificate that is none of this host's, or over, is renewed"
)
"""What helps where a server's certificate is not trusted."""


def tls_context(ca_bundle: str | None, client_cert: str | None, client_key: str | None) -> ssl.SSLContext:
    """The system's authorities, or those of the bundle, and the certificate; raises OSError for unreadable files."""
    context = ssl.create_default_context(cafile=ca_bundle)
    if client_cert is not None:
        context.load_cert_chain(client_cert, client_key)
    return context
