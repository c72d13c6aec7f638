"""Options of the fake Glue server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GlueQuirks:
    """How a server differs from AWS Glue."""

    stock: bool = False
    """moto as it comes: no catalogs, no pages, `CatalogId` ignored, prefix patterns, no folding of names."""
    ignore_expression: bool = False
    """`Expression` chooses nothing: every table is listed."""
    fnmatch_expression: bool = False
    """`Expression` is a shell pattern, which knows no alternation."""
    short_pages: bool = False
    """Pages are shorter than asked for, every other one is empty, and the last one is empty as well."""
    no_catalog_api: bool = False
    """Operations on catalogs are answered as moto answers what it does not know: 500 and HTML."""
    no_catalog_ids: bool = False
    """Tables are described without the id of their catalog."""
    session_seconds: int | None = None
    """How long a role's credentials live, whatever is asked for; 0 or less: they have expired when they come."""
