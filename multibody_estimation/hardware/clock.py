# SPDX-License-Identifier: Apache-2.0
"""A device's clock on the host's: stamps as even as the device samples, not as uneven as its messages arrive."""

__all__ = ['ClockMap']

LONGEST_STEP = 10_000_000_000
"""Nanoseconds between two stamps over which a wrap of the counter is believed."""


FAR = 200_000_000
"""Nanoseconds of error beyond which it is put right at once."""


class ClockMap:
    """Maps a wrapping device counter to host nanoseconds.

    A message arrives some unknown time after its sampling, never before, so the smallest ``arrival - device time`` seen is the best
    offset; it may rise slowly (``drift``), for two quartz clocks never agree. While it settles the stamps follow the best offset at
    once, later at most at the rate ``slew``: a step in the middle of a recording would be worse than a constant delay.
    """

    def __init__(self, tick: int = 1000, bits: int = 32, *, drift: float = 1e-4, slew: float = 1e-3, settle: float = 0.3):
        """Describe the counter: nanoseconds per tick, width in bits.

        drift: largest relative error of the clocks. slew: largest relative error of an interval between stamps. settle: seconds.
        """
        self.tick, self.span, self.drift, self.slew, self.settle = tick, 1 << bits, drift, slew, settle * 1e9
        self.restarts = 0
        """How often the counter fell back by more than it can wrap: the device was started anew."""
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._last: int | None = None
        self._turns = self._device = self._begin = self._stamp = 0
        self._best = self._offset = 0.0

    def stamp(self, counter: int, arrival: int) -> int:
        """Host time (ns) of the instant at which the device's counter stood at ``counter``; arrival: host time now, ns."""
        if self._last is not None and counter < self._last:
            # A wrap goes forward by little; anything else is a device that began to count anew.
            if (counter - self._last) % self.span * self.tick < LONGEST_STEP:
                self._turns += 1
            else:
                self.restarts += 1
                self.reset()
        device = (self._turns * self.span + counter) * self.tick
        seen = float(arrival - device)
        if self._last is None:
            self._begin, self._best, self._offset = device, seen, seen
        else:
            step = device - self._device
            self._best = min(self._best + self.drift * step, seen)
            wrong = self._best - self._offset
            if device - self._begin >= self.settle and abs(wrong) < FAR:
                wrong = max(-self.slew * step, min(self.slew * step, wrong))
            self._offset += wrong
        self._last, self._device = counter, device
        self._stamp = max(device + int(self._offset), self._stamp + 1)
        return self._stamp
