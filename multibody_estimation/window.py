# SPDX-License-Identifier: Apache-2.0
"""`Signal` and `Window`: recorded data, as every estimator takes them and every recorder, bag and file gives them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['Defect', 'Signal', 'Window']

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, eq=False)
class Signal:
    """One sensor or command as it came."""

    name: str
    """What the estimators call it, e.g. ``encoders``, ``command``, ``imu/data_raw``."""
    stamps: np.ndarray
    """Time of each sample in integer nanoseconds, as ROS header stamps have it; shape (n,)."""
    values: np.ndarray
    """Samples in SI units; shape (n, k)."""
    columns: tuple[str, ...] = ()
    """What each column is: joint names for encoders and commands, axes for vectors; length k."""
    unit: str = ''
    """SI unit of the values, e.g. ``rad``, ``N m``, ``V``, ``m/s^2``."""
    frame: str = ''
    """Frame the values are expressed in (``header.frame_id``), where there is one."""
    noise: tuple[float, ...] = ()
    """Standard deviation of each column in the unit above; empty where unknown."""

    def __post_init__(self) -> None:
        stamps = np.asarray(self.stamps)
        if stamps.dtype.kind not in 'iu':
            raise EstimationError(
                f'{self.name}: stamps must be integer nanoseconds, not {stamps.dtype}. '
                'Use Signal.from_seconds for times in seconds.'
            )
        values = np.asarray(self.values, dtype=np.float64)
        if values.ndim == 1:
            values = values[:, None]
        if stamps.ndim != 1 or values.ndim != 2 or len(stamps) != len(values):
            raise EstimationError(
                f'{self.name}: {stamps.shape} stamps do not fit {values.shape} values; one row per stamp is needed.'
            )
        columns = tuple(self.columns) or tuple(str(i) for i in range(values.shape[1]))
        if len(columns) != values.shape[1]:
            raise EstimationError(f'{self.name}: {len(columns)} column names for {values.shape[1]} columns.')
        noise = tuple(float(s) for s in np.atleast_1d(np.asarray(self.noise, dtype=float)))
        if len(noise) == 1:
            noise = noise * values.shape[1]
        if noise and len(noise) != values.shape[1]:
            raise EstimationError(f'{self.name}: {len(noise)} noise values for {values.shape[1]} columns.')
        if any(not s > 0 for s in noise):
            raise EstimationError(f'{self.name}: noise must be a positive standard deviation in {self.unit or "its unit"}.')
        object.__setattr__(self, 'stamps', stamps.astype(np.int64))
        object.__setattr__(self, 'values', values)
        object.__setattr__(self, 'columns', columns)
        object.__setattr__(self, 'noise', noise)

    @classmethod
    def from_seconds(cls, name: str, time: np.ndarray, values: np.ndarray, **more) -> 'Signal':
        """Make a signal from times in seconds (rounded to the nanosecond)."""
        time = np.asarray(time, dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(time))
        if len(bad):
            raise EstimationError(f'{name}: time of sample {bad[0]} is {time[bad[0]]}. Remove that row.')
        return cls(name, np.round(time * NANOSECONDS).astype(np.int64), values, **more)

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def rate(self) -> float:
        """Median sample rate in Hz (nan for fewer than two samples)."""
        return float(NANOSECONDS / np.median(np.diff(self.stamps))) if len(self) > 1 else float('nan')

    def take(self, rows: np.ndarray | slice) -> 'Signal':
        """Return the same signal with some of its samples: an index array, a mask or a slice."""
        return replace(self, stamps=self.stamps[rows], values=self.values[rows])

    def column(self, name: str) -> np.ndarray:
        """Return one column by its name; shape (n,)."""
        if name not in self.columns:
            raise EstimationError(f"{self.name}: no column '{name}'.{did_you_mean(name, self.columns)}")
        return self.values[:, self.columns.index(name)]


@dataclass(frozen=True)
class Defect:
    """Something that is wrong with a recording, and where."""

    signal: str
    kind: str
    """One of ``nan``, ``duplicate``, ``reordered``, ``gap``."""
    index: int
    """First affected sample, counted as the samples came."""
    time: float
    """Seconds from the window's start."""
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, eq=False)
class Window:
    """Signals by name over one span of time, checked: stamps increase strictly and every value is finite.

    What had to be left out or put in order stands in ``defects``; nothing is repaired in silence.
    """

    signals: Mapping[str, Signal]
    start: int
    """Stamp of the window's second zero, in nanoseconds."""
    defects: tuple[Defect, ...] = ()
    source: str = ''
    """Where it came from: a path, a topic set, a simulation."""
    truth: Mapping[str, float] = field(default_factory=dict)
    """True parameters by dotted name, where the data were simulated."""

    @classmethod
    def gather(cls, signals: Iterable[Signal], *, source: str = '', truth: Mapping[str, float] | None = None) -> 'Window':
        """Check the signals and put them together.

        Samples that are not finite or that repeat a stamp are left out, samples out of order are put in order, gaps are
        noted; each is a `Defect`.
        """
        signals = list(signals)
        filled = [s for s in signals if len(s)]
        if not filled:
            raise EstimationError(f'{source or "The recording"} is empty: no signal has a sample.')
        names = [s.name for s in signals]
        for name in names:
            if names.count(name) > 1:
                raise EstimationError(f"Two signals are named '{name}'; names must be unique.")
        start = min(int(s.stamps.min()) for s in filled)
        defects: list[Defect] = []
        checked = {s.name: _check(s, start, defects) for s in signals}
        return cls(MappingProxyType(checked), start, tuple(defects), source, MappingProxyType(dict(truth or {})))

    def __getitem__(self, name: str) -> Signal:
        if name not in self.signals:
            raise EstimationError(f"The window has no signal '{name}'.{did_you_mean(name, self.signals)}")
        return self.signals[name]

    def __contains__(self, name: str) -> bool:
        return name in self.signals

    def __iter__(self) -> Iterator[str]:
        return iter(self.signals)

    def seconds(self, name: str) -> np.ndarray:
        """Times of a signal in seconds from the window's start; shape (n,)."""
        return (self[name].stamps - self.start) / NANOSECONDS

    @cached_property
    def duration(self) -> float:
        """Seconds from the first to the last sample of any signal."""
        return (max(int(s.stamps[-1]) for s in self.signals.values() if len(s)) - self.start) / NANOSECONDS

    def cut(self, begin: float, end: float) -> 'Window':
        """Return the part from ``begin`` (included) to ``end`` (excluded), in seconds; stamps and second zero stay as they are."""
        if not begin < end:
            raise EstimationError(f'Cannot cut a window from {begin} s to {end} s: the end must lie after the beginning.')
        kept = {}
        for name, signal in self.signals.items():
            time = self.seconds(name)
            kept[name] = signal.take((time >= begin) & (time < end))
        if not any(len(s) for s in kept.values()):
            raise EstimationError(f'Nothing was recorded between {begin} s and {end} s; the window has {self.duration:.3f} s.')
        return replace(self, signals=MappingProxyType(kept), defects=tuple(d for d in self.defects if begin <= d.time < end))

    def __str__(self) -> str:
        lines = [f'{self.source or "window"}: {self.duration:.3f} s']
        for name, s in self.signals.items():
            rate = f'{s.rate:.4g} Hz' if len(s) > 1 else 'no rate'
            columns = ', '.join(s.columns[:6]) + (f', ... ({len(s.columns)})' if len(s.columns) > 6 else '')
            lines.append(f'  {name:<20} {len(s):>7} samples  {rate:>10}  {columns} [{s.unit or "-"}]')
        lines += [f'  {defect}' for defect in self.defects[:10]]
        if len(self.defects) > 10:
            lines.append(f'  and {len(self.defects) - 10} more defects')
        return '\n'.join(lines)


def _check(signal: Signal, start: int, defects: list[Defect]) -> Signal:
    """Return the signal finite and strictly increasing in time; append what was found to ``defects``."""
    if not len(signal):
        return signal
    name, total = signal.name, len(signal)
    origin = np.arange(total)

    def note(kind: str, index: Any, stamp: Any, sentence: str) -> None:
        defects.append(Defect(name, kind, int(index), (int(stamp) - start) / NANOSECONDS, sentence))

    bad = ~np.isfinite(signal.values).all(axis=1)
    if bad.all():
        raise EstimationError(f'{name}: none of its {total} samples is finite.')
    for count, i in enumerate(np.flatnonzero(bad), start=1):
        column = signal.columns[int(np.flatnonzero(~np.isfinite(signal.values[i]))[0])]
        what = 'NaN' if np.isnan(signal.values[i]).any() else 'infinite'
        time = (int(signal.stamps[i]) - start) / NANOSECONDS
        note('nan', i, signal.stamps[i], f'{name}: sample {i} is {what} in column {column} (stamp {time:.3f} s). '
             f'It was left out; {count} of {total} samples so far.')  # fmt: skip
    signal, origin = signal.take(~bad), origin[~bad]

    step = np.diff(signal.stamps)
    for i in np.flatnonzero(step < 0):
        time = (int(signal.stamps[i + 1]) - start) / NANOSECONDS
        note('reordered', origin[i + 1], signal.stamps[i + 1], f'{name}: time runs backwards by {-step[i] / NANOSECONDS:.6f} s '
             f'at sample {origin[i + 1]} (stamp {time:.3f} s). The samples were put in the order of their stamps.')  # fmt: skip
    if (step < 0).any():
        order = np.argsort(signal.stamps, kind='stable')
        signal, origin = signal.take(order), origin[order]

    again = np.concatenate([[False], np.diff(signal.stamps) == 0])
    for i in np.flatnonzero(again):
        time = (int(signal.stamps[i]) - start) / NANOSECONDS
        note('duplicate', origin[i], signal.stamps[i], f'{name}: sample {origin[i]} repeats the stamp {time:.6f} s. '
             'The first one was kept.')  # fmt: skip
    signal, origin = signal.take(~again), origin[~again]

    step = np.diff(signal.stamps)
    if len(step) > 2:
        usual = float(np.median(step))
        for i in np.flatnonzero(step > 1.7 * usual):
            time = (int(signal.stamps[i]) - start) / NANOSECONDS
            note('gap', origin[i], signal.stamps[i], f'{name}: no sample for {step[i] / NANOSECONDS:.4f} s after sample {origin[i]} '
                 f'(stamp {time:.3f} s); usual step {usual / NANOSECONDS:.4f} s.')  # fmt: skip
    return signal
