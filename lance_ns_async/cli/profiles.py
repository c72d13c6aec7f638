"""The commands below `profile`: catalogs with a name."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer import Argument, Option

from lance_ns_async.cli import catalog as catalogs
from lance_ns_async.cli import errors, output, secrets
from lance_ns_async.cli.catalog import Catalog, choose, files_with_profiles, find_profile
from lance_ns_async.cli.doctor import check
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.listing import MASK
from lance_ns_async.cli.options import IMPLS, CommonOptions, OutputFormat, Repeated, Secrets
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.selecting import complete_profile

Name = Annotated[str, Argument(help="Name of the profile.", autocompletion=complete_profile)]
_NAME = re.compile(r"[\w.-]+")


def add(
    on: CommonOptions,
    name: Annotated[str, Argument(help="Name of the profile.")],
    ask: Annotated[
        Repeated,
        Option(metavar="KEY", help="Ask for the value of this property, and keep it in the keyring; may be repeated."),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace a profile with this name.")] = False,
) -> None:
    """Add a profile: lance-ns profile add prod -i iceberg -p endpoint=https://catalog.example.com.

    -p KEY_command='COMMAND' keeps a secret out of the file: it is what the command prints.
    """
    if not _NAME.fullmatch(name):
        raise Misuse(f"profile {name!r}: use letters, digits, '-', '_' and '.'")
    if on.impl is None:
        raise Misuse("--impl: missing; it is the kind of the catalog, e.g. -i iceberg")
    file = catalogs.file_for_new_profile(on.config)

    def check_new() -> None:
        if not overwrite and file.is_file() and name in dict(catalogs.list_profiles([file])):
            raise Misuse(f"profile {name!r} exists in {file}; use --overwrite to replace it")

    check_new()
    catalog = choose(on.impl, on.properties, None, None, {}, resolve=False)
    assert catalog is not None
    properties = dict(catalog.with_absolute_root().properties)
    for key in ask or ():
        secrets.check(key)
    asked = {key: _ask(key) for key in ask or ()}
    # This validates the properties: a namespace makes no call before it is used.
    with Catalog(on.impl, {**secrets.resolve(properties), **asked}).open():
        pass

    import tomlkit

    with catalogs.edit_profiles(file) as content:
        # Another command may have added it meanwhile, and its secrets.
        check_new()
        for key, value in asked.items():
            user = f"{name}.{key}"
            secrets.store(user, value)
            properties[f"{key}_keyring"] = user
        content.setdefault("profiles", tomlkit.table(is_super_table=True))[name] = {"impl": on.impl, **properties}
        is_default = content.setdefault("default", name) == name
    errors.tell(f"added profile {name} to {file}" + ("; it is the default" if is_default else ""))
    if plain := secrets.secrets_among(properties):
        key = plain[0]
        errors.hint(f"{', '.join(plain)}: in the file, which only you can read; --ask {key} keeps it in the keyring")


def list_properties(
    on: CommonOptions,
    kind: Annotated[str, Argument(help="Kind of the catalog, e.g. iceberg.", autocompletion=lambda: list(IMPLS))],
    format: OutputFormat = Format.TABLE,
) -> None:
    """List the properties of a kind of catalog, with their defaults."""
    output.write(_property_rows(kind), ("property", "default", "meaning"), format)


def list_profiles(on: CommonOptions, format: OutputFormat = Format.TABLE) -> None:
    """List the profiles; * marks the default."""
    files = files_with_profiles(on.config)
    default = catalogs.default_profile(on.config)

    def rows() -> Iterator[dict[str, Any]]:
        for name, file in catalogs.list_profiles(files):
            _, content = find_profile(name, [file])
            mark = "*" if name == default else ""
            yield {"default": mark, "profile": name, "impl": content.get("impl"), "file": str(file)}

    if not output.write(rows(), ("default", "profile", "impl", "file"), format):
        errors.hint("no profiles; add one with lance-ns profile add NAME -i IMPL -p KEY=VALUE")


def show(on: CommonOptions, name: Name, show_secrets: Secrets = False, format: OutputFormat = Format.TABLE) -> None:
    """Show the properties of a profile; runs no commands, and does not read the keyring."""
    impl, properties = catalogs.read_profile(name, files_with_profiles(on.config))
    masked = {} if show_secrets else dict.fromkeys(secrets.secrets_among(properties), MASK)
    output.write_object({"profile": name, "impl": impl, **properties, **masked}, format)


def test(on: CommonOptions, name: Name, format: OutputFormat = Format.TABLE) -> None:
    """Check step by step what works, as lance-ns doctor does."""
    check(CommonOptions(on.impl, on.properties, name, on.config).require(), None, format)


def use(on: CommonOptions, name: Name) -> None:
    """Make a profile the default: that of commands without options for the catalog."""
    with catalogs.edit_profiles(catalogs.file_for_new_profile(on.config)) as content:
        find_profile(name, files_with_profiles(on.config))
        content["default"] = name
    errors.tell(f"the default is profile {name}")


def remove(on: CommonOptions, name: Name) -> None:
    """Remove a profile, and its secrets from the keyring."""
    file, _ = find_profile(name, files_with_profiles(on.config))
    with catalogs.edit_profiles(file) as content:
        _, found = find_profile(name, [file])
        for user in _users(name, found):
            secrets.delete(user)
        del content["profiles"][name]
    if catalogs.default_profile(on.config) == name:
        with catalogs.edit_profiles(catalogs.file_for_new_profile(on.config)) as content:
            if content.get("default") == name:
                del content["default"]
    errors.tell(f"removed profile {name} from {file}")


def _ask(key: str) -> str:
    """Returns the value of a secret, from the terminal or else from a line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(key, hide_input=True, err=True))
    value = sys.stdin.readline().rstrip("\r\n")
    if not value:
        raise Misuse(f"--ask {key}: no value on standard input")
    return value


def _users(name: str, content: Mapping[str, Any]) -> Sequence[str]:
    """Returns the names of the profile's own secrets in the keyring."""
    own = ((secrets.split(key), value) for key, value in content.items())
    return [user for (key, source), user in own if source == "keyring" and user == f"{name}.{key}"]


def _property_rows(impl: str) -> Iterator[Mapping[str, Any]]:
    """Yields a row for each property: those that a catalog requires first, and then its own."""
    from lance_ns_async import registry
    from lance_ns_async.calls.policy import Policy

    settings = registry.load(impl).settings
    meanings = dict(_attribute_docstrings(Policy))
    for cls in reversed(settings.__mro__):
        if hasattr(cls, "model_fields"):
            meanings.update(_attribute_docstrings(cls))
    for name in settings.names(aliases=False):
        field = settings.model_fields[name.removesuffix(".*")]
        default = "required" if field.is_required() else _text(field.default)
        yield {"property": name, "default": default, "meaning": meanings.get(name.removesuffix(".*"), "")}


def _attribute_docstrings(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """Yields the names of attributes with the first paragraphs of the docstrings below them."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    for attribute, following in pairwise(body):
        match attribute, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(inspect.cleandoc(text).split("\n\n")[0].split())


def _text(default: Any) -> str:
    return "" if default in (None, {}, (), "") else str(default)
