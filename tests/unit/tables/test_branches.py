"""Branches and versions as arguments of Python callers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    TableBranchNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)

from lance_ns_async import AsyncNamespace


async def test_a_branch_is_opened_and_written_by_its_name(tmp_path: Path) -> None:
    rows, more = pa.table({"id": [1]}), pa.table({"id": [2]})
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.write(["t"], rows)
        await ns.create_table_branch({"id": ["t"], "name": "dev"})
        written = await ns.write(["t"], more, mode="append", branch="dev")
        assert written.to_table() == pa.concat_tables([rows, more])
        assert (await ns.open(["t"], branch="dev")).version == written.version == 2
        assert (await ns.open(["t"], branch="dev", version=1)).to_table() == (await ns.open(["t"])).to_table() == rows
        assert (await ns.write(["t"], more, mode="overwrite", branch="dev")).to_table() == more
        with pytest.raises(TableBranchNotFoundError, match="no branch 'prod'; there are main, dev"):
            await ns.open(["t"], branch="prod")
        with pytest.raises(InvalidInputError, match=r"^branch 'dev': mode create creates a table"):
            await ns.write(["u"], rows, branch="dev")
        with pytest.raises(InvalidInputError, match=r"^tag 'x': a tag already has a version and a branch"):
            await ns.open(["t"], version="x", branch="dev")


@pytest.mark.parametrize("version", [1.0, "", -1, 2**64])
async def test_what_is_no_version_is_refused(tmp_path: Path, version: Any) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.write(["t"], pa.table({"id": [1]}))
        with pytest.raises((InvalidInputError, TableVersionNotFoundError, TableTagNotFoundError)):
            await ns.open(["t"], version=version)
        assert (await ns.open(["t"], version=cast(Any, np.int64(1)))).version == 1
