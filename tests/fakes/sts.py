"""An AWS Security Token Service that issues keys of roles; calls must be signed by a known key."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

from .faults import Answer, Received
from .http import FakeServer
from .sigv4 import Signatures

_RESULT = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{until:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class FakeSts(FakeServer):
    """Issues `ASIAROLE1`, `ASIAROLE2` and so on, which its service then accepts."""

    def __init__(self, signatures: Signatures, service: Signatures) -> None:
        """Creates it.

        Args:
            signatures: The keys that may assume a role.
            service: The service that accepts the roles' keys.
        """
        super().__init__()
        self._signatures = signatures
        self._service = service
        self.roles: list[Mapping[str, str]] = []
        """The arguments of each accepted call."""

    def error(self, status: int) -> Answer:
        return _error("AccessDenied" if status == 403 else "InternalFailure", status)

    def handle(self, request: Received) -> Answer:
        if self._signatures.refusal(request) is not None:
            return _error("SignatureDoesNotMatch", 403)
        parameters = dict(parse_qsl(request.body.decode()))
        self.roles.append(parameters)
        key = f"ASIAROLE{len(self.roles)}"
        secret, token = f"sesame-secret-{len(self.roles)}", f"sesame-token-{len(self.roles)}"
        self._service.keys[key] = (secret, token)
        until = datetime.now(UTC) + timedelta(seconds=int(parameters["DurationSeconds"]))
        xml = _RESULT.format(key=key, secret=secret, token=token, until=until)
        return Answer(200, xml.encode(), {"Content-Type": "text/xml"})


def _error(code: str, status: int) -> Answer:
    xml = f"<ErrorResponse><Error><Code>{code}</Code><Message>on demand</Message></Error></ErrorResponse>"
    return Answer(status, xml.encode(), {"Content-Type": "text/xml"})
