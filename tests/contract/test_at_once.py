"""One name declared concurrently by several namespaces of one process: one wins, and the name stays usable."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from pathlib import Path
from typing import Any

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from tests.contract.conftest import Children, Parent
from tests.contract.site import Site

ROUNDS = 2
TASKS = 4
LOST = (err.ConcurrentModificationError, err.InternalError)
"""Further errors of calls that lost a race: Iceberg's server reports a constraint of its database."""
Run = Callable[["Site", "Make"], Coroutine[Any, Any, list[type[err.LanceNamespaceError] | None]]]
Make = Callable[[AsyncNamespace], Coroutine[Any, Any, Any]]


async def error(make: Coroutine[Any, Any, Any]) -> err.LanceNamespaceError | None:
    try:
        await make
    except err.LanceNamespaceError as e:
        return e
    return None


async def outcome(make: Coroutine[Any, Any, Any]) -> type[err.LanceNamespaceError] | None:
    e = await error(make)
    return type(e) if e else None


async def in_one_loop(site: Site, make: Make) -> list[type[err.LanceNamespaceError] | None]:
    one = AsyncNamespace.connect(site.impl, site.properties)
    two = AsyncNamespace.connect(site.impl, {**site.properties, "max_retries": "4"})
    async with one, two:
        return await asyncio.gather(*(outcome(make(ns)) for ns in (one, two, one, two)))


async def in_two_threads(site: Site, make: Make) -> list[type[err.LanceNamespaceError] | None]:
    async def one() -> type[err.LanceNamespaceError] | None:
        async with AsyncNamespace.connect(site.impl, site.properties) as ns:
            return await outcome(make(ns))

    with ThreadPoolExecutor(2) as pool:
        return [await asyncio.wrap_future(future) for future in [pool.submit(asyncio.run, one()) for _ in range(2)]]


@pytest.mark.parametrize("run", [in_one_loop, in_two_threads])
async def test_of_declares_of_several_one_wins(ns: AsyncNamespace, site: Site, parent: Parent, run: Run) -> None:
    for number in range(ROUNDS):
        id = parent.table(f"t{number}")
        outcomes = Counter(await run(site, methodcaller("declare_table", {"id": id})))
        assert outcomes[None] == 1, outcomes
        assert set(outcomes) <= {None, err.TableAlreadyExistsError, *LOST}
        assert await ns.exists(id)


@pytest.mark.parametrize("run", [in_one_loop, in_two_threads])
async def test_of_namespace_creations_one_wins(ns: AsyncNamespace, site: Site, children: Children, run: Run) -> None:
    for number in range(ROUNDS):
        id = children.id(f"n{number}")
        outcomes = Counter(await run(site, methodcaller("create_namespace", {"id": list(id)})))
        assert outcomes[None] == 1, outcomes
        assert set(outcomes) <= {None, err.NamespaceAlreadyExistsError, *LOST}
        assert await ns.exists(id)


async def test_exist_ok_succeeds_while_others_drop_the_namespace(ns: AsyncNamespace, children: Children) -> None:
    id = list(children.id("n"))
    request = {"id": id, "mode": "ExistOk"}

    async def create_and_drop() -> None:
        for _ in range(ROUNDS):
            errors.append(await error(ns.create_namespace(request)))
            await error(ns.drop_namespace({"id": id, "mode": "Skip"}))

    errors: list[err.LanceNamespaceError | None] = []
    await asyncio.gather(*(create_and_drop() for _ in range(TASKS)))
    assert not [e for e in errors if e and not isinstance(e, LOST)]


async def test_replacing_while_others_remove_it(ns: AsyncNamespace, site: Site, parent: Parent, tmp_path: Path) -> None:
    if not site.frees_locations:
        pytest.skip("each location can be registered once")
    id = parent.table("t")
    root = site.properties.get("root", "")
    base = parent.id.name if site.can.relative_locations else root if root.startswith("s3://") else tmp_path.as_uri()
    locations = [f"{base}/t{number}" for number in range(TASKS)]

    async def register_and_remove(location: str) -> None:
        for _ in range(ROUNDS):
            errors.append(await error(ns.register_table({"id": id, "location": location, "mode": "Overwrite"})))
            await error(ns.deregister_table({"id": id}))

    errors: list[err.LanceNamespaceError | None] = []
    await asyncio.gather(*map(register_and_remove, locations))
    # If a replacement needs a note, another client's note may prevent it; Nessie moves no table.
    allowed = (*LOST, err.InvalidTableStateError, err.UnsupportedOperationError)
    assert not [e for e in errors if e and not isinstance(e, allowed)]
