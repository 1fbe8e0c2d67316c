# SPDX-License-Identifier: Apache-2.0
"""The watchdog: when a command is too old the motors get zero, when a device is silent it is opened again. Pure logic, no clock.

Times are seconds of any monotonic clock, given by the caller, so that every case can be tested without waiting.
"""

from dataclasses import dataclass
from enum import Enum

__all__ = ['State', 'Watchdog']


class State(Enum):
    """How a device is doing, as the driver shows it."""

    WAITING = 'waiting for the first sample'
    RUNNING = 'running'
    STALLED = 'no sample for too long'
    LOST = 'not connected'


@dataclass
class Watchdog:
    """Decides; the driver acts."""

    command_timeout: float = 0.1
    """Seconds after which a command is no longer valid."""
    stall_timeout: float = 0.5
    """Seconds without a sample after which the device counts as stalled; below 1, so that diagnostics say it within a second."""
    first_timeout: float = 3.0
    """The same for the first sample after opening."""
    shortest_pause: float = 0.2
    """Seconds before the first attempt to open the device again; doubles with every failure."""
    longest_pause: float = 5.0
    """Seconds between attempts at most."""

    state: State = State.LOST
    reconnects: int = 0
    """How often the device was opened again."""
    reason: str = ''
    """Why it is not running, as a sentence."""
    _opened: float = 0.0
    _sample: float = 0.0
    _command: float | None = None
    _attempt: float = 0.0
    _failures: int = 0
    _ever: bool = False

    def opened(self, now: float) -> None:
        """Tell that the device was opened."""
        self.reconnects += self._ever
        self._ever = True
        self.state, self.reason = State.WAITING, ''
        self._opened = self._sample = now
        self._command = None

    def sampled(self, now: float) -> None:
        """Tell that a sample came."""
        self._sample = now
        self._failures = 0
        self.state, self.reason = State.RUNNING, ''

    def commanded(self, now: float) -> None:
        """Tell that a command was passed to the device."""
        self._command = now

    def released(self) -> None:
        """Tell that the motors were put to zero on purpose."""
        self._command = None

    def must_stop(self, now: float) -> bool:
        """True once when the last command has run out: the motors must get zero."""
        if self._command is None or now - self._command <= self.command_timeout:
            return False
        self._command = None
        return True

    def stalled(self, now: float) -> bool:
        """True when a connected device has been silent for too long; it should be closed (`lost`) and opened again."""
        if self.state not in (State.WAITING, State.RUNNING):
            return False
        since, limit = (self._opened, self.first_timeout) if self.state is State.WAITING else (self._sample, self.stall_timeout)
        if now - since <= limit:
            return False
        self.state, self.reason = State.STALLED, f'No sample for {now - since:.1f} s.'
        return True

    def lost(self, now: float, reason: str) -> None:
        """Tell that the device was closed or could not be opened; the next attempt comes after a pause that doubles each time."""
        pause = min(self.shortest_pause * 2**self._failures, self.longest_pause)
        self._failures = min(self._failures + 1, 30)
        self._attempt = now + pause
        self._command = None
        self.state, self.reason = State.LOST, reason

    def may_open(self, now: float) -> bool:
        """True when the device is not connected and the pause is over."""
        return self.state is State.LOST and now >= self._attempt

    def age(self, now: float) -> float:
        """Seconds since the last sample, or since opening."""
        return now - self._sample
