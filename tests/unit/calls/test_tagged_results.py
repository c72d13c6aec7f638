"""The cache of results with tags: size, order, replacement, and counts."""

from __future__ import annotations

from lance_ns_async.calls.tagged_results import CacheUse, TaggedResults


def test_the_least_recently_used_result_is_removed() -> None:
    cache = TaggedResults[int](2)
    cache.store("a", "1", 1)
    cache.store("b", "2", 2)
    entry = cache.find("a")
    assert entry == ("1", 1)
    assert cache.confirm("a", entry) == 1
    cache.store("c", "3", 3)
    assert (cache.find("a"), cache.find("b"), cache.find("c")) == (("1", 1), None, ("3", 3))
    assert cache.use() == CacheUse(entries=2, max_entries=2, hits=1, misses=3)


def test_a_result_without_a_tag_is_not_kept() -> None:
    cache = TaggedResults[int](2)
    cache.store("a", "1", 1)
    cache.store("a", None, 2)
    assert cache.find("a") is None
    cache.store("a", "", 2)
    assert cache.find("a") is None


def test_a_confirmed_result_is_used_although_it_was_removed_during_the_call() -> None:
    cache = TaggedResults[int](1)
    cache.store("a", "1", 1)
    entry = cache.find("a")
    assert entry is not None
    cache.forget("a")
    cache.forget("a")
    assert cache.confirm("a", entry) == 1
    assert cache.find("a") is None
