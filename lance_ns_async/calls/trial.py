"""A trial: for a moment, fewer or more calls are sent, to find out whether their number is the cause of refusals."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

_LEAST, _LARGEST = 0.05, 0.9
"""The bounds of the share of refused calls before a trial, within which a trial can tell something."""
_SURE = 3.0
"""The logarithm of the odds that decides a trial."""
_EXPECTED, _ENOUGH = 8, 24
"""What decides it otherwise: refusals to expect if the load is not the cause, or calls of a larger load."""
_MOST = 0.55
"""The share of refused calls from which on the load is the cause in any case."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What was known before a trial."""

    share: float
    """The share of refused calls."""
    limit: float
    rate: float
    delivered: float
    """Responses per second."""
    held: int
    """Responses within the last latency."""
    is_larger: bool
    """Whether the trial sends twice as many calls, instead of half as many."""

    def is_decided(self, responses: int, refusals: int) -> bool:
        """Returns whether these outcomes of the calls of the trial tell enough."""
        enough = _ENOUGH if self.is_larger else _EXPECTED / self._before
        return abs(self._odds(responses, refusals)) >= _SURE or responses + refusals >= enough

    def blames_load(self, responses: int, refusals: int) -> bool:
        """Returns whether the load is the cause of the refusals."""
        return self._odds(responses, refusals) >= 0 or refusals >= _MOST * (responses + refusals)

    @property
    def _before(self) -> float:
        return min(_LARGEST, max(_LEAST, self.share))

    def _odds(self, responses: int, refusals: int) -> float:
        """Returns the logarithm of the odds that the load is the cause.

        Then the share of twice as many calls is half-way to 1, and that of half as many is at most a fourth.
        """
        share = (1 + self._before) / 2 if self.is_larger else self._before / 4
        return refusals * log(share / self._before) + responses * log((1 - share) / (1 - self._before))
