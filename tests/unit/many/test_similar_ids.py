"""Tests of hints to ids that are probably meant."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace, DirNamespace


@pytest.mark.parametrize(
    ("id", "hint"),
    [
        ("shop.ordes", ["did you mean shop$orders?"]),
        ("SHOP.orders", ["did you mean shop$orders?"]),
        ("shop", ["shop is a namespace"]),
        ("shop.zzz", []),
        ("zzz.orders", []),
    ],
)
@pytest.mark.parametrize("interactive", [True, False])
async def test_errors_in_notebooks_name_the_probable_table(
    id: str, hint: list[str], interactive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with DirNamespace(root=str(tmp_path)) as ns:
        ns.create_namespace("shop")
        ns.write("shop.orders", pa.table({"id": [1]}))
        with pytest.raises(LanceNamespaceError) as raised:
            ns.describe_table(id)
        async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as same:
            with pytest.raises(LanceNamespaceError) as raised_async:
                await same.open(id)
            assert repr(same.iter_tables()).startswith("<async_generator object AsyncNamespace.iter_tables ")
            assert repr(ns.iter_tables()).startswith("<generator object Namespace.iter_tables ")
    for error in (raised.value, raised_async.value):
        assert getattr(error, "__notes__", []) == (hint if interactive else [])
