# SPDX-License-Identifier: Apache-2.0
"""Preallocated ring buffers on header stamps: what a live node keeps of its inputs, and the `Window` of their last seconds.

Samples are kept as they came; `Window.gather` checks them with the same code that checks a bag. The rings themselves notice, at
the moment of arrival and at the cost of a few comparisons, what an operator must hear of: gaps, duplicates, samples out of order,
values that are no numbers, and jumps of the clock.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.recording.topics import join_name, read_message, stamp_of, unit_of
from multibody_estimation.window import NANOSECONDS, Signal, Window

__all__ = ['Ring', 'Rings', 'Status']

GAP = 1.7
"""A step longer than so many usual ones is a gap, as in `Window`."""

JUMP = 1.0
"""Seconds by which a clock may go back before it is a jump and not a late sample."""


@dataclass(frozen=True)
class Status:
    """What came in on one signal so far."""

    name: str
    received: int
    held: int
    """Samples in the ring now."""
    rate: float
    """Hz from the usual step; nan for fewer than two samples."""
    last: int
    """Newest stamp in nanoseconds; 0 before the first sample."""
    defects: Mapping[str, int] = field(default_factory=dict)
    """How often each kind of defect was seen: gap, duplicate, reordered, nan, jump, refused."""
    refusal: str = ''
    """The last sample that did not fit, as a sentence."""

    def __str__(self) -> str:
        found = ', '.join(f'{count} {kind}' for kind, count in self.defects.items() if count) or 'no defect'
        return f'{self.name}: {self.received} samples at {self.rate:.4g} Hz, {found}'


class Ring:
    """The last samples of one signal; `append` neither allocates nor waits for a reader longer than a copy takes."""

    def __init__(
        self, name: str, columns: Sequence[str], capacity: int, *, unit: str = '', frame: str = '', noise: Sequence[float] = ()
    ):
        """Allocate; capacity: number of samples held."""
        if capacity < 2:
            raise EstimationError(f'{name}: a ring of {capacity} samples is too small; it needs two at least.')
        self.name, self.columns, self.unit, self.frame, self.noise = name, tuple(columns), unit, frame, tuple(noise)
        self._stamps = np.zeros(capacity, dtype=np.int64)
        self._values = np.zeros((capacity, len(self.columns)))
        self._orders: dict[tuple[str, ...], list[int] | None] = {self.columns: None}
        self._next = self._held = self._received = 0
        self._newest = 0
        self._usual = 0.0
        self._ahead = 0
        """Samples since the clock leapt forward, while that may still turn out to be one wrong stamp; 0: no leap."""
        self._defects = dict.fromkeys(('gap', 'duplicate', 'reordered', 'nan', 'jump', 'refused'), 0)
        self._refusal = ''
        self._lock = threading.Lock()

    def append(self, stamp: int, values: Sequence[float], columns: tuple[str, ...] | None = None) -> str:
        """Take a sample; return the kind of defect it showed, or an empty text.

        stamp: nanoseconds. columns: names that came with it; another order is put right, other names are refused.
        """
        with self._lock:
            self._received += 1
            order = None
            if columns is not None and columns != self.columns:
                order = self._order(columns)
                if order is None:
                    return 'refused'
            if len(values) != len(self.columns):
                return self._refuse(f'{len(values)} values for {len(self.columns)} columns')
            if stamp <= 0:
                return self._refuse(f'stamp {stamp} ns')
            found = self._judge(stamp)
            at = self._next
            self._stamps[at] = stamp
            self._values[at] = values if order is None else [values[i] for i in order]
            self._next = at + 1 if at + 1 < len(self._stamps) else 0
            if self._held < len(self._stamps):
                self._held += 1
            total = sum(values)
            if total != total or total in (np.inf, -np.inf):
                found = 'nan'
            if found:
                self._defects[found] += 1
            return found

    def _order(self, columns: tuple[str, ...]) -> list[int] | None:
        if columns not in self._orders:
            if sorted(columns) != sorted(self.columns):
                odd = next((c for c in columns if c not in self.columns), '')
                what = f"unknown name '{odd}'.{did_you_mean(odd, self.columns)}" if odd else f'names {", ".join(columns)} only.'
                self._refuse(what)
                return None
            self._orders[columns] = [columns.index(c) for c in self.columns]
        return self._orders[columns]

    def _refuse(self, why: str) -> str:
        self._defects['refused'] += 1
        self._refusal = f'{self.name}: sample {self._received} was left out: {why}'
        return 'refused'

    def _judge(self, stamp: int) -> str:
        """Compare a stamp with the ones before; forget what lies on the other side of a jump of the clock."""
        step = stamp - self._newest
        if self._newest == 0:
            self._newest = stamp
            return ''
        if step < -JUMP * NANOSECONDS:
            if 0 < self._ahead <= 3:
                # The few samples before had wrong stamps, not the clock: drop those.
                self._next = (self._next - self._ahead) % len(self._stamps)
                self._held -= self._ahead
            else:
                self._held = 0
            self._ahead, self._newest = 0, stamp
            return 'jump'
        if step <= 0:
            return 'reordered' if step < 0 else 'duplicate'
        self._newest = stamp
        if self._ahead:
            self._ahead = self._ahead + 1 if self._ahead < 4 else 0
        if self._usual == 0.0:
            self._usual = float(step)
            return ''
        usual = self._usual
        # Moves by at most 5 % per sample, so that one gap does not change what is usual.
        self._usual = usual + 0.1 * min(max(step - usual, -0.5 * usual), 0.5 * usual)
        if step > JUMP * NANOSECONDS and step > 20 * usual:
            self._ahead = 1
            return 'jump'
        return 'gap' if step > GAP * usual else ''

    def status(self) -> Status:
        """Count, rate and defects so far."""
        with self._lock:
            rate = NANOSECONDS / self._usual if self._usual else float('nan')
            return Status(self.name, self._received, self._held, rate, self._newest, dict(self._defects), self._refusal)

    def signal(self, begin: int | None = None, end: int | None = None) -> Signal:
        """A copy of what is held, in the order it came; only stamps from ``begin`` (included) to ``end`` (excluded), in ns."""
        with self._lock:
            rows = (self._next - self._held + np.arange(self._held)) % len(self._stamps)
            stamps, values = self._stamps[rows], self._values[rows]
        keep = np.ones(len(stamps), dtype=bool)
        if begin is not None:
            keep &= stamps >= begin
        if end is not None:
            keep &= stamps < end
        return Signal(self.name, stamps[keep], values[keep], self.columns, self.unit, self.frame, self.noise)

    def clear(self) -> None:
        """Forget the samples; the counts stay."""
        with self._lock:
            self._held = self._ahead = 0


class Rings:
    """Ring buffers by signal name, made when the first message of a topic comes."""

    def __init__(self, seconds: float = 60.0, *, max_rate: float = 1000.0, joints: Iterable[str] | None = None):
        """Keep ``seconds`` of signals that come with up to ``max_rate`` Hz.

        joints: names that encoders may have; others are refused with a sentence. Default: those of the first message.
        """
        if not seconds > 0 or not max_rate > 0:
            raise EstimationError(f'A buffer of {seconds} s at up to {max_rate} Hz cannot be made; both must be above zero.')
        self.seconds, self.capacity = seconds, int(np.ceil(seconds * max_rate)) + 1
        self._joints = tuple(joints or ())
        self._rings: dict[str, Ring] = {}
        self._making = threading.Lock()
        self._refused: dict[str, int] = {}
        self.refusal = ''
        """The last message that could not be taken at all, as a sentence."""

    def add(self, name: str, columns: Sequence[str], **more: Any) -> Ring:
        """Make the ring of a signal (or return the one that is there)."""
        with self._making:
            if name not in self._rings:
                self._rings[name] = Ring(name, columns, self.capacity, **more)
            return self._rings[name]

    def take(self, base: str, message_type: str, message: Any, received: int = 0) -> list[str]:
        """Take a message of `topics.TABLE`; return the defects it showed.

        base: signal name of its topic (`topics.name_signals`). received: time of reception in ns, for messages without a stamp.
        """
        found = []
        stamp = stamp_of(message) or received
        try:
            for part, reading in list(read_message(message_type, message)):  # all or nothing
                ring = self._rings.get(join_name(base, part.suffix))
                if ring is None:
                    frame = getattr(getattr(message, 'header', None), 'frame_id', '')
                    name = join_name(base, part.suffix)
                    if self._joints and name == 'encoders':
                        odd = [c for c in reading.columns if c not in self._joints]
                        if odd:
                            raise EstimationError(f"unknown joint '{odd[0]}'.{did_you_mean(odd[0], self._joints)}")
                    ring = self.add(name, reading.columns, unit=unit_of(part, message), frame=frame, noise=part.noise(message))
                kind = ring.append(stamp, reading.values, reading.columns)
                if kind:
                    found.append(kind)
        except EstimationError as error:
            self._refused[base] = self._refused.get(base, 0) + 1
            self.refusal = f'{base}: a message was left out: {error}'
            found.append('refused')
        return found

    def __getitem__(self, name: str) -> Ring:
        if name not in self._rings:
            raise EstimationError(f"No sample of '{name}' has come yet.{did_you_mean(name, self._rings)}")
        return self._rings[name]

    def __contains__(self, name: str) -> bool:
        return name in self._rings

    def __iter__(self):
        return iter(list(self._rings))

    def status(self) -> tuple[Status, ...]:
        """What came in so far, signal by signal."""
        return tuple(ring.status() for ring in list(self._rings.values()))

    @property
    def refused(self) -> Mapping[str, int]:
        """Messages that could not be taken at all, by signal name of their topic."""
        return dict(self._refused)

    def newest(self) -> int:
        """Newest stamp of all signals, in nanoseconds; 0 while all are empty."""
        return max((s.last for s in self.status() if s.held), default=0)

    def window(self, seconds: float = 0.0, *, signals: Iterable[str] | None = None, source: str = 'buffer') -> Window:
        """The last ``seconds`` before the newest stamp as a `Window`; 0 takes all that is held. signals: only these, by name."""
        names = list(self) if signals is None else list(signals)
        newest = max((self[n].status().last for n in names if self[n].status().held), default=0)
        begin = newest - round(seconds * NANOSECONDS) if seconds > 0 else None
        return Window.gather([self[n].signal(begin) for n in names], source=source)

    def clear(self) -> None:
        """Forget all samples; the counts stay."""
        for ring in list(self._rings.values()):
            ring.clear()
