"""The Hive Metastores of other tests: they start, restart and fail with a clear error; the fake is similar."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import lance_namespace as spec
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

from lance_ns_async import Namespace
from tests.fakes.hive3 import FakeHive
from tests.fakes.hive3.series import EVERY, Outcome, RawHive, Series, catalog, database, table
from tests.fakes.thrift_wire import Struct
from tests.servers.hive import Hive, answers, hive
from tests.servers.process import ServerError
from tests.support.budget import thorough, with_usual

ACCOUNT = ("someone", "a password")
pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module", params=with_usual(["3.1.3", "4.0.1"], "3.1.3"))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hive]:
    with hive(tmp_path_factory.mktemp("hive"), request.param) as running:
        yield running


@pytest.fixture
def client(server: Hive) -> Iterator[RawHive]:
    with RawHive(server.uri) as connected:
        yield connected


def test_the_fake_answers_as_the_real_server_does(server: Hive, client: RawHive, tmp_path: Path) -> None:
    version: Literal["3.1.3", "4.0.1"] = "4.0.1" if server.name == "hive-4.0.1" else "3.1.3"
    for name in ("real", "fake"):
        (tmp_path / name).mkdir()
    real = Series(client, tmp_path / "real", server.warehouse).run()
    with FakeHive(tmp_path, version=version) as fake, RawHive(fake.uri) as other:
        fake_results = Series(other, tmp_path / "fake", fake.warehouse).run()
    assert len(real) > 150
    for ours, theirs in zip(fake_results, real, strict=True):
        assert ours == theirs


def test_the_database_is_of_the_release_s_own_scripts(client: RawHive) -> None:
    """Their parameters are CLOBs, which no filter can compare."""
    equal = 'hive_filter_field_params__table_type = "lance"'
    assert client.ask("get_table_names_by_filter", "default", equal, EVERY).kind == "MetaException"


def test_a_catalog_is_dropped_without_its_files_once_it_lies_elsewhere(
    server: Hive, client: RawHive, tmp_path: Path
) -> None:
    home = tmp_path / "lake"
    client.do("create_catalog", catalog("lake", home.as_uri()))
    client.do("create_table", table("lake", "default", "t"))
    (home / "t" / "data").write_text("data")
    client.do("drop_database", "@lake#default", False, True)
    client.do("alter_catalog", Struct({1: "lake", 2: Struct({1: "lake", 3: f"{home.as_uri()}/nothing-here"})}))
    client.do("drop_catalog", Struct({1: "lake"}))
    assert (home / "t" / "data").read_text() == "data"


def test_the_backend_for_hive_2_has_the_databases_of_the_catalog_hive(server: Hive, tmp_path: Path) -> None:
    properties = {"uri": server.uri, "root": tmp_path.as_uri()}
    with Namespace.connect("hive2", properties) as old, Namespace.connect("hive3", properties) as new:
        old.create_namespace(spec.CreateNamespaceRequest(id=["upgraded"]))
        declared = old.declare_table(spec.DeclareTableRequest(id=["upgraded", "t"]))
        assert new.describe_table(spec.DescribeTableRequest(id=["hive", "upgraded", "t"])).location == declared.location
        assert old.list_tables(spec.ListTablesRequest(id=["upgraded"])).tables == ["t"]
        assert "upgraded" in old.list_namespaces(spec.ListNamespacesRequest(id=[])).namespaces
        old.drop_namespace(spec.DropNamespaceRequest(id=["upgraded"], behavior="cascade"))
        assert "upgraded" not in new.list_namespaces(spec.ListNamespacesRequest(id=["hive"])).namespaces


@thorough
def test_a_restart_keeps_port_and_data_and_a_killed_server_cuts_connections(server: Hive, client: RawHive) -> None:
    client.do("create_database", database("hive", "survivor"))
    uri = server.uri
    server.restart()
    assert server.uri == uri
    with RawHive(uri) as again:
        assert "survivor" in again.do("get_databases", "*")
    client.close()
    assert client.do("getStatus") == 2
    server.kill()
    assert client.ask("getStatus") == Outcome("cut")
    with pytest.raises(ConnectionRefusedError):
        client.exchange("getStatus")
    server.restart()
    assert "survivor" in client.do("get_databases", "*")


@thorough
def test_a_server_may_speak_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    properties = {
        "metastore.use.SSL": "true",
        "metastore.keystore.path": str(_keystore(authority, tmp_path / "server.p12")),
        "metastore.keystore.password": "changeit",
    }
    with (
        hive(tmp_path, properties=properties, ready=partial(answers, tls=trusting)) as server,
        RawHive(server.uri, tls=trusting) as client,
    ):
        assert client.do("getStatus") == 2


@thorough
def test_a_server_may_request_a_password_and_the_fake_does_it_alike(tmp_path: Path) -> None:
    user, password = ACCOUNT
    properties = {
        "metastore.authentication": "CONFIG",
        "metastore.authentication.config.username": user,
        "metastore.authentication.config.password": password,
        "metastore.execute.setugi": "false",
    }
    with hive(tmp_path / "real", "4.0.1", properties=properties, ready=_lets_in) as server:
        real = _logins(server.uri)
    with FakeHive(tmp_path / "fake", version="4.0.1", require_plain_sasl=ACCOUNT) as fake:
        assert _logins(fake.uri) == real
    assert real == {"right": ["group", "me"], "wrong": "Error validating the login", "none": "cut"}


@thorough
def test_a_server_that_ends_at_once_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "metastore_db").mkdir()
    with pytest.raises(ServerError, match=r"(?s)hive-3\.1\.3 (ended with code|is not ready).*metastore_db"):
        with hive(tmp_path, start_within=20.0):
            pass


def _lets_in(port: int) -> bool:
    try:
        with RawHive(f"thrift://127.0.0.1:{port}", plain_sasl=ACCOUNT) as client:
            return client.ask("getStatus") == Outcome("ok", 2)
    except OSError:
        return False


def _logins(uri: str) -> Mapping[str, object]:
    """Returns the outcomes of a correct password, of a wrong one, and of a call without one."""
    with RawHive(uri, plain_sasl=ACCOUNT) as client:
        client.do("set_ugi", "me", ["group"])
        right = client.do("set_ugi", "me", ["group"])
    with RawHive(uri, plain_sasl=("someone", "wrong")) as client, pytest.raises(PermissionError) as raised:
        client.do("getStatus")
    with RawHive(uri) as client:
        return {"right": right, "wrong": str(raised.value), "none": client.ask("getStatus").kind}


def _keystore(authority: trustme.CA, path: Path) -> Path:
    issued = authority.issue_cert("127.0.0.1")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    own, *others = [load_pem_x509_certificate(blob.bytes()) for blob in issued.cert_chain_pems]
    encryption = serialization.BestAvailableEncryption(b"changeit")
    assert isinstance(key, EllipticCurvePrivateKey)
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"server", key, own, others, encryption))
    return path
