"""Objects that the threads of one process share, and their reset in a forked process."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakSet, WeakValueDictionary

T = TypeVar("T")


class Shared(ABC):
    """An object with locks and with calls under way, which belong to the process that created them."""

    def __init__(self) -> None:
        self.reset()
        _all.add(self)

    @abstractmethod
    def reset(self) -> None:
        """Creates the locks and forgets the calls under way; also called in a forked process."""


class SharedByKey(Shared, Generic[T]):
    """Objects by key: each is the same object in the whole process, as long as it is in use."""

    def __init__(self) -> None:
        self._objects: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        super().__init__()

    def reset(self) -> None:
        self._lock = Lock()

    def keys(self) -> list[Hashable]:
        """Returns the keys in use."""
        return list(self._objects)

    def find_or_create(self, key: Hashable, create: Callable[[], T]) -> T:
        """Returns the object of a key."""
        with self._lock:
            if (value := self._objects.get(key)) is None:
                value = self._objects[key] = create()
            return value


def _reset_after_fork() -> None:
    for shared in list(_all):
        shared.reset()


_all: WeakSet[Shared] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
