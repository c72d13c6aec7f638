"""The paths and errors of a Polaris server, for tests that send raw requests."""

from __future__ import annotations

from ..raw import Reply

V1, GENERIC, MANAGEMENT = "/api/catalog/v1", "/api/catalog/polaris/v1", "/api/management/v1"
C, P = f"{V1}/cat", f"{GENERIC}/cat"
N, T = f"{C}/namespaces", f"{P}/namespaces/schema%1Fsub/generic-tables"
BASE = "file:///data/cat"
NEW = {"name": "x", "format": "lance"}
OAUTH = f"{V1}/oauth/tokens"
GRANT = "grant_type=client_credentials&client_id=root&client_secret=s3cr3t&scope=PRINCIPAL_ROLE%3AALL"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NOWHERE = (404, "NotFoundException", "Unable to find matching target resource method")
OUTSIDE = (404, "NotFoundException", "HTTP 404 Not Found")


def bearing(token: str) -> dict[str, str]:
    """Returns the header with a token."""
    return {"Authorization": f"Bearer {token}"}


def names(reply: Reply) -> list[str]:
    """Returns the tables of a listing."""
    return [identifier["name"] for identifier in reply.json["identifiers"]]


def no_table(name: str) -> tuple[int, str, str]:
    """The error for a missing table."""
    return (404, "NoSuchTableException", f"Generic table does not exist: {name}")


def no_space(name: str) -> tuple[int, str, str]:
    """The error for a missing namespace."""
    return (404, "NoSuchNamespaceException", f"Namespace does not exist: {name}")


def exists(message: str) -> tuple[int, str, str]:
    """The error for a name that is in use."""
    return (409, "AlreadyExistsException", message)


def wrong(message: str) -> tuple[int, str, str]:
    """The error for an impossible request."""
    return (400, "IllegalArgumentException", message)


def check_bare(reply: Reply, status: int) -> None:
    """Checks that the response is only a status."""
    headers = {key.lower(): value for key, value in reply.headers.items()}
    assert (reply.status, reply.body) == (status, b"")
    assert (headers["content-length"], headers["content-encoding"]) == ("0", "identity")
    assert "content-type" not in headers
    assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
