"""Options of the fake Glue server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GlueQuirks:
    """Differences of a server from AWS Glue."""

    stock: bool = False
    """moto in its original form: no catalogs, no pages, `CatalogId` ignored, prefix patterns, case-sensitive names."""
    ignore_expression: bool = False
    """`Expression` is ignored: all tables are listed."""
    fnmatch_expression: bool = False
    """`Expression` is a shell pattern, which has no alternation."""
    short_pages: bool = False
    """Pages are shorter than requested, every other one is empty, and so is the last one."""
    no_catalog_api: bool = False
    """Operations on catalogs are unknown, as in moto: 500 and HTML."""
    no_catalog_ids: bool = False
    """Tables are described without the id of their catalog."""
    session_seconds: int | None = None
    """Lifetime of a role's credentials in seconds, whatever is requested; 0 or less for expired ones."""
