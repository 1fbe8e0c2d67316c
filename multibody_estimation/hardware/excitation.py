# SPDX-License-Identifier: Apache-2.0
"""Signals that excite a robot open-loop and safely: bounded, ramped in and out, zero before and after."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['Excitation', 'make_excitation']

KINDS = ('chirp', 'sines', 'steps', 'none')


@dataclass(frozen=True)
class Excitation:
    """A command over time for one joint, in the unit of the actuator (N m, N or V)."""

    kind: str = 'sines'
    """``chirp``: one sine whose frequency rises; ``sines``: several sines at once; ``steps``: a square wave that changes sign
    at irregular times; ``none``."""
    amplitude: float = 0.05
    """Largest magnitude it can reach, ever."""
    duration: float = 10.0
    """Seconds; afterwards it is zero."""
    ramp: float = 0.5
    """Seconds over which it grows at the beginning and shrinks at the end."""
    low: float = 0.2
    """Lowest frequency in Hz."""
    high: float = 3.0
    """Highest frequency in Hz."""
    count: int = 5
    """Number of sines."""
    offset: float = 0.0
    """Constant added while it runs; counts towards the amplitude."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise EstimationError(f"There is no excitation '{self.kind}'.{did_you_mean(self.kind, KINDS)}")
        for name in ('duration', 'low', 'high'):
            if not getattr(self, name) > 0:
                raise EstimationError(f'The {name} of an excitation must be above zero, not {getattr(self, name)}.')
        if self.amplitude < 0 or abs(self.offset) > self.amplitude:
            raise EstimationError(
                f'An excitation with amplitude {self.amplitude} cannot have the offset {self.offset}; '
                'the amplitude is positive and bounds all of it.'
            )
        if not 0 <= 2 * self.ramp <= self.duration or self.high < self.low or self.count < 1:
            raise EstimationError(
                f'An excitation of {self.duration} s with ramps of {self.ramp} s from {self.low} to {self.high} Hz with '
                f'{self.count} sines cannot be made: the ramps must fit in, the frequencies rise, one sine at least.'
            )

    def __call__(self, time: float) -> float:
        """Value at ``time`` seconds after its start."""
        if not 0 <= time < self.duration or self.kind == 'none':
            return 0.0
        value = self.offset + (self.amplitude - abs(self.offset)) * self._shape(time)
        return self._window(time) * value

    def _window(self, time: float) -> float:
        """Raised cosine at both ends, from 0 to 1."""
        left = min(time, self.duration - time)
        return 1.0 if left >= self.ramp else 0.5 - 0.5 * math.cos(math.pi * left / self.ramp)

    def _shape(self, time: float) -> float:
        """Between -1 and 1."""
        if self.kind == 'chirp':
            # Frequency grows exponentially: every octave gets the same time.
            ratio = math.log(self.high / self.low)
            if ratio == 0:
                return math.sin(2 * math.pi * self.low * time)
            phase = self.low * self.duration / ratio * (math.exp(time / self.duration * ratio) - 1)
            return math.sin(2 * math.pi * phase)
        total = _total(self, time)
        if self.kind == 'sines':
            return max(-1.0, min(1.0, total / _peak(self)))
        return math.copysign(1.0, total)

    def _tones(self) -> list[tuple[float, float]]:
        """Frequencies (Hz), evenly spaced on a logarithmic scale, with Schroeder's phases, which keep peaks low."""
        n = self.count
        ratio = self.high / self.low
        return [(self.low * ratio ** (k / max(n - 1, 1)), -math.pi * k * (k + 1) / n) for k in range(n)]


def _total(signal: Excitation, time: float) -> float:
    return sum(math.sin(2 * math.pi * f * time + phase) for f, phase in signal._tones())


@lru_cache(maxsize=8)
def _peak(signal: Excitation) -> float:
    """Largest magnitude of the sum of sines while it runs, looked for at 20 points of the fastest period."""
    count = min(20_000, math.ceil(20 * signal.duration * signal.high))
    return max(abs(_total(signal, signal.duration * k / count)) for k in range(count)) or 1.0


def make_excitation(limit: float = math.inf, **options: Any) -> Excitation:
    """Make an excitation whose amplitude does not exceed the actuator's limit; options are the fields of `Excitation`."""
    made = Excitation(**options)
    if made.amplitude > limit:
        share = limit / made.amplitude
        made = replace(made, amplitude=limit, offset=made.offset * share)
    return made
