"""Certificates for endpoints that live as long as a job, whose clients get the authority with the address."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import ExtensionType

_LIFETIME = timedelta(days=365)  # Longer than a job; nobody keeps the keys.

_AUTHORITY = "lance-ns authority"


def new_certificate(host: str) -> tuple[ssl.SSLContext, str]:
    """Returns the TLS configuration of a server at an address or name, and its authority in PEM, which it alone has.

    Raises:
        InvalidInputError: The package `cryptography` is missing.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as e:
        raise InvalidInputError(f"an endpoint with TLS needs: pip install cryptography ({e})") from e

    def sign(key: EllipticCurvePrivateKey, by: EllipticCurvePrivateKey, name: str, extension: ExtensionType) -> bytes:
        issuer, subject = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, it)]) for it in (_AUTHORITY, name))
        now, number = datetime.now(UTC), x509.random_serial_number()
        # Clocks may differ.
        begin, end = now - timedelta(days=1), now + _LIFETIME
        draft = x509.CertificateBuilder(issuer, subject, key.public_key(), number, begin, end)
        certificate = draft.add_extension(extension, critical=True).sign(by, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    try:
        where: x509.GeneralName = x509.IPAddress(ip_address(host))
    except ValueError:
        where = x509.DNSName(host)
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = sign(authority_key, authority_key, _AUTHORITY, x509.BasicConstraints(ca=True, path_length=0))
    certificate = sign(key, authority_key, "lance-ns endpoint", x509.SubjectAlternativeName([where]))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory(prefix="lance-ns-") as folder:
        file = Path(folder, "endpoint.pem")
        file.touch(mode=0o600)
        file.write_bytes(certificate + private)
        context.load_cert_chain(file)
    return context, authority.decode()
