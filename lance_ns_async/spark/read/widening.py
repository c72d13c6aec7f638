"""Types that hold the values of two Spark types without loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StructField,
    StructType,
)

_HOLDERS: Mapping[type[DataType], Sequence[type[DataType]]] = {
    ByteType: (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType),
    ShortType: (ShortType, IntegerType, LongType, FloatType, DoubleType),
    IntegerType: (IntegerType, LongType, DoubleType),
    LongType: (LongType,),
    FloatType: (FloatType, DoubleType),
    DoubleType: (DoubleType,),
}
"""The types that hold all values of a type, the smallest first."""

_MOST_DIGITS = 38


def widest(types: Iterable[DataType]) -> DataType | None:
    """Returns the smallest type that holds all values of all types without loss; None if Spark has none."""
    result: DataType | None = None
    for type in dict.fromkeys(types):
        result = type if result is None else _wider(result, type)
        if result is None:
            return None
    return result


def _wider(a: DataType, b: DataType) -> DataType | None:
    match a, b:
        case _ if a == b or isinstance(b, NullType):
            return a
        case NullType(), _:
            return b
        case DecimalType(), DecimalType():
            whole, scale = max(a.precision - a.scale, b.precision - b.scale), max(a.scale, b.scale)
            return DecimalType(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None
        case ArrayType(), ArrayType():
            element = _wider(a.elementType, b.elementType)
            return None if element is None else ArrayType(element)
        case MapType(), MapType():
            key, value = _wider(a.keyType, b.keyType), _wider(a.valueType, b.valueType)
            return None if key is None or value is None else MapType(key, value)
        case StructType(), StructType() if a.names == b.names:
            fields = [(x.name, _wider(x.dataType, y.dataType)) for x, y in zip(a.fields, b.fields, strict=True)]
            if any(type is None for _, type in fields):
                return None
            return StructType([StructField(name, type) for name, type in fields if type is not None])
    holders = _HOLDERS.get(type(b), ())
    return next((holder() for holder in _HOLDERS.get(type(a), ()) if holder in holders), None)
