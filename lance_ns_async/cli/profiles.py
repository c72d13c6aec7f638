"""Profiles: named catalogs in a TOML file.

`[profiles.prod]` contains `impl` and the properties, either as quoted keys (`"storage.region" = "eu-west-1"`) or as
tables (`[profiles.prod.storage]`). `default = "prod"` above all tables names the default profile.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lance_ns_async.cli import private_files, secrets
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.errors import suggest

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Table


_IN_DIRECTORY = Path("lance-ns.toml")
"""The file in the current directory, which may be another user's; the only relative path of a file with profiles."""


def files_with_profiles(config: Path | None, environment: Mapping[str, str]) -> Sequence[Path]:
    """Returns the files with profiles: that of the option or of LANCE_NS_CONFIG, else the usual ones that exist."""
    if named := config or environment.get("LANCE_NS_CONFIG"):
        return [Path(named).absolute()]
    return [file for file in (_own_file(), _IN_DIRECTORY) if file.is_file()]


def file_for_new(config: Path | None, environment: Mapping[str, str]) -> Path:
    """Returns the file for a new profile: that of the option or of LANCE_NS_CONFIG, else the user's."""
    return Path(config or environment.get("LANCE_NS_CONFIG") or _own_file())


def _own_file() -> Path:
    return Path(typer.get_app_dir("lance-ns"), "config.toml")


def find(name: str, files: Sequence[Path]) -> tuple[Path, Mapping[str, Any]]:
    """Returns the first file that contains a profile, and what it contains."""
    names: list[str] = []
    for file in files:
        profiles_here = _profiles(file)
        if name in profiles_here:
            content = profiles_here[name]
            if not isinstance(content, dict):
                raise Misuse(f"{file}: profile {name!r} is not a table; write [profiles.NAME]")
            return file, content
        names += profiles_here
    create = f"create it with lance-ns profile add {name}"
    if not files:
        raise Misuse(f"profile {name!r}: no file with profiles; {create}, or set --config or LANCE_NS_CONFIG")
    hint = suggest(name, names, quoted=True) if names else create
    raise Misuse(f"profile {name!r}: not in {' or '.join(map(str, files))}; {hint}")


def list_all(files: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yields the names of all profiles and their files, without those that an earlier file hides."""
    seen: set[str] = set()
    for file in files:
        yield from ((name, file) for name in _profiles(file) if name not in seen)
        seen.update(_profiles(file))


def default_name(config: Path | None, environment: Mapping[str, str]) -> str | None:
    """Returns the name of the default profile; None if there is none.

    It is never that of a file in the current directory, which may be another user's.
    """
    file = file_for_new(config, environment)
    name = _content(file).get("default") if file.is_file() else None
    if name is not None and not isinstance(name, str):
        raise Misuse(f'{file}: default must be the name of a profile, such as default = "prod"')
    return name


def new_table() -> Table:
    """Returns an empty table for `edit`, which contains only tables."""
    import tomlkit

    return tomlkit.table(is_super_table=True)


def edit(file: Path) -> AbstractContextManager[TOMLDocument]:
    """Provides the content of a file of profiles to change; see `private_files.edit`."""
    return private_files.edit(file, _profiles)


def profile(name: str, files: Sequence[Path]) -> tuple[str, dict[str, str]]:
    """Returns the catalog's kind and the properties of a profile, from the first file that contains the profile."""
    file, content = find(name, files)
    where = f"{file}: profile {name!r}"
    properties = dict(_flat(content, "", where))
    if "impl" not in properties:
        raise Misuse(f'{where} has no impl; write e.g. impl = "iceberg"')
    commands = [key for key in properties if secrets.split(key)[1] == "command"]
    if commands and file == _IN_DIRECTORY:
        raise Misuse(f"{where}: {commands[0]} is not run from a file of the current directory; use --config {file}")
    if exposed := secrets.secrets_among(properties):
        secrets.warn_if_exposed(file, f"{', '.join(exposed)} of profile {name!r}")
    return properties.pop("impl"), properties


def _profiles(file: Path) -> Mapping[str, Any]:
    profiles = _content(file).get("profiles", {})
    if not isinstance(profiles, dict):
        raise Misuse(f"{file}: 'profiles' has no tables; write [profiles.NAME]")
    return profiles


def _content(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Misuse(f"{file}: {reason}") from error


def _flat(content: Mapping[str, object], prefix: str, where: str) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        match value:
            case dict():
                yield from _flat(value, f"{prefix}{key}.", where)
            case bool():
                yield f"{prefix}{key}", str(value).lower()
            case str() | int() | float():
                yield f"{prefix}{key}", str(value)
            case _:
                raise Misuse(f"{where}: {prefix}{key} must be text, a number, true or false")
