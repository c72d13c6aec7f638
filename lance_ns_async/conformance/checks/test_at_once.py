"""Concurrent calls of two clients: one wins, and the others are told."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from threading import Barrier

import lance_namespace as spec
import lance_namespace.errors as err
from lance_namespace import LanceNamespace

from lance_ns_async.conformance.home import UNSUPPORTED, Home, check_location, describe_error, expect

ROUNDS = 5
CALLERS = 4


def test_of_concurrent_declares_one_wins(ns: LanceNamespace, other: LanceNamespace, home: Home) -> None:
    for number in range(ROUNDS):
        id = home.table(f"t{number}")
        _check_winner(
            methodcaller("declare_table", spec.DeclareTableRequest(id=id)), ns, other, err.TableAlreadyExistsError
        )
        ns.describe_table(spec.DescribeTableRequest(id=id))


def test_of_concurrent_creations_of_a_namespace_one_wins(ns: LanceNamespace, other: LanceNamespace, home: Home) -> None:
    for number in range(ROUNDS):
        request = spec.CreateNamespaceRequest(id=home.beside(f"n{number}"))
        _check_winner(methodcaller("create_namespace", request), ns, other, err.NamespaceAlreadyExistsError)
        ns.namespace_exists(spec.NamespaceExistsRequest(id=request.id))


def test_concurrent_creations_with_exist_ok_all_succeed(ns: LanceNamespace, other: LanceNamespace, home: Home) -> None:
    for number in range(ROUNDS):
        request = spec.CreateNamespaceRequest(id=home.beside(f"n{number}"), mode="ExistOk")
        outcomes = _outcomes(methodcaller("create_namespace", request), ns, other)
        failed = [e for e in outcomes if e and not isinstance(e, err.ConcurrentModificationError)]
        assert not failed, f"expected {CALLERS} calls that succeed, {len(failed)} failed: {describe_error(failed[0])}"


def test_a_table_is_dropped_once(ns: LanceNamespace, other: LanceNamespace, home: Home) -> None:
    for number in range(ROUNDS):
        id = home.table(f"t{number}")
        ns.declare_table(spec.DeclareTableRequest(id=id))
        _check_winner(methodcaller("drop_table", spec.DropTableRequest(id=id)), ns, other, err.TableNotFoundError)
        with expect(err.TableNotFoundError):
            ns.describe_table(spec.DescribeTableRequest(id=id))


def test_a_table_is_deregistered_once(ns: LanceNamespace, other: LanceNamespace, home: Home) -> None:
    for number in range(ROUNDS):
        id = home.table(f"t{number}")
        ns.declare_table(spec.DeclareTableRequest(id=id))
        request = spec.DeregisterTableRequest(id=id)
        _check_winner(methodcaller("deregister_table", request), ns, other, err.TableNotFoundError)


def test_what_one_client_declares_the_other_sees(ns: LanceNamespace, other: LanceNamespace, home: Home) -> None:
    with expect(err.TableNotFoundError):
        other.describe_table(spec.DescribeTableRequest(id=home.table("t")))
    declared = ns.declare_table(spec.DeclareTableRequest(id=home.table("t")))
    described = other.describe_table(spec.DescribeTableRequest(id=home.table("t")))
    check_location("the table described by the other client", described.location, declared.location)
    ns.drop_table(spec.DropTableRequest(id=home.table("t")))
    with expect(err.TableNotFoundError, err.NamespaceNotFoundError):
        other.describe_table(spec.DescribeTableRequest(id=home.table("t")))


def _check_winner(
    call: Callable[[LanceNamespace], object],
    ns: LanceNamespace,
    other: LanceNamespace,
    lost: type[err.LanceNamespaceError],
) -> None:
    outcomes = _outcomes(call, ns, other)
    winners = outcomes.count(None)
    assert winners == 1, f"expected 1 call of {CALLERS} that succeeds, found {winners}"
    wrong = [e for e in outcomes if e and not isinstance(e, lost | err.ConcurrentModificationError)]
    assert not wrong, f"expected {lost.__name__} for the other calls, got {describe_error(wrong[0])}"


def _outcomes(
    call: Callable[[LanceNamespace], object], ns: LanceNamespace, other: LanceNamespace
) -> list[Exception | None]:
    start = Barrier(CALLERS)

    def run(client: LanceNamespace) -> Exception | None:
        start.wait()
        try:
            call(client)
        except Exception as e:  # of another package, too
            return e
        return None

    with ThreadPoolExecutor(CALLERS) as pool:
        outcomes = list(pool.map(run, [ns, other] * (CALLERS // 2)))
    for error in outcomes:
        if isinstance(error, UNSUPPORTED):
            raise error
    return outcomes
