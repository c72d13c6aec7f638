"""Choice of the catalog: by the command line, else by the environment, else by a profile; and the files of profiles.

A profile is a named catalog in a TOML file. `[profiles.prod]` contains `impl` and the properties, either as quoted keys
(`"storage.region" = "eu-west-1"`) or as tables (`[profiles.prod.storage]`). `default = "prod"` above all tables names
the default profile.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as err
import typer

from lance_ns_async.cli import secrets
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.parsing import parse_pair, read_text
from lance_ns_async.errors import suggest
from lance_ns_async.model import Id, NamespaceId, local_path

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

    from lance_ns_async import AsyncNamespace, Namespace

_OWN = "LANCE_NS_"
_FILES = "LANCE_NS_CONFIG"
_PROPERTY = "LANCE_NS_PROPERTY_"


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog's kind and its properties, secrets included."""

    impl: str
    properties: Mapping[str, str] = field(repr=False)

    @contextmanager
    def open(self, *about: Id) -> Iterator[Namespace]:
        """Opens the namespace while the context is open; if one of the ids does not exist, the error suggests others.

        Cost: no call, and those of `suggest_id` for each id after an error.
        """
        from lance_ns_async import Namespace

        with Namespace.connect(self.impl, self.properties) as namespace:
            try:
                yield namespace
            except (err.NamespaceNotFoundError, err.TableNotFoundError) as error:
                for suggestion in filter(None, (suggest_id(namespace, id) for id in about)):
                    error.add_note(suggestion)
                raise

    def open_async(self) -> AsyncNamespace:
        """Opens the async namespace. Cost: no call."""
        from lance_ns_async import AsyncNamespace

        return AsyncNamespace.connect(self.impl, self.properties)

    def with_property(self, name: str, value: str) -> Catalog:
        """Returns the catalog with another value of a property."""
        return replace(self, properties={**self.properties, name: value})

    def check_root(self) -> None:
        """Raises `Misuse` if the catalog is a local directory that does not exist, which is empty for other callers."""
        for _, path in self._local_roots():
            if not os.path.isdir(path):
                raise Misuse(f"root={path}: there is no such directory; the first namespace or table creates it")

    def with_absolute_root(self) -> Catalog:
        """Returns the catalog independent of the current directory."""
        roots = {key: os.path.abspath(path) for key, path in self._local_roots()}
        return Catalog(self.impl, {**self.properties, **roots})

    def _local_roots(self) -> Iterator[tuple[str, str]]:
        for key, value in self.properties.items():
            if self.impl == "dir" and _fold("dir", key) == "root":
                path = local_path(os.path.expanduser(value))
                if path is not None:
                    yield key, path


def require(impl: str | None, properties: Sequence[str] | None, profile: str | None, config: Path | None) -> Catalog:
    """Returns the catalog from the options, the environment, a profile, or else the default profile."""
    catalog = choose(impl, properties, profile, config)
    if catalog is None and (usual := default_profile(config)):
        catalog = choose(None, properties, usual, config)
    if catalog is None:
        raise Misuse(
            "no catalog: use --impl and -p KEY=VALUE, or --profile, or set LANCE_NS_IMPL or LANCE_NS_PROFILE, or "
            "create a profile with lance-ns profile add"
        )
    return catalog


@dataclass(frozen=True, slots=True)
class _Layer:
    """The settings from one source; they are ignored if `impl` is set and differs from the chosen `impl`."""

    impl: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def choose(
    impl: str | None,
    properties: Sequence[str] | None,
    profile: str | None,
    config: Path | None,
    environment: Mapping[str, str] = os.environ,
    *,
    resolve: bool = True,
) -> Catalog | None:
    """Returns the catalog from the options, the environment and the profile; None if none of them names one.

    Args:
        properties: `KEY=VALUE` texts.
        config: The file with the profiles; None means the usual ones.
        resolve: Whether to get secrets from commands and the keyring; otherwise they are not in the properties.
    """
    options = _Layer(impl, dict(map(_assignment, properties or ())))
    files = files_with_profiles(config, environment)
    named = _Layer(*read_profile(profile, files)) if profile else _Layer()
    if profile and impl and named.impl != impl:
        raise Misuse(f"profile {profile!r} is a catalog of kind {named.impl!r}, but --impl is {impl!r}")
    around = _Layer(environment.get("LANCE_NS_IMPL") or None, dict(_environment_properties(environment)))
    if not profile and (usual := environment.get("LANCE_NS_PROFILE")):
        named = _Layer(*read_profile(usual, files))
    kind = impl or (named.impl if profile else None) or around.impl or named.impl
    if kind is None:
        return None
    layers = [layer.properties for layer in (named, around, options) if layer.impl in (None, kind)]
    merged = _merge(kind, layers)
    return Catalog(kind, secrets.resolve(merged) if resolve else merged)


def without_catalog(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the variables that choose a catalog."""
    return {key: value for key, value in environment.items() if not key.startswith(_OWN) or key == _FILES}


def _assignment(text: str) -> tuple[str, str]:
    key, value = parse_pair("-p", text)
    if not value.startswith("@"):
        return key, value
    if key.lower().endswith("_file"):
        # The content would be taken for a path, and an error would show it.
        raise Misuse(f"-p {key}={value}: write the path without @; the file is read again when it changes")
    file = Path(value[1:]).expanduser()
    content = read_text(file, f"-p {key}=@{value[1:]}").removesuffix("\n")
    if secrets.secrets_among([key]):
        secrets.warn_if_exposed(file, key)
    return key, content


def _environment_properties(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if name.startswith(_PROPERTY):
            yield name.removeprefix(_PROPERTY).lower().replace("__", "."), value


def _merge(impl: str, layers: Iterable[Mapping[str, str]]) -> Mapping[str, str]:
    """Returns the properties of all layers; later layers override earlier ones, whatever the spelling of a key."""
    properties: dict[str, str] = {}
    for layer in layers:
        overrides = {_fold(impl, key) for key in layer}
        rest = {key: value for key, value in properties.items() if _fold(impl, key) not in overrides}
        properties = {**rest, **layer}
    return properties


def _fold(impl: str, key: str) -> str:
    name, _ = secrets.split(key)
    return name.removeprefix(f"{impl}.").replace("-", "_").replace(".", "_").lower()


_IN_DIRECTORY = Path("lance-ns.toml")
"""The file in the current directory, which may be another user's; the only relative path of a file with profiles."""


def files_with_profiles(config: Path | None, environment: Mapping[str, str] = os.environ) -> Sequence[Path]:
    """Returns the files with profiles: that of the option or of LANCE_NS_CONFIG, else the usual ones that exist."""
    if named := config or environment.get(_FILES):
        return [Path(named).absolute()]
    return [file for file in (_own_file(), _IN_DIRECTORY) if file.is_file()]


def file_for_new_profile(config: Path | None) -> Path:
    """Returns the file for a new profile: that of the option or of LANCE_NS_CONFIG, else the user's."""
    return Path(config or os.environ.get(_FILES) or _own_file())


def _own_file() -> Path:
    return Path(typer.get_app_dir("lance-ns"), "config.toml")


def find_profile(name: str, files: Sequence[Path]) -> tuple[Path, Mapping[str, Any]]:
    """Returns the first file that contains a profile, and what it contains."""
    names: list[str] = []
    for file in files:
        profiles = _profiles(file)
        if name in profiles:
            content = profiles[name]
            if not isinstance(content, dict):
                raise Misuse(f"{file}: profile {name!r} is not a table; write [profiles.NAME]")
            return file, content
        names += profiles
    create = f"create it with lance-ns profile add {name}"
    if not files:
        raise Misuse(f"profile {name!r}: no file with profiles; {create}, or set --config or LANCE_NS_CONFIG")
    hint = suggest(name, names, quoted=True) if names else create
    raise Misuse(f"profile {name!r}: not in {' or '.join(map(str, files))}; {hint}")


def list_profiles(files: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yields the names of all profiles and their files, without those that an earlier file hides."""
    seen: set[str] = set()
    for file in files:
        names = [name for name in _profiles(file) if name not in seen]
        yield from ((name, file) for name in names)
        seen.update(names)


def default_profile(config: Path | None) -> str | None:
    """Returns the name of the default profile; None if there is none.

    It is never that of a file in the current directory, which may be another user's.
    """
    file = file_for_new_profile(config)
    name = _content(file).get("default") if file.is_file() else None
    if name is not None and not isinstance(name, str):
        raise Misuse(f'{file}: default must be the name of a profile, such as default = "prod"')
    return name


def edit_profiles(file: Path) -> AbstractContextManager[TOMLDocument]:
    """Provides the content of a file of profiles to change; see `secrets.edit`."""
    return secrets.edit(file, _profiles)


def read_profile(name: str, files: Sequence[Path]) -> tuple[str, dict[str, str]]:
    """Returns the catalog's kind and the properties of a profile, from the first file that contains the profile."""
    file, content = find_profile(name, files)
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


def suggest_id(catalog: Namespace, id: Id) -> str | None:
    """Returns what an id that does not exist probably means; None if unknown. Cost: as `similar_id`, and a describe."""
    from lance_ns_async.many.similar_ids import similar_id

    if isinstance(id, NamespaceId) and id:
        with suppress(err.LanceNamespaceError):
            catalog.table_exists({"id": list(id)})
            return f"it is a table: see lance-ns describe {shlex.quote(str(id))}"
    near = catalog.run(lambda client: similar_id(client.session, id))
    if near == id:
        return f"it is a namespace: list its tables with lance-ns ls {shlex.quote(str(id))}, or use '{id}.**'"
    return None if near is None else f"did you mean {near}?"
