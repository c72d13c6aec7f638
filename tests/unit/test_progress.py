"""Progress in a notebook: one bar that is updated, and removed at the end."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lance_ns_async.progress import show_progress

pytestmark = pytest.mark.floors


class Handle:
    """A display of IPython that can be updated."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data["text/html"])


def test_a_notebook_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle()

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert display_id
        handle.update(data, raw=raw)
        return handle

    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel="of a notebook")
    shown: Any = ModuleType("IPython.display")
    shown.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    with show_progress(True, "describe tables") as callback:
        for step in range(1, 1001):
            callback(step, 1000)
    assert handle.shown[0] == "describe tables" and handle.shown[-1] == "" and len(handle.shown) <= 103
    assert handle.shown[-2] == "describe tables <progress value='1000' max='1000'></progress> 1,000 of 1,000"


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = SimpleNamespace
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with show_progress(True, "describe tables") as callback:
        callback(1, 1)
