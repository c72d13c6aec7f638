"""The command `watch`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from lance_ns_async.cli import private_files
from lance_ns_async.cli.common import CommonOptions, What, exit_after, with_common_options
from lance_ns_async.cli.errors import Misuse, hint


@with_common_options
def watch(
    on: CommonOptions,
    what: What,
    since: Annotated[
        Path | None,
        typer.Option("--state", metavar="FILE", help="Go on where the last run with this file ended, and keep it."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what has changed since --state, and end.")] = False,
    existing: Annotated[
        bool, typer.Option("--existing", help="At the first run, show the tables that exist, too.")
    ] = False,
    no_versions: Annotated[bool, typer.Option("--no-versions", help="Leave out new versions.")] = False,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="Time between two looks.")] = 10.0,
    examine_every: Annotated[
        float, typer.Option("--examine-every", metavar="SECONDS", help="Time in which every table is examined.")
    ] = 60.0,
    json_lines: Annotated[bool, typer.Option("--json", help="A line of JSON for each change.")] = False,
) -> None:
    """Show the tables that are created, dropped, renamed or replaced, and new versions, as it happens."""
    if once and since is None and not existing:
        raise Misuse("--once: pass --state FILE, or --existing; otherwise there is nothing to compare with")
    unreadable = False
    # A second run with the same file would show the same changes, and take the file back to an earlier look.
    with nullcontext() if since is None else private_files.lock(since, 0.0), on.require().open() as catalog:
        token = _read(since)
        if since is not None and token is None and not existing:
            token = catalog.watch_token(what, versions=not no_versions)
            private_files.write(since, token)
            hint(f"{since} is new: it begins now")
        if not once:
            hint(f"watching {' '.join(what)}; Ctrl-C ends it")
        for change in catalog.watch(
            what,
            since=token,
            existing=existing,
            versions=not no_versions,
            every=None if once else every,
            examine_every=examine_every,
        ):
            print(json.dumps(change.to_dict(), ensure_ascii=False) if json_lines else change, flush=True)
            unreadable = unreadable or change.error is not None
            if since is not None and change.is_last:
                # Only now that the reader of the lines has them.
                private_files.write(since, change.token)
    exit_after(once and unreadable)


def _read(file: Path | None) -> str | None:
    try:
        return None if file is None else file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        raise Misuse(f"{file}: {getattr(e, 'strerror', None) or e}") from e
