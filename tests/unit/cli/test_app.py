"""The command line: its output, its catalog, and its exit codes."""

from __future__ import annotations

import builtins
import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import lance
import lance_namespace.errors
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest

from lance_ns_async import Namespace, TableId
from lance_ns_async.cli.catalog import Catalog, choose
from lance_ns_async.cli.errors import CODES, Code, Misuse, exit_code
from lance_ns_async.spark import Locations
from lance_ns_async.spark.java import JavaNotFoundError
from tests.fakes.iceberg import FakeIceberg
from tests.support.commands import Run, run_process

TABLES = [("shop", "eu", "orders"), ("shop", "items"), ("shop", "orders"), ("v1.2",)]
COMMAND = [sys.executable, "-m", "lance_ns_async.cli"]
QUICK = ("-p", "max_retries=0", "-p", "attempt_timeout=5s")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provides an embedded catalog with a few tables, and one that was only declared."""
    root = tmp_path_factory.mktemp("catalog")
    with Namespace.connect("dir", {"root": str(root)}) as catalog:
        for names in (["shop"], ["shop", "eu"], ["empty"]):
            catalog.create_namespace(CreateNamespaceRequest(id=names))
        for table in TABLES:
            location = catalog.declare_table(DeclareTableRequest(id=list(table))).location
            lance.write_dataset(pa.table({"id": [1, 2, 3]}), location)
        catalog.declare_table(DeclareTableRequest(id=["empty", "declared"]))
    return root


def at(root: Path) -> Sequence[str]:
    return ["-i", "dir", "-p", f"root={root}"]


def test_ls_lists_tables_and_namespaces_or_says_what_else_there_may_be(root: Path) -> None:
    run = Run("ls", "shop", *at(root))
    assert (run.code, sorted(run.lines), run.err) == (0, ["shop$items", "shop$orders"], "")
    assert sorted(Run("ls", "-r", "shop", *at(root)).lines) == ["shop$eu$orders", "shop$items", "shop$orders"]
    assert sorted(Run("ls", "-n", *at(root)).lines) == ["empty", "shop"]
    assert Run("ls", "-n", "-r", "shop", *at(root)).lines == ["shop$eu"]
    located = [line.split("\t") for line in Run("ls", "shop", "-l", "-o", "plain", *at(root)).lines]
    assert sorted(id for id, _ in located) == ["shop$items", "shop$orders"]
    assert all(lance.dataset(location).count_rows() == 3 for _, location in located)
    listed = Run("ls", *at(root)).lines
    assert listed == ["$v1.2"]
    assert json.loads(Run("describe", listed[0], "-o", "json", *at(root)).out)["id"] == "$v1.2"
    run = Run("ls", "shop.nothing", *at(root))
    assert (run.code, run.out) == (3, "")
    with Namespace.connect("dir", {"root": str(root)}) as catalog:
        catalog.create_namespace(CreateNamespaceRequest(id=["shop", "void"], mode="ExistOk"))
    run = Run("ls", "shop.void", *at(root))
    assert (run.code, run.out) == (0, "")
    assert run.err == "lance-ns: no tables in shop.void, and no namespaces\n"
    assert Run("ls", "-n", "empty", "-o", "json", *at(root)).out == "[]\n"
    assert Run("ls", "-n", "empty", "-o", "csv", *at(root)).out == "id\n"
    assert Run("ls", "-n", "empty", "-o", "table", *at(root)).out == ""


def test_describe_gives_what_the_catalog_knows(root: Path) -> None:
    run = Run("describe", "shop.orders", "-o", "json", *at(root))
    table = json.loads(run.out)
    assert (run.code, table["id"]) == (0, "shop$orders")
    assert lance.dataset(table["location"]).count_rows() == 3
    lines = dict(line.split(None, 1) for line in Run("describe", "shop$orders", *at(root)).lines)
    assert lines["location"] == table["location"] and not {"names", "table_uri"} & set(lines)
    assert (table["version"], table["rows"], table["columns"], table["size"] > 0) == (1, 3, ["id"], True)
    declared = Run("describe", "empty.declared", *at(root))
    assert declared.code == 0 and "location" in declared.out and "its rows are unknown: Table not found" in declared.err
    table = json.loads(Run("describe", "shop.orders", "--details", "-o", "json", *at(root)).out)
    assert (
        table["version"] == 1
        and table["columns"] == ["id"]
        and [field["name"] for field in table["schema"]["fields"]] == ["id"]
    )
    assert Run("describe", "shop.orders", "--version", "9", *at(root)).code == Code.NOT_FOUND


def test_secrets_are_hidden_unless_requested(root: Path) -> None:
    secret = ("-p", "storage.token=hunter2", *at(root))
    for args in (["describe", "shop.orders"], ["resolve", "shop.orders", "--no-pin", "-o", "json"]):
        hidden, shown = Run(*args, *secret), Run(*args, "--show-secrets", *secret)
        assert "hunter2" not in hidden.out + hidden.err and "hunter2" in shown.out
    assert '"token": "***"' in Run("describe", "shop.orders", *secret).out


def test_resolve_takes_ids_and_patterns_and_reports_what_is_missing(root: Path) -> None:
    run = Run("resolve", "shop.orders", "shop$eu$*", *at(root))
    assert run.code == 0
    assert [line.split()[0] for line in run.lines] == ["id", "shop$orders", "shop$eu$orders"]
    assert run.lines[0].split() == ["id", "location", "version", "rows", "fragments"]
    assert run.err.startswith("resolved 2/2 in ")
    run = Run("resolve", "shop.orders", "shop.gone", "none.*", "-o", "plain", *at(root))
    assert run.code == Code.FAILURE and [line.split("\t")[0] for line in run.lines] == ["shop$orders"]
    assert "resolved 1/3 in " in run.err
    assert "shop$gone" in run.err and "none" in run.err
    assert Run("resolve", "empty.declared", *at(root)).code == Code.FAILURE
    run = Run("resolve", "empty.declared", "--no-pin", *at(root))
    assert (run.code, run.lines[0].split()) == (0, ["id", "location"])
    run = Run("resolve", "shop.orders", "shop.gone", "--on-error", "raise", *at(root))
    assert (run.code, run.out) == (Code.NOT_FOUND, "")
    assert re.fullmatch(r"lance-ns: 1 of 2 could not be resolved: Table not found: shop\$gone .*\n", run.err)


def test_resolve_reads_ids_from_a_file_and_from_ls(root: Path, tmp_path: Path) -> None:
    id_file = tmp_path / "asked"
    id_file.write_text("# what the job reads\n\n  shop.items  \nshop.eu.*\n")
    from_file = Run("resolve", "shop.orders", "--from-file", str(id_file), "-o", "plain", *at(root))
    assert [line.split("\t")[0] for line in from_file.lines] == ["shop$orders", "shop$items", "shop$eu$orders"]
    listed = Run("ls", "-r", *at(root)).out
    piped = Run("resolve", "-f", "-", "--no-pin", "-o", "plain", *at(root), stdin=listed)
    assert {line.split("\t")[0] for line in piped.lines} >= {"shop$items", "shop$eu$orders", "$v1.2"}


def test_resolve_writes_what_others_read(root: Path, tmp_path: Path) -> None:
    for name in ("plan.json", "plan.csv", "plan.parquet"):
        run = Run("resolve", "shop.*", "--out", str(tmp_path / name), *at(root))
        assert (run.code, run.out) == (0, "")
    kept = Locations.from_json((tmp_path / "plan.json").read_text())
    assert {id: at.rows for id, at in kept.items()} == {TableId(["shop", name]): 3 for name in ("items", "orders")}
    with (tmp_path / "plan.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert sorted((row["id"], row["version"]) for row in rows) == [("shop$items", "1"), ("shop$orders", "1")]
    assert pq.read_table(tmp_path / "plan.parquet").column("names").to_pylist()[0][0] == "shop"


def test_parquet_goes_to_a_pipe_and_not_to_a_terminal(root: Path, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    with sent.open("w") as stream:
        assert run_process("resolve", "shop.*", "-o", "parquet", *at(root), stdout=stream).returncode == 0
    assert pq.read_table(sent).num_rows == 2
    with terminal() as screen:
        run = run_process("resolve", "shop.*", "-o", "parquet", *at(root), stdout=screen)
    assert run.returncode == Code.USAGE
    assert run.stderr == "lance-ns: parquet cannot be written to a terminal: use --out FILE, or redirect the output\n"


@contextmanager
def terminal() -> Iterator[int]:
    person, program = os.openpty()
    try:
        yield program
    finally:
        os.close(person)
        with suppress(OSError):
            os.close(program)


PROFILES = """
[profiles.prod]
impl = "iceberg"
endpoint = "https://prod"
max_retries = 2
"storage.region" = "eu"

[profiles.prod.header]
X-Team = "data"
"""


def test_the_catalog_is_that_of_the_options_the_environment_or_a_profile(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    catalog = choose("iceberg", ["endpoint=https://a?b=c", "auth_token=@token", "header.X="], None, None, {})
    assert catalog == Catalog("iceberg", {"endpoint": "https://a?b=c", "auth_token": "s3cret", "header.X": ""})
    assert "s3cret" not in repr(catalog) and choose(None, None, None, None, {}) is None
    environment = {"LANCE_NS_IMPL": "dir", "LANCE_NS_PROPERTY_ROOT": "/r", "LANCE_NS_PROPERTY_STORAGE__REGION": "eu"}
    assert choose(None, None, None, None, environment) == Catalog("dir", {"root": "/r", "storage.region": "eu"})
    config = tmp_path / "elsewhere.toml"
    config.write_text(PROFILES)
    prod = Catalog(
        "iceberg", {"endpoint": "https://prod", "max_retries": "2", "storage.region": "eu", "header.X-Team": "data"}
    )
    assert choose(None, None, "prod", config, {}) == prod
    assert choose(None, None, None, None, {"LANCE_NS_PROFILE": "prod", "LANCE_NS_CONFIG": str(config)}) == prod
    usual = tmp_path / "config" / "lance-ns" / "config.toml"
    usual.parent.mkdir(parents=True)
    usual.write_text('[profiles.mine]\nimpl = "dir"\nroot = "/mine"\n')
    (tmp_path / "lance-ns.toml").write_text(PROFILES)
    assert choose(None, None, "mine", None, {}) == Catalog("dir", {"root": "/mine"})
    assert choose(None, None, "prod", None, {}) == prod


def test_options_win_over_the_environment_and_that_over_profiles(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(PROFILES)
    environment = {"LANCE_NS_PROPERTY_ENDPOINT": "https://env", "LANCE_NS_PROPERTY_MAX_RETRIES": "5"}
    catalog = choose(None, ["iceberg.max-retries=7"], "prod", config, environment)
    assert catalog is not None
    assert catalog.properties["endpoint"] == "https://env"
    assert catalog.properties["iceberg.max-retries"] == "7" and "max_retries" not in catalog.properties
    # What is set for another catalog is left out.
    environment = {"LANCE_NS_CONFIG": str(config), "LANCE_NS_PROFILE": "prod"}
    environment |= {"LANCE_NS_IMPL": "unity", "LANCE_NS_PROPERTY_CATALOG": "main"}
    assert choose(None, None, None, None, environment) == Catalog("unity", {"catalog": "main"})
    assert choose("dir", ["root=/r"], None, None, environment) == Catalog("dir", {"root": "/r"})
    catalog = choose(None, None, "prod", None, environment)
    assert catalog is not None and catalog.impl == "iceberg" and "catalog" not in catalog.properties


@pytest.mark.parametrize(
    ("impl", "properties", "profile", "content", "message"),
    [
        ("dir", ["hunter2"], None, "", "-p: must be KEY=VALUE"),
        ("dir", ["token=@missing"], None, "", "-p token=@missing: No such file or directory"),
        ("dir", [], "prod", PROFILES, "profile 'prod' is a catalog of kind 'iceberg', but --impl is 'dir'"),
        (None, [], "prdo", PROFILES, "did you mean 'prod'?"),
        (None, [], "prod", "", "create it with lance-ns profile add prod"),
        (None, [], "prod", "[profiles.prod]\nroot = 'x'", "has no impl"),
        (None, [], "prod", "[profiles.prod]\nimpl = 'dir'\nroot = ['x']", "root must be text, a number"),
        (None, [], "prod", "profiles = 3", "write [profiles.NAME]"),
        (None, [], "prod", "[profiles]\nprod = 3", "write [profiles.NAME]"),
        (None, [], "prod", "[profiles", "c.toml: "),
    ],
)
def test_a_bad_choice_is_explained(
    tmp_path: Path, impl: str | None, properties: Sequence[str], profile: str | None, content: str, message: str
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(content)
    with pytest.raises(Misuse, match=re.escape(message)) as raised:
        choose(impl, properties, profile, config, {})
    assert "hunter2" not in str(raised.value)


def test_profiles_need_a_file(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no file with profiles"):
        choose(None, None, "prod", None, {})
    with pytest.raises(Misuse, match=r"gone\.toml: No such file or directory"):
        choose(None, None, "prod", None, {"LANCE_NS_CONFIG": str(tmp_path / "gone.toml")})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], ""),
        (["lss"], "lance-ns: No such command 'lss'"),
        (["ls", "--bogus"], "lance-ns: No such option: --bogus"),
        (["ls"], "lance-ns: no catalog: use --impl and -p KEY=VALUE"),
        (["ls", "-i", "dri"], "lance-ns: --impl 'dri': unknown; did you mean 'dir'?"),
        (["ls", "-i", "dir", "-p", "rot=x"], "lance-ns: dir properties: rot: unknown, did you mean root?"),
        (["resolve", "-i", "dir", "-p", "root=x"], "lance-ns: no ids: pass"),
        (["resolve", "a", "-f", "gone", "-i", "dir", "-p", "root=x"], "lance-ns: gone: No such file or directory"),
        (["describe", "a..b", "-i", "dir", "-p", "root=x"], "lance-ns: table id ['a', '', 'b']: every name"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(args: Sequence[str], message: str) -> None:
    run = Run(*args)
    assert run.code == Code.USAGE and run.err.startswith(message)
    assert run.err.count("\n") == bool(message)


def test_a_catalog_that_refuses_has_its_exit_code() -> None:
    refusals = {**dict.fromkeys((401, 403), Code.NO_ACCESS), **dict.fromkeys((429, 503), Code.UNAVAILABLE)}
    for status, code in {**refusals, 500: Code.INTERNAL}.items():
        with FakeIceberg() as server:
            server.fail(status, times=None)
            run = Run("describe", "a.t", "-i", "iceberg", "-p", f"endpoint={server.endpoint}", *QUICK)
        assert (run.code, run.out, run.err.count("\n")) == (code, "", 1)


def test_every_error_of_the_spec_has_a_code_that_was_chosen() -> None:
    homes = (builtins, lance_namespace.errors)
    own = {"Misuse": Misuse, "JavaNotFoundError": JavaNotFoundError}
    for name, code in CODES.items():
        error_class = own.get(name) or next(getattr(home, name) for home in homes if hasattr(home, name))
        assert exit_code(error_class("")) is code
    assert exit_code(lance_namespace.errors.TableAlreadyExistsError("")) is Code.FAILURE
    assert exit_code(ZeroDivisionError()) is Code.INTERNAL and exit_code(SystemExit()) is None


def test_debug_shows_where_an_error_comes_from(root: Path) -> None:
    quiet, loud = Run("describe", "shop.gone", *at(root)), run_process("--debug", "describe", "shop.gone", *at(root))
    assert (quiet.code, loud.returncode) == (3, 3) and quiet.err.count("\n") == 1
    assert "describe_table shop$gone: TableNotFoundError in" in loud.stderr
    assert "Traceback (most recent call last)" in loud.stderr and loud.stderr.endswith(quiet.err)
    with FakeIceberg(token="right") as server:
        refused = run_process("--debug", "ls", "-i", "iceberg", "-p", f"endpoint={server.endpoint}")
    assert refused.returncode == Code.NO_ACCESS and len(refused.stderr.splitlines()) <= 20


def test_a_listing_over_rest_loads_no_libraries_for_data() -> None:
    script = (
        "import sys; from lance_ns_async.cli.app import app; app(sys.argv[1:], standalone_mode=False); "
        "print([it for it in ('lance', 'pandas') if it in sys.modules])"
    )
    with FakeIceberg() as server:
        arguments = ["ls", "-n", "-i", "iceberg", "-p", f"endpoint={server.endpoint}"]
        run = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_a_reader_that_has_seen_enough_is_no_error(root: Path) -> None:
    readers, writers = os.pipe()
    os.close(readers)
    try:
        run = run_process("ls", "-r", *at(root), stdout=writers)
    finally:
        os.close(writers)
    assert (run.returncode, run.stderr) == (Code.BROKEN_PIPE, "")


def test_ctrl_c_ends_a_command_at_once() -> None:
    with FakeIceberg() as server, server.hold() as hold:
        args = ["ls", "a", "-i", "iceberg", "-p", f"endpoint={server.endpoint}"]
        with subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            hold.wait_for(1, within=30.0)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (Code.INTERRUPT, b"", b"")


@pytest.mark.parametrize(
    ("missing", "args"),
    [
        ("typer", ["--help"]),
        ("rich", ["profile", "show", "a"]),
        ("tomlkit", ["profile", "add", "b", "-i", "dir", "-p", "root=x"]),
    ],
)
def test_a_missing_extra_is_named(missing: str, args: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "lance-ns.toml").write_text('[profiles.a]\nimpl = "dir"\nroot = "x"\n')
    script = f"import sys; sys.modules[{missing!r}] = None; from lance_ns_async.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert re.fullmatch(r"lance-ns.* needs: pip install 'lance-ns-async\[cli\]'\n", run.stderr)
