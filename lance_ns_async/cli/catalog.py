"""Choice of the catalog: by the command line, else by the environment, else by a profile."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError

from lance_ns_async.cli import profiles, secrets
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.parsing import parse_pair, read_text
from lance_ns_async.errors import nearest
from lance_ns_async.model import Id, NamespaceId, TableId

if TYPE_CHECKING:
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
        """Opens the namespace while the context is open.

        Args:
            about: The ids of the command; if one does not exist, the error suggests what is meant.

        Cost: no call, and those of `suggest_id` for each id after an error.
        """
        from lance_namespace.errors import NamespaceNotFoundError, TableNotFoundError

        from lance_ns_async import Namespace

        with Namespace.connect(self.impl, self.properties) as namespace:
            try:
                yield namespace
            except (NamespaceNotFoundError, TableNotFoundError) as error:
                for suggestion in filter(None, (suggest_id(namespace, id) for id in about)):
                    error.add_note(suggestion)
                raise

    def check_root(self) -> None:
        """Raises `Misuse` if the catalog is a local directory that does not exist, which is empty for other callers."""
        for _, path in self._local_roots():
            if not os.path.isdir(path):
                raise Misuse(f"root={path}: there is no such directory; the first namespace or table creates it")

    def with_absolute_root(self) -> Catalog:
        """Returns the catalog independent of the current directory."""
        return Catalog(
            self.impl, {**self.properties, **{key: os.path.abspath(path) for key, path in self._local_roots()}}
        )

    def _local_roots(self) -> Iterator[tuple[str, str]]:
        from lance_ns_async.model import local_path

        for key, value in self.properties.items():
            if self.impl == "dir" and _fold("dir", key) == "root":
                path = local_path(os.path.expanduser(value))
                if path is not None:
                    yield key, path

    def open_async(self) -> AsyncNamespace:
        """Opens the async namespace. Cost: no call."""
        from lance_ns_async import AsyncNamespace

        return AsyncNamespace.connect(self.impl, self.properties)


def require(impl: str | None, properties: Sequence[str] | None, profile: str | None, config: Path | None) -> Catalog:
    """Returns the catalog from the options, the environment, a profile, or else the default profile."""
    catalog = choose(impl, properties, profile, config)
    if catalog is None and (usual := profiles.default_name(config, os.environ)):
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
        impl: Kind of the catalog.
        properties: `KEY=VALUE` texts.
        profile: Name of a profile.
        config: The file with the profiles; None means the usual ones.
        environment: The environment variables.
        resolve: Whether to get secrets from commands and the keyring; otherwise they are not in the properties.
    """
    options = _Layer(impl, dict(map(_assignment, properties or ())))
    files = profiles.files_with_profiles(config, environment)
    named = _Layer(*profiles.profile(profile, files)) if profile else _Layer()
    if profile and impl and named.impl != impl:
        raise Misuse(f"profile {profile!r} is a catalog of kind {named.impl!r}, but --impl is {impl!r}")
    around = _Layer(environment.get("LANCE_NS_IMPL") or None, dict(_environment_properties(environment)))
    if not profile and (usual := environment.get("LANCE_NS_PROFILE")):
        named = _Layer(*profiles.profile(usual, files))
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


_SIBLINGS = 200  # Maximum number of tables, and of namespaces, that are compared with an id.


def suggest_id(catalog: Namespace, id: Id) -> str | None:
    """Returns what an id that does not exist probably means; None if that is unknown.

    Cost: one listing of the tables beside the id, and one of the namespaces; for each level that does not exist, again.
    """
    # A suggestion must not hide the error itself.
    with suppress(LanceNamespaceError):
        return _suggest(catalog, id)
    return None


def _suggest(catalog: Namespace, id: Id, rest: tuple[str, ...] = ()) -> str | None:
    """Returns the suggestion; `rest` are the names below a namespace that does not exist."""
    if not id:
        return None
    parent = NamespaceId(id[:-1])
    try:
        namespaces = [it.name for it in islice(catalog.iter_namespaces(parent), _SIBLINGS)]
    except NamespaceNotFoundError:
        return _suggest(catalog, parent, (id[-1], *rest))
    if isinstance(id, TableId):
        if not rest and id.name in namespaces:
            return f"it is a namespace: list its tables with lance-ns ls {shlex.quote(str(id))}, or use '{id}.**'"
        names = list(catalog.list_tables({"id": list(parent), "limit": _SIBLINGS}).tables)
    else:
        names = namespaces
    near = nearest(id[-1], names)
    if near is None or near == id[-1]:
        return None
    return f"did you mean {TableId((*parent, near, *rest)) if rest else type(id)((*parent, near))}?"
