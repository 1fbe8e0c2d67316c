# SPDX-License-Identifier: Apache-2.0
"""The pace of a simulated device: one sample after the other, in real time or as fast as they are read."""

import time

from multibody_estimation.window import NANOSECONDS

__all__ = ['Pace']

BEHIND = 1.0
"""Seconds by which it may be late and still catch up; beyond (a laptop that slept) it goes on from now."""


class Pace:
    """Hands out even stamps."""

    def __init__(self, rate: float, realtime: bool, epoch: int = 0):
        """Begin now. rate: Hz; epoch: first stamp in ns, 0 for now."""
        self.rate, self.realtime = rate, realtime
        self.count = 0
        self._first, self._began = epoch or time.time_ns(), time.monotonic()

    def wait(self, timeout: float) -> int | None:
        """Stamp (ns) of the next sample, when it is due within ``timeout`` seconds; None otherwise."""
        if self.realtime:
            wait = self._began + self.count / self.rate - time.monotonic()
            if wait > timeout:
                time.sleep(timeout)
                return None
            if wait > 0:
                time.sleep(wait)
            elif wait < -BEHIND:
                self._began -= wait
                self._first -= round(wait * NANOSECONDS)
        stamp = self._first + round(self.count * NANOSECONDS / self.rate)
        self.count += 1
        return stamp
