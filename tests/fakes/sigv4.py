"""Verification of AWS signatures: by botocore's own signer, from the request as it was received."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import sha256
from hmac import compare_digest
from urllib.parse import parse_qsl

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from tests.fakes.http import FakeServer
from tests.fakes.server import Answer, Received

_FORM = re.compile(r"AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})")
_STAMP = "%Y%m%dT%H%M%SZ"
_WINDOW = timedelta(minutes=5)


@dataclass
class Signatures:
    """The valid signatures of a service of AWS. Refused requests get the responses of AWS."""

    name: str = "execute-api"
    region: str = "eu-central-1"
    keys: dict[str, tuple[str, str | None]] = field(default_factory=lambda: {"AKIDEXAMPLE": ("sesame-secret", None)})
    """The secret and the session token of each key."""
    expired: set[str] = field(default_factory=set)  # Keys with an expired session
    ahead: timedelta = timedelta()  # The difference between the server's clock and this machine's clock
    must_sign: frozenset[str] = frozenset({"host", "x-amz-date", "x-amz-content-sha256"})
    """Headers that each signature must cover."""
    accepted: list[frozenset[str]] = field(default_factory=list)
    """The names of the signed headers of each accepted request."""

    def refusal(self, request: Received) -> Answer | None:
        now = datetime.now(UTC) + self.ahead
        problem = self._problem(request, now)
        if problem is None:
            return None
        code, message = problem
        headers = {
            "x-amzn-ErrorType": f"{code}:http://internal.amazon.com/coral/com.amazon.coral.service/",
            "Date": format_datetime(now, usegmt=True),
        }
        return Answer.of({"message": message}, 403).with_headers(headers)

    def _problem(self, request: Received, now: datetime) -> tuple[str, str] | None:
        authorization = request.headers.get("Authorization")
        if authorization is None:
            return "MissingAuthenticationTokenException", "Missing Authentication Token"
        if (match := _FORM.fullmatch(authorization)) is None:
            return "IncompleteSignatureException", "Authorization header requires 'Credential' parameter."
        credential, names, signature = match.groups()
        key, day, region, name, end = credential.split("/")
        stamp = request.headers.get("X-Amz-Date", "")
        if (key not in self.keys) or end != "aws4_request":
            return "UnrecognizedClientException", "The security token included in the request is invalid."
        if key in self.expired:
            return "ExpiredTokenException", "The security token included in the request is expired"
        if (day, region, name) != (stamp[:8], self.region, self.name):
            return "InvalidSignatureException", f"Credential should be scoped to correct service: '{self.name}'."
        signed_at = datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
        if signed_at < now - _WINDOW:
            edge = f"{now - _WINDOW:{_STAMP}} ({now:{_STAMP}} - 5 min.)"
            return "InvalidSignatureException", f"Signature expired: {stamp} is now earlier than {edge}"
        if signed_at > now + _WINDOW:
            edge = f"{now + _WINDOW:{_STAMP}} ({now:{_STAMP}} + 5 min.)"
            return "InvalidSignatureException", f"Signature not yet current: {stamp} is still later than {edge}"
        secret, token = self.keys[key]
        signed = names.split(";")
        if request.headers.get("X-Amz-Security-Token") != token:
            return "UnrecognizedClientException", "The security token included in the request is invalid."
        lacking = self.must_sign - set(signed) | {n for n in _lower(request) if n.startswith("x-amz-")} - set(signed)
        canonical, expected = self._signature(request, signed, stamp, ReadOnlyCredentials(key, secret, token))
        if lacking or not compare_digest(signature, expected):
            text = "The request signature we calculated does not match the signature you provided."
            return "InvalidSignatureException", f"{text}\n\nThe Canonical String should have been\n'{canonical}'"
        self.accepted.append(frozenset(signed))
        return None

    def _signature(
        self, request: Received, signed: list[str], stamp: str, credentials: ReadOnlyCredentials
    ) -> tuple[str, str]:
        headers = {name: value for name, value in _lower(request).items() if name in signed}
        if "x-amz-content-sha256" in signed:
            # The hash is computed from the body, whatever the client's header says.
            headers["x-amz-content-sha256"] = sha256(request.body).hexdigest()
        url = f"http://{request.headers['Host']}{request.path}"
        again = AWSRequest(request.method, url, headers=headers, data=request.body)
        again.context["timestamp"] = stamp
        signer = SigV4Auth(credentials, self.name, self.region)
        canonical = signer.canonical_request(again)
        return canonical, signer.signature(signer.string_to_sign(again, canonical), again)


def _lower(request: Received) -> Mapping[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


_RESULT = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{until:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class FakeSts(FakeServer):
    """Issues `ASIAROLE1`, `ASIAROLE2` and so on, which its service then accepts."""

    def __init__(self, signatures: Signatures, service: Signatures) -> None:
        """Creates it. `signatures` are the keys that may assume a role; `service` accepts the roles' keys."""
        super().__init__()
        self._signatures = signatures
        self._service = service
        self.roles: list[Mapping[str, str]] = []  # The arguments of each accepted call

    def error(self, status: int) -> Answer:
        return _sts_error("AccessDenied" if status == 403 else "InternalFailure", status)

    def handle(self, request: Received) -> Answer:
        if self._signatures.refusal(request) is not None:
            return _sts_error("SignatureDoesNotMatch", 403)
        parameters = dict(parse_qsl(request.body.decode()))
        self.roles.append(parameters)
        key = f"ASIAROLE{len(self.roles)}"
        secret, token = f"sesame-secret-{len(self.roles)}", f"sesame-token-{len(self.roles)}"
        self._service.keys[key] = (secret, token)
        until = datetime.now(UTC) + timedelta(seconds=int(parameters["DurationSeconds"]))
        xml = _RESULT.format(key=key, secret=secret, token=token, until=until)
        return Answer(200, xml.encode(), {"Content-Type": "text/xml"})


def _sts_error(code: str, status: int) -> Answer:
    xml = f"<ErrorResponse><Error><Code>{code}</Code><Message>on demand</Message></Error></ErrorResponse>"
    return Answer(status, xml.encode(), {"Content-Type": "text/xml"})
