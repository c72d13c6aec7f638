"""A real Keycloak with one realm, in memory."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from lance_ns_async.spark.java import find_java, user_cache
from lance_ns_async.spark.maven import classpath
from tests.servers.process import LOOPBACK, JavaServer, answers_ok, free_port, made_once

VERSION = "26.7.3"
JAVA_VERSIONS = (17, 21)
_ADMIN, _PASSWORD = "admin", "admin-password"


class Keycloak(JavaServer):
    """A server whose realm is `lake`."""

    def __init__(self, directory: Path) -> None:
        """Downloads the release at the first time, which has 177 MB."""
        home = made_once(user_cache() / "keycloak" / VERSION, _unpack)
        self._port = free_port()
        self.address = f"http://{LOOPBACK}:{self._port}"
        self.issuer = f"{self.address}/realms/lake"
        self.token_endpoint = f"{self.issuer}/protocol/openid-connect/token"
        log = directory / "keycloak.log"
        super().__init__(
            "keycloak",
            (),
            log=log,
            ready=lambda: answers_ok(self._port, "/realms/master"),
            java_versions=JAVA_VERSIONS,
            start_within=180.0,
        )
        # Its script starts Java once more after it has adapted itself to its options.
        self._command = [
            "env",
            f"JAVA={find_java(JAVA_VERSIONS).executable}",
            f"KC_BOOTSTRAP_ADMIN_USERNAME={_ADMIN}",
            f"KC_BOOTSTRAP_ADMIN_PASSWORD={_PASSWORD}",
            "sh",
            str(home / "bin" / "kc.sh"),
            *("start-dev", "--db=dev-mem", f"--http-host={LOOPBACK}", f"--http-port={self._port}"),
        ]

    def start(self) -> None:
        super().start()
        self.create("", {"realm": "lake", "enabled": True})

    def create(self, path: str, content: Mapping[str, Any]) -> str:
        """Creates a thing of the administration's API below the realms, and returns its id."""
        response = self._ask("POST", path, content)
        return str(response.headers.get("location", "")).rpartition("/")[2]

    def change(self, path: str, content: Mapping[str, Any] | None = None) -> None:
        self._ask("PUT", path, content)

    def find(self, path: str) -> Any:
        return self._ask("GET", path).json()

    def token(self, client: str, secret: str) -> str:
        """Returns an access token of a client's service account."""
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret}
        return _token(httpx.post(self.token_endpoint, data=form, trust_env=False))

    def _ask(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> httpx.Response:
        form = {"grant_type": "password", "client_id": "admin-cli", "username": _ADMIN, "password": _PASSWORD}
        url = f"{self.address}/realms/master/protocol/openid-connect/token"
        headers = {"Authorization": f"Bearer {_token(httpx.post(url, data=form, trust_env=False))}"}
        url = f"{self.address}/admin/realms{path}"
        response = httpx.request(method, url, json=content, headers=headers, trust_env=False)
        return response.raise_for_status()


def mappers(audience: str) -> Sequence[Mapping[str, Any]]:
    """Returns the mappers of a client, so that its access tokens have an audience and the groups."""
    config = {"access.token.claim": "true"}
    return [
        {
            "name": "audience",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-audience-mapper",
            "config": {**config, "included.custom.audience": audience},
        },
        {
            "name": "groups",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-group-membership-mapper",
            "config": {**config, "claim.name": "groups", "full.path": "false"},
        },
    ]


def _token(response: httpx.Response) -> str:
    text: str = json.loads(response.raise_for_status().content)["access_token"]
    return text


def _unpack(folder: Path) -> None:
    coordinate = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
    [archive] = classpath("keycloak", (coordinate,), ("*:*",))
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            path = folder / Path(*Path(name).parts[1:])
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(packed.read(name))
