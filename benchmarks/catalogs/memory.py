"""Peak memory of a process."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_PEAK_OF_RESIDENT = "5"


class Peak:
    """The most resident memory of this process since it was made, in bytes.

    On Linux the kernel forgets the earlier peak; elsewhere what was freed before and is used again is not seen.
    """

    def __init__(self) -> None:
        if _STATUS.exists():
            # Where that is not allowed, growth is seen beyond the earlier peak alone.
            with suppress(PermissionError):
                _RESET.write_text(_PEAK_OF_RESIDENT)
        self._before = peak()

    @property
    def growth(self) -> int:
        """How much more than at the start there was at most."""
        return peak() - self._before


def peak() -> int:
    """The most resident memory of this process so far, or since the kernel was told to forget it."""
    if _STATUS.exists():
        # Unlike ru_maxrss it is this program's own: that is inherited from whoever started it.
        [line] = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
