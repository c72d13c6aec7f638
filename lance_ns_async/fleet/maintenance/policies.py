"""Policies of maintenance: which options apply to which tables, by patterns, as in a TOML file.

[tables."tmp.**"]
maintain = false

[tables."prod.**"]
older_than = "7d"
priority = 1
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import suggest
from lance_ns_async.fleet.maintenance.plan import CleanupOptions, CompactOptions, IndexOptions, MaintenanceOptions
from lance_ns_async.many.patterns import Pattern, matcher
from lance_ns_async.model import TableId

Policies: TypeAlias = str | Path | Mapping[str, Mapping[str, Any]]
"""The path of a TOML file with the table `tables`, or the content of that table: options by patterns or ids."""

_STEPS: Mapping[str, Callable[..., Any]] = {"compact": CompactOptions, "index": IndexOptions, "cleanup": CleanupOptions}

_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("maintain", "compact", "index", "cleanup", "retrain", "delete_unverified"), bool),
    **dict.fromkeys(("priority", "target_rows", "max_small_fragments", "num_indices_to_merge", "retain_versions"), int),
    "older_than": str,
}
"""The types of the options that a policy may have."""

_WORDS = {bool: "true or false", int: "a whole number", str: 'a text, such as "7d"'}


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """How one table is maintained."""

    options: MaintenanceOptions | None
    """None if the table is not maintained."""
    priority: int = 0
    """Tables with a higher one are first."""
    pattern: str = ""
    """The pattern of the policy; empty if none applies."""


def read_policies(policies: Policies | None, options: MaintenanceOptions) -> Callable[[TableId], TablePolicy]:
    """Returns a function that returns the policy of a table: the first one whose pattern matches.

    Args:
        policies: The policies; None for none.
        options: The options that apply where a policy has none.

    Raises:
        InvalidInputError: The file, a pattern or an option is invalid.
    """
    entries = [_parse(pattern, own, options) for pattern, own in _entries(policies).items()]
    default = TablePolicy(options)

    def policy_of(id: TableId) -> TablePolicy:
        return next((policy for matches, policy in entries if matches(id)), default)

    return policy_of


def _entries(policies: Policies | None) -> Mapping[str, Mapping[str, Any]]:
    if policies is None or isinstance(policies, Mapping):
        return policies or {}
    try:
        content = tomllib.loads(Path(policies).read_text())
    except OSError as e:
        raise InvalidInputError(f"policies {str(policies)!r}: {e.strerror or e}") from e
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise InvalidInputError(f"policies {str(policies)!r}: not a TOML file ({e})") from e
    if unknown := content.keys() - {"tables"}:
        raise InvalidInputError(f'policies {str(policies)!r}: unknown {min(unknown)!r}; write [tables."prod.**"]')
    entries: Mapping[str, Mapping[str, Any]] = content.get("tables", {})
    return entries


def _parse(
    text: str, own: Mapping[str, Any], options: MaintenanceOptions
) -> tuple[Callable[[TableId], bool], TablePolicy]:
    where = f"policies: tables.{text!r}"
    if not isinstance(own, Mapping):
        raise InvalidInputError(f'{where}: must be a table of options; write [tables."prod.**"]')
    for name, value in own.items():
        if (kind := _TYPES.get(name)) is None:
            hint = "use retain_versions" if name == "retain" else suggest(name, _TYPES)
            raise InvalidInputError(f"{where}: unknown {name!r}; {hint}")
        if type(value) is not kind:
            raise InvalidInputError(f"{where}: {name} {value!r}: must be {_WORDS[kind]}")
    try:
        steps = {step: _step(step, own, getattr(options, step)) for step in _STEPS}
        matches = matcher([Pattern.parse(text)])
    except InvalidInputError as e:
        raise InvalidInputError(f"{where}: {e}") from e
    is_maintained = own.get("maintain", True) and any(steps.values())
    policy = TablePolicy(MaintenanceOptions(**steps) if is_maintained else None, own.get("priority", 0), text)
    return matches, policy


def _step(step: str, own: Mapping[str, Any], default: Any) -> Any:
    """Returns the options of a step; None if it is not taken."""
    names: Sequence[str] = [it.name for it in fields(_STEPS[step]) if it.name in own]  # type: ignore[arg-type]
    if own.get(step) is False:
        if names:
            raise InvalidInputError(f"{names[0]}: has no effect, because {step} is false; remove one of them")
        return None
    if not names and not own.get(step):
        return default
    return replace(default or _STEPS[step](), **{name: own[name] for name in names})
