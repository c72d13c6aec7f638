"""Cache of results that the server confirms by a tag at each use, so that it need not send them again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CacheUse:
    """The content and the use of a cache at one moment."""

    entries: int
    """Results in the cache."""
    max_entries: int
    """Maximum number of results; the least recently used one is removed first. 0 if there is no cache."""
    hits: int
    """Results from the cache, each confirmed by the server."""
    misses: int
    """Results that the server sent completely."""


class TaggedResults(Generic[T]):
    """The most recently used results by key, each with the tag that the server sent with it.

    A result is used only if the server confirms its tag in response to that request, so it is never stale. Not for
    results with credentials: a tag identifies a version of an object, not the access to it.
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[str, tuple[str, T]] = OrderedDict()
        self._hits = self._misses = 0

    def find(self, key: str) -> tuple[str, T] | None:
        """Returns the tag and the result of a key; None if there is none."""
        return self._entries.get(key)

    def confirm(self, key: str, entry: tuple[str, T]) -> T:
        """Returns the result of an entry that the server has confirmed."""
        self._hits += 1
        if self._entries.get(key) is entry:
            self._entries.move_to_end(key)
        return entry[1]

    def store(self, key: str, tag: str | None, result: T) -> None:
        """Replaces the result of a key; without a tag, which the server may omit, only removes it."""
        self._misses += 1
        self.forget(key)
        if tag:
            self._entries[key] = (tag, result)
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    def forget(self, key: str) -> None:
        """Removes the result of a key, if there is one."""
        self._entries.pop(key, None)

    def use(self) -> CacheUse:
        """Returns the content and the use. Any thread may call it."""
        return CacheUse(len(self._entries), self._max_entries, self._hits, self._misses)
