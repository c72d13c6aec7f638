"""Detection of a Python in Spark's processes that lacks this package."""

from __future__ import annotations

import re

_LACKING = re.compile(
    r"No module named '(?:lance|lance_namespace|lance_ns_async|pandas|pyarrow|pyspark)\b[^']*'"
    r"|\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION|PYTHON_VERSION_MISMATCH)\][^\n]*"
    r"|Python in worker has different version[^\n]*"
    r"|Cannot run program \"[^\"]*python[^\n]*"
)

REMEDY = (
    "start Spark, or the Spark Connect server, with PYSPARK_PYTHON=/path/to/python of an environment that has "
    "lance-ns-async[spark] and the Python version of this process, on each of its machines"
)


def environment_error(error: BaseException) -> ImportError | None:
    """Returns an error with a remedy if Spark failed because of the Python that it starts; None otherwise.

    Args:
        error: An error of Spark.
    """
    match = _LACKING.search(str(error))
    return None if match is None else ImportError(f"Spark starts a Python that cannot serve ({match[0]}): {REMEDY}")
