"""The commands below `token`: who may use a gateway, and for what."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.common import CommonOptions, OutputFormat, with_common_options
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.groups import Command, Group
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.private_files import edit

token: typer.Typer = typer.Typer(
    cls=Group,
    help="Tokens for the clients of lance-ns serve: add, list, rotate and remove them.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

_Name = Annotated[str, typer.Argument(help="Name of the client.", show_default=False)]
_File = Annotated[
    Path, typer.Option("--tokens", metavar="FILE", help="File of the tokens' hashes, as for serve.", show_default=False)
]


@token.command(cls=Command)
@with_common_options
def add(
    on: CommonOptions,
    name: _Name,
    tokens: _File,
    rights: Annotated[
        Literal["read", "write", "admin"],
        typer.Option(
            "--rights",
            help="read; write: also create, add, overwrite and delete rows; admin: also drop, deregister and rename.",
        ),
    ] = "read",
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PATTERN",
            help="Only these tables, e.g. 'sales.**', or with serve --mount 'MOUNT.sales.**'. May be repeated.",
        ),
    ] = None,
    credentials: Annotated[
        bool,
        typer.Option(
            "--credentials", help="Also hand out the catalog's storage credentials, which may allow more than --rights."
        ),
    ] = False,
) -> None:
    """Add a client and print its token, which is shown only once; the file has its hash.

    A running server notices the change within a second. To change the rights, edit_file the file.
    """
    from lance_ns_async.gateway.access import HASHES, create_token, hash_of
    from lance_ns_async.gateway.rights import Principal

    principal = Principal.parse(name, rights, only or (), credentials=credentials)
    secret = create_token()
    with edit(tokens, _check) as content:
        if name in content:
            raise Misuse(f"{name} exists in {tokens}; use token rotate for a new token, or remove it first")
        content[name] = {**principal.to_dict(), HASHES: [hash_of(secret)]}
    print(secret)
    errors.hint(
        f"added {name} to {tokens}; in a file, the token is used as: lance-ns -i rest -p uri=URL -p auth_token=@FILE"
    )


@token.command("list", cls=Command)
@with_common_options
def list_tokens(on: CommonOptions, tokens: _File, format: OutputFormat = Format.TABLE) -> None:
    """List the clients and their rights."""
    from lance_ns_async.gateway.access import HASHES

    rows = [
        {
            "name": name,
            "rights": fields["rights"],
            "only": ", ".join(fields.get("only", ())),
            "credentials": fields.get("credentials", False),
            "tokens": len(fields.get(HASHES, ())),
        }
        for name, fields in _check(tokens).items()
    ]
    output.write(rows, ("name", "rights", "only", "credentials", "tokens"), format, sys.stdout)


@token.command(cls=Command)
@with_common_options
def rotate(
    on: CommonOptions,
    name: _Name,
    tokens: _File,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Refuse all earlier tokens of the client from now on.")
    ] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="Make no token; refuse all but the newest one from now on.")
    ] = False,
) -> None:
    """Print a new token for a client; the last one stays valid until the next rotation.

    To replace a token without an outage: rotate, give the new token to the client, and rotate --finish.
    """
    from lance_ns_async.gateway.access import HASHES, create_token, hash_of
    from lance_ns_async.rendering import counted

    if at_once and finish:
        raise Misuse("--at-once and --finish: use one of them")
    secret = None if finish else create_token()
    with edit(tokens, _check) as content:
        fields = _find(content, name, tokens)
        before = list(fields.get(HASHES, ()))
        new = [] if secret is None else [hash_of(secret)]
        fields[HASHES] = [*new, *([] if at_once else before[:1])]
    refused = counted(len(before) - len(fields[HASHES]) + len(new), "tokens")
    if secret is not None:
        print(secret)
    state = "one token" if secret is None else "a new token"
    errors.hint(f"{name} has {state}; {refused} from before will be refused within a second")


@token.command(cls=Command)
@with_common_options
def remove(on: CommonOptions, name: _Name, tokens: _File) -> None:
    """Remove a client; its tokens are refused within a second."""
    with edit(tokens, _check) as content:
        _find(content, name, tokens)
        del content[name]
    errors.tell(f"removed {name} from {tokens}")


def _find(content: Any, name: str, file: Path) -> Any:
    """Returns the fields of a client; raises `Misuse` if there is none with this name."""
    from lance_ns_async.errors import suggest

    if name not in content:
        raise Misuse(f"{name}: not in {file}; {suggest(name, content)}")
    return content[name]


def _check(file: Path) -> dict[str, Any]:
    """Returns the content of a file whose entries are valid."""
    import tomllib

    from lance_ns_async.gateway.access import parse

    try:
        content = file.read_bytes()
    except OSError as error:
        raise Misuse(f"--tokens {file}: {error.strerror}") from error
    parse(content, str(file))
    return tomllib.loads(content.decode())
