"""The spec's responses with storage options, with hidden credentials in their text forms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import lance_namespace as spec
from pydantic import BaseModel

if TYPE_CHECKING:
    _Model = BaseModel
else:
    _Model = object

_MASK = "***"


class _HidesOptions(_Model):
    """Hides the values of storage options, which may be credentials, and shows their names.

    This applies to `repr`, `str`, notebooks and pytest. The values are in `storage_options`, and in `model_dump`,
    `to_dict`, `to_json` and `to_str`, as in the spec's own model. Instances are equal to those of that model.
    """

    of_the_spec: ClassVar[type[BaseModel]]
    """The corresponding model of the spec."""

    def __repr_name__(self) -> str:
        return self.of_the_spec.__name__

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            hides = name == "storage_options" and isinstance(value, dict)
            yield name, dict.fromkeys(value, _MASK) if hides else value

    def __eq__(self, other: object) -> bool:
        # pydantic never treats instances of a class and of its subclass as equal.
        if not isinstance(other, self.of_the_spec):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # as in every mutable model


class CreateTableResponse(_HidesOptions, spec.CreateTableResponse):
    """The response to a create, with or without rows."""

    of_the_spec: ClassVar[type[BaseModel]] = spec.CreateTableResponse


class DeclareTableResponse(_HidesOptions, spec.DeclareTableResponse):
    """The response to a declare."""

    of_the_spec: ClassVar[type[BaseModel]] = spec.DeclareTableResponse


class DescribeTableResponse(_HidesOptions, spec.DescribeTableResponse):
    """The response to a describe."""

    of_the_spec: ClassVar[type[BaseModel]] = spec.DescribeTableResponse
