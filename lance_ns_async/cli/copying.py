"""Input and execution of the command `copy`: the second catalog, and the rules for ids."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lance_ns_async.cli.catalog import Catalog, choose
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.progress import progress

if TYPE_CHECKING:
    from lance_ns_async.fleet import Report

_OWN, _TARGET = "LANCE_NS_", "LANCE_NS_TO_"
_FILES = "LANCE_NS_CONFIG"


def choose_target(
    impl: str | None,
    properties: Sequence[str] | None,
    profile: str | None,
    config: Path | None,
    environment: Mapping[str, str] = os.environ,
) -> Catalog:
    """Returns the catalog to copy to, from options and variables like those of the source with `TO` in their names.

    Raises:
        Misuse: No catalog is named, or a property or the profile is invalid.
    """
    others = {key: value for key, value in environment.items() if not key.startswith(_OWN) or key == _FILES}
    own = {f"{_OWN}{key.removeprefix(_TARGET)}": value for key, value in environment.items() if key.startswith(_TARGET)}
    catalog = choose(impl, properties, profile, config, {**others, **own})
    if catalog is None:
        raise Misuse(
            "no catalog to copy to: use --to-impl and --to-property KEY=VALUE, or --to-profile, or set "
            "LANCE_NS_TO_IMPL or LANCE_NS_TO_PROFILE"
        )
    return catalog


def parse_rules(texts: Sequence[str]) -> Mapping[str, str] | None:
    """Returns the rules for ids in the options `--to`: namespaces, or pairs `SOURCE=TARGET`; None without options.

    Raises:
        Misuse: Two rules have the same source.
    """
    rules: dict[str, str] = {}
    for text in texts:
        source, _, target = text.rpartition("=")
        if source in rules:
            raise Misuse(f"--to {text}: there is a rule for {source or 'all tables'} already")
        rules[source] = target
    return rules or None


def copy(
    source: Catalog,
    target: Catalog,
    what: Sequence[str],
    *,
    to: Mapping[str, str] | None,
    rename: Literal["lower"] | None,
    mode: Literal["create", "sync"],
    delete: bool,
    take_over: bool,
    data: bool,
    partial: bool,
    dry_run: bool,
    journal: Path | None,
) -> Report:
    """Runs the copy with a progress bar, and returns its report."""
    from lance_ns_async.fleet import sync

    with source.open() as first, target.open() as second, progress("copying tables") as bar:
        return sync.copy(
            first,
            second,
            what,
            to=to,
            rename=rename,
            mode=mode,
            delete=delete,
            take_over=take_over,
            data=data,
            partial=partial,
            dry_run=dry_run,
            journal=journal,
            progress=bar,
        )
