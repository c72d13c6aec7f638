"""Profiles: named catalogs in a TOML file.

`[profiles.prod]` contains `impl` and the properties, either as quoted keys (`"storage.region" = "eu-west-1"`) or as
tables (`[profiles.prod.storage]`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from lance_ns_async.cli import exposure
from lance_ns_async.cli.errors import Misuse


def usual_files(environment: Mapping[str, str]) -> Sequence[Path]:
    """Returns the files with profiles: that of LANCE_NS_CONFIG, else those of the user and the current folder."""
    if named := environment.get("LANCE_NS_CONFIG"):
        return [Path(named)]
    usual = [Path(typer.get_app_dir("lance-ns"), "config.toml"), Path("lance-ns.toml")]
    return [file for file in usual if file.is_file()]


def profile(name: str, files: Sequence[Path]) -> tuple[str, dict[str, str]]:
    """Returns the catalog's kind and the properties of a profile, from the first file that contains the profile.

    Raises:
        Misuse: No file contains the profile, or a file cannot be read.
    """
    names: list[str] = []
    for file in files:
        profiles_here = _profiles(file)
        if name in profiles_here:
            impl, properties = _read(profiles_here[name], f"{file}: profile {name!r}")
            if secrets := exposure.secrets_among(properties):
                exposure.warn_if_exposed(file, f"{', '.join(secrets)} of profile {name!r}")
            return impl, properties
        names += profiles_here
    if not files:
        raise Misuse(f"profile {name!r}: no file with profiles; set --config or LANCE_NS_CONFIG")
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known profiles: {', '.join(names) or 'none'}"
    raise Misuse(f"profile {name!r}: not in {' or '.join(map(str, files))}; {hint}")


def _profiles(file: Path) -> Mapping[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Misuse(f"{file}: {reason}") from error
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict):
        raise Misuse(f"{file}: 'profiles' has no tables; write [profiles.NAME]")
    return profiles


def _read(content: object, where: str) -> tuple[str, dict[str, str]]:
    if not isinstance(content, dict):
        raise Misuse(f"{where} is not a table; write [profiles.NAME]")
    properties = dict(_flat(content, "", where))
    if "impl" not in properties:
        raise Misuse(f'{where} has no impl; write e.g. impl = "iceberg"')
    return properties.pop("impl"), properties


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
