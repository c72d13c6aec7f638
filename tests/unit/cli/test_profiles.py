"""The commands below `profile`, and secrets that are not in the file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

from lance_ns_async.cli import errors
from lance_ns_async.cli.catalog import Catalog, choose, edit_profiles, list_profiles
from lance_ns_async.cli.errors import Code, Misuse, use_options
from lance_ns_async.cli.options import CommonOptions
from lance_ns_async.cli.parsing import parse_storage_options
from lance_ns_async.cli.secrets import lock
from tests.support.commands import Run, run_process

pytestmark = pytest.mark.floors


ICEBERG = ("-i", "iceberg", "-p", "endpoint=https://catalog.invalid")


class MemoryKeyring(KeyringBackend):
    """A keyring in memory."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.secrets: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.secrets.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.secrets[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.secrets.pop((service, username), None) is None:
            raise PasswordDeleteError


@pytest.fixture
def ring() -> Iterator[MemoryKeyring]:
    """Replaces the keyring of this machine by one in memory."""
    before, ring = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(ring)
    yield ring
    keyring.set_keyring(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "lance-ns" / "config.toml"


def test_the_first_profile_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    assert "it is the default" in Run("profile", "add", "lake", "-i", "dir", "-p", "root=lake").out
    assert "default" not in Run("profile", "add", "prod", *ICEBERG).out
    run = Run("profile", "list", "--output", "plain")
    assert [line.split("\t")[:3] for line in run.lines] == [["*", "lake", "dir"], ["", "prod", "iceberg"]]
    assert Run("ns", "create", "sales").code == Code.OK and Run("ls", "-n").lines == ["sales"]
    # Independent of the current directory.
    assert CommonOptions().require() == Catalog("dir", {"root": str(tmp_path / "lake")})


def test_another_default_is_chosen(file: Path) -> None:
    Run("profile", "add", "a", *ICEBERG)
    Run("profile", "add", "b", *ICEBERG, "-p", "warehouse=w")
    assert Run("profile", "use", "b").out == "the default is profile b\n"
    assert CommonOptions().require().properties["warehouse"] == "w"
    assert Run("profile", "remove", "b").code == Code.OK
    assert Run("ls").err.startswith("lance-ns: no catalog")
    assert Run("profile", "use", "c").code == Code.USAGE and "default" not in file.read_text()


def test_the_default_adds_nothing_to_another_catalog() -> None:
    Run("profile", "add", "a", *ICEBERG, "-p", "auth_token=s3cret")
    chosen = CommonOptions("iceberg", ["endpoint=https://other.invalid"]).require()
    assert chosen.properties == {"endpoint": "https://other.invalid"}
    expected = {"endpoint": "https://b", "auth_token": "s3cret"}
    assert CommonOptions(properties=["endpoint=https://b"]).require().properties == expected


def test_comments_stay_and_so_does_a_file_that_is_no_toml(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(
        '# mine\n[profiles.a]  # the first\nimpl = "dir"\nroot = "/a"\n\n[profiles.a.storage]\nregion = "x"\n'
    )
    Run("profile", "add", "b", *ICEBERG)
    assert "# mine" in file.read_text() and "# the first" in file.read_text()
    assert CommonOptions(profile="a").require().properties == {"root": "/a", "storage.region": "x"}
    Run("profile", "remove", "b")
    assert "profiles.b" not in file.read_text() and "[profiles.a]  # the first" in file.read_text()
    file.write_text("[profiles")
    run = Run("profile", "add", "a", *ICEBERG)
    assert run.code == Code.USAGE and re.match(rf"lance-ns: {re.escape(str(file))}: ", run.err)
    assert file.read_text() == "[profiles"


@pytest.mark.skipif(os.name != "posix", reason="files have no such modes here")
def test_the_file_is_only_for_its_owner(file: Path) -> None:
    run = Run("profile", "add", "a", *ICEBERG, "-p", "auth_token=s3cret")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "auth_token: in the file" in run.err and "s3cret" not in run.err + run.out
    file.chmod(0o644)
    Run("profile", "add", "b", *ICEBERG)
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(it.name for it in file.parent.iterdir()) == [".config.toml.lock", "config.toml"]
    assert (file.parent / ".config.toml.lock").stat().st_mode & 0o777 == 0o600


def test_changes_of_one_file_follow_each_other(file: Path) -> None:
    with edit_profiles(file) as content:
        content["default"] = "a"
        with pytest.raises(Misuse, match=r"in use by another lance-ns"), lock(file, 0.0):
            pass
        assert not file.exists()
    with lock(file, 0.0):
        assert file.read_text() == 'default = "a"\n'


def test_profiles_added_at_once_are_all_kept(file: Path) -> None:
    names = [f"p{number}" for number in range(12)]
    with ThreadPoolExecutor(len(names)) as pool:
        done = list(pool.map(lambda name: run_process("profile", "add", name, *ICEBERG), names))
    assert [it.returncode for it in done] == [Code.OK] * len(names), [it.stderr for it in done]
    assert dict(list_profiles([file])).keys() == set(names)
    assert sum("it is the default" in it.stdout for it in done) == 1


def test_secrets_are_hidden() -> None:
    Run("profile", "add", "a", *ICEBERG, "-p", "auth_token=s3cret")
    shown = Run("profile", "show", "a", "--json")
    assert "s3cret" not in shown.out and '"auth_token": "***"' in shown.out
    assert "s3cret" in Run("profile", "show", "a", "--show-secrets").out


def test_a_secret_is_what_a_command_prints(file: Path) -> None:
    command = f'{sys.executable} -c "print(chr(115) * 3)"'
    run = Run("profile", "add", "a", *ICEBERG, "-p", f"auth_token_command={command}")
    assert run.code == Code.OK and run.err == ""
    assert "sss" not in file.read_text() and CommonOptions().require().properties["auth_token"] == "sss"
    # Another value of the same property replaces the command, which does not run.
    assert choose(None, ["auth_token=x"], "a", None, {}) == Catalog(
        "iceberg", {"endpoint": "https://catalog.invalid", "auth_token": "x"}
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("exit 3", "auth_token_command: the command ended with exit code 3"),
        ("exit 0", "auth_token_command: the command wrote nothing"),
    ],
)
def test_a_command_that_fails_is_an_error(file: Path, command: str, message: str) -> None:
    run = Run("profile", "add", "a", *ICEBERG, "-p", f"auth_token_command={command}")
    assert (run.code, run.err) == (Code.USAGE, f"lance-ns: {message}\n") and not file.exists()


def test_a_secret_is_in_the_keyring(ring: MemoryKeyring, file: Path) -> None:
    run = Run("profile", "add", "a", *ICEBERG, "--ask", "auth_token", stdin="s3cret\n")
    assert (run.code, run.err) == (Code.OK, "") and "s3cret" not in file.read_text()
    assert ring.secrets == {("lance-ns", "a.auth_token"): "s3cret"}
    assert CommonOptions().require().properties["auth_token"] == "s3cret"
    assert Run("profile", "remove", "a").code == Code.OK and ring.secrets == {}
    Run("profile", "add", "a", *ICEBERG, "--ask", "auth_token", stdin="s3cret\n")
    ring.secrets.clear()
    with pytest.raises(Misuse, match=r"set it with keyring set lance-ns a\.auth_token"):
        CommonOptions().require()
    assert Run("profile", "show", "a").code == Code.OK and Run("profile", "remove", "a").code == Code.OK


def test_a_machine_without_keyring_is_an_error(file: Path) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(keyring.backends.fail.Keyring())  # type: ignore[no-untyped-call]
    try:
        run = Run("profile", "add", "a", *ICEBERG, "--ask", "auth_token", stdin="s3cret\n")
    finally:
        keyring.set_keyring(before)
    assert run.code == Code.USAGE and not file.exists()
    assert "the keyring cannot be used" in run.err and "auth_token_command=COMMAND" in run.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["add", "a b", "-i", "dir"], "profile 'a b': use letters, digits"),
        *((["add", "a"], "--impl: missing"), (["add", "a", "-i", "dri"], "did you mean 'dir'?")),
        (["add", "a", "-i", "dir", "-p", "rot=x"], "rot: unknown, did you mean root?"),
        (["add", "old", *ICEBERG], "profile 'old' exists in"),
        *((["show", "odl"], "did you mean 'old'?"), (["remove", "odl"], "did you mean 'old'?")),
        *((["use", "odl"], "did you mean 'old'?"), (["test", "odl"], "did you mean 'old'?")),
        (["add", "a", *ICEBERG, "--ask", "auth_token"], "--ask auth_token: no value on standard input"),
    ],
)
def test_a_mistake_is_named_and_changes_nothing(file: Path, args: Sequence[str], message: str) -> None:
    Run("profile", "add", "old", *ICEBERG)
    before = file.read_text()
    run = Run("profile", *args, stdin="")
    assert run.code == Code.USAGE and message in run.err and len(run.err.splitlines()) == 1
    assert file.read_text() == before


def test_a_profile_is_tested_like_a_catalog(tmp_path: Path) -> None:
    Run("profile", "add", "a", "-i", "dir", "-p", f"root={tmp_path}")
    run = Run("profile", "test", "a", "--output", "csv")
    assert run.code == Code.OK and run.lines[1].startswith("versions,ok,")
    assert Run("status").code == Code.OK


def test_a_command_does_not_read_the_input_of_the_program(tmp_path: Path) -> None:
    Run("profile", "add", "a", "-i", "dir", "-p", f"root={tmp_path}", "-p", "storage.token_command=cat; echo x")
    assert Run("ns", "create", "n").code == Code.OK and Run("create", "n.t").code == Code.OK
    run = run_process("resolve", "--from-file", "-", "--no-pin", "-o", "csv", stdin="n.t\n")
    assert run.returncode == Code.OK and "n$t" in run.stdout


def test_the_current_directory_neither_chooses_the_catalog_nor_runs_commands(tmp_path: Path, file: Path) -> None:
    hostile = (
        f'default = "a"\n[profiles.a]\nimpl = "dir"\nroot = "{tmp_path}"\nstorage.x_command = "touch ran; echo x"\n'
    )
    (tmp_path / "lance-ns.toml").write_text(hostile)
    assert Run("ls").err.startswith("lance-ns: no catalog")
    for command in (["ls", "-P", "a"], ["profile", "test", "a"]):
        run = Run(*command)
        assert run.code == Code.USAGE and "storage.x_command is not run from a file of the current directory" in run.err
    assert not (tmp_path / "ran").exists()
    assert Run("ls", "-P", "a", "--config", "lance-ns.toml").code == Code.OK and (tmp_path / "ran").exists()


def test_a_profile_of_the_current_directory_may_be_the_default(tmp_path: Path, file: Path) -> None:
    (tmp_path / "lance-ns.toml").write_text('[profiles.here]\nimpl = "dir"\nroot = "r"\n')
    assert Run("profile", "use", "here").code == Code.OK and file.read_text() == 'default = "here"\n'
    assert CommonOptions().require() == Catalog("dir", {"root": "r"})
    assert Run("profile", "remove", "here").code == Code.OK and "default" not in file.read_text()


def test_storage_options_come_from_files(tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_text("# of the bucket\n\naws_secret_access_key=a=b\n  region = x\n")
    assert parse_storage_options([f"@{file}", "k=v"]) == {"aws_secret_access_key": "a=b", "region": "x", "k": "v"}
    file.write_text("hunter2\n")
    for option in ("hunter2", f"@{file}", f"@{tmp_path / 'none'}", f"@{tmp_path}"):
        bad = Run("discover", str(tmp_path), "-i", "dir", "-p", f"root={tmp_path}", "--storage-option", option)
        assert bad.code == Code.USAGE and "hunter2" not in bad.err and "--storage-option" in bad.err


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("delete: needs mode 'sync'", "--delete: needs mode 'sync'"),
        ("mode 'x': must be 'create' or 'sync'", "--mode 'x': must be 'create' or 'sync'"),
        ("omit one of take_over and data", "omit one of --take-over and data"),
        ("use data=True to clone it", "use --data to clone it"),
        ("no rule of `data` applies", "no rule of --data applies"),
        ("on_error='report' leaves it out", "--on-error report leaves it out"),
        ("table data: no rule applies", "table data: no rule applies"),
    ],
)
def test_messages_name_options(message: str, expected: str) -> None:
    names = ("data", "delete", "mode", "on_error", "take_over")
    options = {name: f"--{name.replace('_', '-')}" for name in names}
    errors.set_up(quiet=False, options=options)
    assert use_options(message, is_usage=True) == expected


def test_ids_are_no_options() -> None:
    expected = "Table not found: take_over; --on-error report leaves it out"
    errors.set_up(quiet=False, options={"take_over": "--take-over", "on_error": "--on-error"})
    assert use_options("Table not found: take_over; on_error='report' leaves it out") == expected
