"""The paths and errors of a Polaris server, for tests that send raw requests."""

from __future__ import annotations

from ..raw import Reply

V1, GENERIC, MANAGEMENT = "/api/catalog/v1", "/api/catalog/polaris/v1", "/api/management/v1"
C, P = f"{V1}/cat", f"{GENERIC}/cat"
N = f"{C}/namespaces"
BASE = "file:///data/cat"
OAUTH = f"{V1}/oauth/tokens"
GRANT = "grant_type=client_credentials&client_id=root&client_secret=s3cr3t&scope=PRINCIPAL_ROLE%3AALL"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def bearing(token: str) -> dict[str, str]:
    """Returns the header with a token."""
    return {"Authorization": f"Bearer {token}"}


def names(reply: Reply) -> list[str]:
    """Returns the tables of a listing."""
    return [identifier["name"] for identifier in reply.json["identifiers"]]


def check_bare(reply: Reply, status: int) -> None:
    """Checks that the response is only a status."""
    headers = {key.lower(): value for key, value in reply.headers.items()}
    assert (reply.status, reply.body) == (status, b"")
    assert (headers["content-length"], headers["content-encoding"]) == ("0", "identity")
    assert "content-type" not in headers
    assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
