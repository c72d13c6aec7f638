"""Options of maintenance: what is compacted, indexed and cleaned up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from lance_namespace.errors import InvalidInputError

from lance_ns_async.fleet.conditions import parse_age
from lance_ns_async.operations.maintaining import TARGET_ROWS, CleanupLimits, Examination

_EXCLUDED = frozenset({"target_rows_per_fragment", "excluded_fragment_ids"})
"""Options of pylance's compactions that another field has, or that apply to one table only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """What is compacted: small fragments are merged, and deleted rows are removed.

    Raises:
        InvalidInputError: A number is below 1, or pylance has no such option.
    """

    target_rows: int | None = None
    """Rows of a compacted fragment; None for the setting of the table, or else Lance's default of 1,048,576."""
    min_fragments: int = 2
    """Minimum number of fragments to merge in a table; tables with deleted rows to remove are compacted in any case."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of pylance's `CompactionOptions`, such as `max_source_bytes`."""

    def __post_init__(self) -> None:
        for name, value in (("target_rows", self.target_rows), ("min_fragments", self.min_fragments)):
            if value is not None and value < 1:
                raise InvalidInputError(f"{name} {value}: must be at least 1")
        if self.options:
            from lance.optimize import CompactionOptions

            names = CompactionOptions.__annotations__.keys() - _EXCLUDED
            if unknown := [name for name in self.options if name not in names]:
                raise InvalidInputError(f"options {unknown[0]!r}: use one of {', '.join(sorted(names))}")

    def for_pylance(self) -> dict[str, Any]:
        """Returns the options as pylance has them."""
        return {**self.options, **({"target_rows_per_fragment": self.target_rows} if self.target_rows else {})}

    @property
    def small_below(self) -> int:
        """The number of rows below which a fragment counts as small."""
        return self.target_rows or TARGET_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """How indexes that lack rows are refreshed."""

    retrain: bool = False
    """Whether indexes that lack rows are trained again on all rows, which may be expensive."""
    num_indices_to_merge: int | None = None
    """Number of parts of an index to merge; None for Lance's default."""

    def for_pylance(self) -> dict[str, Any]:
        """Returns the options as pylance has them."""
        merge = {} if self.num_indices_to_merge is None else {"num_indices_to_merge": self.num_indices_to_merge}
        return {**merge, **({"retrain": True} if self.retrain else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupOptions:
    """Which versions are removed: those beyond both limits. Tagged versions and the newest one always stay.

    Raises:
        InvalidInputError: The age or the number is invalid.
    """

    older_than: timedelta | str | None = "14d"
    """Minimum age of a version, such as "14d" or "12h"; None for any age."""
    retain_versions: int | None = None
    """Number of newest versions that stay; None for no such limit."""
    delete_unverified: bool = False
    """Whether files of no version, such as those of a killed run, are deleted at any age; otherwise only after seven
    days. Only safe while nobody else writes to the tables."""

    def __post_init__(self) -> None:
        self.limits()

    def limits(self) -> CleanupLimits:
        """Returns the limits for one table."""
        older_than = self.older_than
        if isinstance(older_than, str):
            older_than = parse_age("older_than", older_than)
        if older_than is not None and older_than < timedelta(0):
            raise InvalidInputError(f"older_than {older_than}: must not be negative")
        if self.retain_versions is not None and self.retain_versions < 1:
            raise InvalidInputError(f"retain_versions {self.retain_versions}: must be at least 1")
        seconds = None if older_than is None else older_than.total_seconds()
        return CleanupLimits(seconds, self.retain_versions, self.delete_unverified)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """The steps of maintenance; None for a step that is not taken."""

    compact: CompactOptions | None
    index: IndexOptions | None
    cleanup: CleanupOptions | None

    @classmethod
    def of(
        cls,
        compact: bool | CompactOptions = True,
        index: bool | IndexOptions = True,
        cleanup: bool | CleanupOptions = True,
    ) -> MaintenanceOptions:
        """Returns the options of the arguments of `maintain`; True means the defaults of a step.

        Raises:
            InvalidInputError: No step is taken.
        """
        if compact is False and index is False and cleanup is False:
            raise InvalidInputError("compact, index, cleanup: all are False, so that nothing would be done")
        return cls(
            compact=(CompactOptions() if compact is True else compact) or None,
            index=(IndexOptions() if index is True else index) or None,
            cleanup=(CleanupOptions() if cleanup is True else cleanup) or None,
        )

    def examination(self) -> Examination:
        """Returns what there is to find out about each table."""
        compact = self.compact or CompactOptions()
        return Examination(
            compact.small_below,
            self.index is not None,
            None if self.cleanup is None else self.cleanup.limits(),
            None if self.compact is None else compact.for_pylance(),
            compact.min_fragments,
        )
