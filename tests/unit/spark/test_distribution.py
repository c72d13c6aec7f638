"""Distribution of work among Spark tasks."""

from __future__ import annotations

from lance_ns_async.spark.tasks import distribute


def test_groups_have_about_equal_weight_and_keep_the_order() -> None:
    weights = [100, 1, 1, 1, 50, 48]
    groups = distribute(range(6), weights.__getitem__, 2)
    assert sorted(n for group in groups for n in group) == [0, 1, 2, 3, 4, 5]
    assert max(sum(weights[n] for n in group) for group in groups) <= 102
    assert all(group == sorted(group) for group in groups)


def test_number_of_groups() -> None:
    assert len(distribute(range(6), lambda n: n, 100)) == 6
    assert distribute([], lambda it: 1, 3) == [[]]
