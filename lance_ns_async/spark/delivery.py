"""Accumulator that passes the results of Spark tasks to the driver, also those of a job that fails.

Executors import this module when they unpickle the accumulator. It has a module of its own, so that tasks can be
executed without PySpark.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.accumulators import AccumulatorParam


class Delivery(AccumulatorParam[list[str]]):
    """Accumulator of the results of finished tasks.

    Args:
        receive: Called with each result in Spark's thread for accumulators, which then keeps none; None to keep all of
            them, as in executors.
    """

    def __init__(self, receive: Callable[[str], None] | None = None) -> None:
        self.receive = receive

    def __reduce__(self) -> tuple[type[Delivery], tuple[()]]:
        return Delivery, ()

    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:
        if self.receive is None:
            value1.extend(value2)
        else:
            for text in value2:
                self.receive(text)
        return value1
