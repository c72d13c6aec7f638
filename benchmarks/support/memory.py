"""Peak memory of a process."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_PEAK_OF_RESIDENT = "5"


class Peak:
    """Peak resident memory of this process since the object was created, in bytes.

    On Linux the kernel forgets the earlier peak; elsewhere what was freed before and is used again is not seen.
    """

    def __init__(self) -> None:
        if _STATUS.exists():
            # If the reset is not allowed, only growth beyond the earlier peak is measured.
            with suppress(PermissionError):
                _RESET.write_text(_PEAK_OF_RESIDENT)
        self._before = peak()

    @property
    def growth(self) -> int:
        """Returns the maximum growth since the start."""
        return peak() - self._before


def peak() -> int:
    """Returns the peak resident memory of this process, or the peak since its last reset."""
    if _STATUS.exists():
        # Unlike this value, ru_maxrss is inherited from the parent process.
        [line] = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
