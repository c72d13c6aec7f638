"""Shows the docstrings of `AsyncNamespace` at the methods of `Namespace`, which has them only at run time."""

from __future__ import annotations

from copy import copy
from typing import Any

from griffe import Extension, Module


class SyncMethods(Extension):
    """Copies the docstrings, as `documented_by` does."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Copies the docstrings once the package is loaded."""
        source, target = pkg["client.AsyncNamespace"], pkg["sync.Namespace"]
        for name, member in target.members.items():
            theirs = source.members[name].docstring if name in source.members else None
            if (
                member.docstring
                and theirs
                and theirs.value.startswith(member.docstring.value)
            ):
                member.docstring = copy(theirs)
                member.docstring.value = theirs.value.replace(
                    "the event loop", "the background thread"
                )
                member.docstring.parent = member
