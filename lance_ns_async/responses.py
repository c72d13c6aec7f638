"""The spec's responses that hold storage options, with credentials hidden wherever they are shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import lance_namespace as spec
from pydantic import BaseModel

if TYPE_CHECKING:
    _Model = BaseModel
else:
    _Model = object

_HIDDEN = "***"


class _HidesOptions(_Model):
    """Shows the names of storage options without their values, which may be credentials.

    That is what `repr`, `str`, notebooks and pytest show. The values are in `storage_options`, and in `model_dump`,
    `to_dict`, `to_json` and `to_str`, as in the spec's own model, which it equals.
    """

    of_the_spec: ClassVar[type[BaseModel]]
    """The model of the spec that it is."""

    def __repr_name__(self) -> str:
        return self.of_the_spec.__name__

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            hides = name == "storage_options" and isinstance(value, dict)
            yield name, dict.fromkeys(value, _HIDDEN) if hides else value

    def __eq__(self, other: object) -> bool:
        # pydantic holds instances of a class and of its subclass for different whatever they hold.
        if not isinstance(other, self.of_the_spec):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # as of every model that can change


class CreateEmptyTableResponse(_HidesOptions, spec.CreateEmptyTableResponse):
    """The answer to a create without rows."""

    of_the_spec: ClassVar[type[BaseModel]] = spec.CreateEmptyTableResponse


class CreateTableResponse(_HidesOptions, spec.CreateTableResponse):
    """The answer to a create."""

    of_the_spec: ClassVar[type[BaseModel]] = spec.CreateTableResponse


class DeclareTableResponse(_HidesOptions, spec.DeclareTableResponse):
    """The answer to a declare."""

    of_the_spec: ClassVar[type[BaseModel]] = spec.DeclareTableResponse


class DescribeTableResponse(_HidesOptions, spec.DescribeTableResponse):
    """The answer to a describe."""

    of_the_spec: ClassVar[type[BaseModel]] = spec.DescribeTableResponse
