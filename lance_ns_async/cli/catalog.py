"""Choice of the catalog: by the command line, else by the environment, else by a profile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lance_ns_async.cli import exposure, profiles
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.options import parse_pair, read_text

if TYPE_CHECKING:
    from lance_ns_async import AsyncNamespace, Namespace
    from lance_ns_async.model import Id

_PANEL = "Catalog"
_PROPERTY = "LANCE_NS_PROPERTY_"

_Impl = Annotated[
    str | None,
    typer.Option(
        "--impl",
        "-i",
        metavar="NAME",
        help="Kind of the catalog: dir, glue, hive3, iceberg, lakekeeper, polaris, rest or unity.",
        rich_help_panel=_PANEL,
    ),
]
_Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-p",
        metavar="KEY=VALUE",
        help="Property of the catalog; KEY=@FILE reads the value from a file. Other users of this machine can see "
        "command lines: pass secrets by file or environment.",
        rich_help_panel=_PANEL,
    ),
]
_Profile = Annotated[
    str | None,
    typer.Option(
        "--profile", "-P", metavar="NAME", help="Name of a profile, a catalog in a TOML file.", rich_help_panel=_PANEL
    ),
]
_Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML file with the profiles.", rich_help_panel=_PANEL),
]


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
                from lance_ns_async.cli.suggesting import suggest_id

                for suggestion in filter(None, (suggest_id(namespace, id) for id in about)):
                    error.add_note(suggestion)
                raise

    def check_root(self) -> None:
        """Raises `Misuse` if the catalog is a local directory that does not exist, which is empty for other callers."""
        from lance_ns_async.model import local_path

        roots = [value for key, value in self.properties.items() if self.impl == "dir" and _fold("dir", key) == "root"]
        for root in roots:
            path = local_path(os.path.expanduser(root))
            if path is not None and not os.path.isdir(path):
                raise Misuse(f"-p root={root}: there is no such directory")

    def open_async(self) -> AsyncNamespace:
        """Opens the async namespace. Cost: no call."""
        from lance_ns_async import AsyncNamespace

        return AsyncNamespace.connect(self.impl, self.properties)


@dataclass(frozen=True, slots=True)
class CatalogOptions:
    """The options that choose the catalog, before or after the name of the command."""

    impl: str | None = None
    properties: Sequence[str] = field(default=(), repr=False)
    profile: str | None = None
    config: Path | None = None

    @classmethod
    def parse(
        cls,
        impl: _Impl = None,
        properties: _Properties = None,
        profile: _Profile = None,
        config: _Config = None,
    ) -> CatalogOptions:
        """Returns the options of a command line; the parameters declare them."""
        return cls(impl, properties or (), profile, config)

    def after(self, before: CatalogOptions) -> CatalogOptions:
        """Returns these options together with those before the command, which they override."""
        return CatalogOptions(
            self.impl or before.impl,
            (*before.properties, *self.properties),
            self.profile or before.profile,
            self.config or before.config,
        )

    def require(self) -> Catalog:
        """Returns the catalog; raises `Misuse` if neither the options nor the environment name one."""
        catalog = choose(self.impl, self.properties, self.profile, self.config)
        if catalog is None:
            raise Misuse(
                "no catalog: use --impl and -p KEY=VALUE, or --profile, or set LANCE_NS_IMPL or LANCE_NS_PROFILE"
            )
        return catalog


def with_catalog(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with the options of the catalog; it gets them as its first argument."""
    _, *own = signature(command, eval_str=True).parameters.values()
    declared = list(signature(CatalogOptions.parse, eval_str=True).parameters.values())
    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    takes_context = any(it.name == context.name for it in own)

    @wraps(command)
    def run(*, context: typer.Context, **arguments: Any) -> None:
        options = CatalogOptions.parse(**{it.name: arguments.pop(it.name) for it in declared})
        if takes_context:
            arguments["context"] = context
        command(options.after(context.obj or CatalogOptions()), **arguments)

    parameters = [*([] if takes_context else [context]), *own, *declared]
    run.__annotations__ = {it.name: it.annotation for it in parameters}
    run.__signature__ = Signature([it.replace(kind=Parameter.KEYWORD_ONLY) for it in parameters])  # type: ignore[attr-defined]
    return run


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
) -> Catalog | None:
    """Returns the catalog from the options, the environment and the profile; None if none of them names one.

    Raises:
        Misuse: A property or the profile is invalid, or the profile and `impl` name different kinds.
    """
    options = _Layer(impl, dict(map(_assignment, properties or ())))
    files = [config] if config else profiles.usual_files(environment)
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
    return Catalog(kind, _merge(kind, layers))


def _assignment(text: str) -> tuple[str, str]:
    key, value = parse_pair("-p", text)
    if not value.startswith("@"):
        return key, value
    file = Path(value[1:]).expanduser()
    content = read_text(file, f"-p {key}=@{value[1:]}").removesuffix("\n")
    if exposure.secrets_among([key]):
        exposure.warn_if_exposed(file, key)
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
    return key.removeprefix(f"{impl}.").replace("-", "_").replace(".", "_").lower()
