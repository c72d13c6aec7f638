"""Shows the docstrings of `AsyncNamespace` at the methods of `Namespace`.

The sync methods have only their first lines in the source, and the rest at run time.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from griffe import Extension, Module


class SyncMethods(Extension):
    """Copies the docstrings, as `documented_by` does."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Copies the docstrings once the package is loaded."""
        source, target = pkg["client.AsyncNamespace"], pkg["sync.Namespace"]
        for name in target.members.keys() & source.members.keys():
            ours, theirs = (it.members[name].docstring for it in (target, source))
            if ours and theirs and theirs.value.startswith(ours.value):
                text = theirs.value.replace("the event loop", "the background thread")
                target.members[name].docstring = copied = copy(theirs)
                copied.value, copied.parent = text, target.members[name]
