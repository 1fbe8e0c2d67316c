# SPDX-License-Identifier: Apache-2.0
"""Is the body at rest? A stretch of strain and IMU readings becomes one static sample, or a sentence that says why not.

``w = M a`` holds at rest only. A stretch is judged by the gyroscope, by the norm of the acceleration, by the scatter of both
sensors, by the shift between its two halves (slow turning hides in none of the others) and by saturation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from multibody_estimation.calibration.model import GRAVITY, SATURATION, Dataset, Load
from multibody_estimation.calibration.readings import Readings
from multibody_estimation.errors import EstimationError
from multibody_estimation.window import NANOSECONDS


@dataclass(frozen=True)
class Gates:
    """Limits within which a stretch of readings counts as rest."""

    angular_rate: float = 0.05
    """Largest RMS of the gyroscope in rad/s; leaves room for its bias."""
    norm: float = 0.5
    """Largest departure of the mean acceleration's norm from 9.81 m/s^2; leaves room for the accelerometer's bias."""
    acceleration: float = 0.3
    """Largest standard deviation of an accelerometer axis in m/s^2."""
    strain: float = 60.0
    """Largest standard deviation of a strain channel in counts."""
    shift: float = 6.0
    """Largest difference of the means of the two halves, in standard errors of that difference (but see ``shift_floor``)."""
    shift_floor: tuple[float, float] = (4.0, 0.03)
    """Shift that never matters: counts, m/s^2."""
    saturation: float = SATURATION
    """Counts at which a channel stands at the end of its range."""
    minimum_count: int = 10
    """Fewest readings of either sensor in a stretch."""

    def __post_init__(self) -> None:
        numbers = (self.angular_rate, self.norm, self.acceleration, self.strain, self.shift, self.saturation, self.minimum_count)
        if not min(numbers) > 0:
            raise EstimationError('Every gate must be a positive number.')


@dataclass(frozen=True, eq=False)
class Sample:
    """One orientation at rest: means over a stretch, with the stretch, so that a bag gives the same numbers."""

    dataset: str
    load: Load
    strain: np.ndarray
    """Mean counts; shape (6,)."""
    acceleration: np.ndarray
    """Mean m/s^2 in the sensor's axes; shape (3,)."""
    temperature: float
    """Mean, degrees Celsius, or nan."""
    begin: int
    """Nanoseconds, included."""
    end: int
    """Nanoseconds, excluded."""
    count: int
    """Strain readings averaged."""
    strain_error: np.ndarray = field(default_factory=lambda: np.zeros(6))
    """Standard error of the mean for white noise, counts; shape (6,)."""
    acceleration_error: float = 0.0
    """The same for an axis of the accelerometer, m/s^2."""
    number: int = 0
    """What a technician calls it; given once, never again."""

    def __str__(self) -> str:
        x, y, z = self.acceleration / np.linalg.norm(self.acceleration)
        return f"'{self.dataset}' ({self.load}), up along ({x:.2f}, {y:.2f}, {z:.2f}), {self.count} readings"


def _shift(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Difference of the means of the halves per column, and its standard error for white noise."""
    half = len(values) // 2
    first, last = values[:half], values[half:]
    error = np.sqrt(first.var(axis=0, ddof=1) / len(first) + last.var(axis=0, ddof=1) / len(last))
    return np.abs(last.mean(axis=0) - first.mean(axis=0)), error


def why_not_static(readings: Readings, gates: Gates = Gates()) -> str:  # noqa: B008
    """Return a sentence that says why these readings are no static sample; empty where they are."""
    r, a, w = readings.strain, readings.acceleration, readings.angular_velocity
    for what, values in (('strain', r), ('IMU', a)):
        if len(values) < gates.minimum_count:
            return (
                f'Only {len(values)} {what} readings lie in the stretch; {gates.minimum_count} are needed. '
                'Is the topic running? Wait, or average longer.'
            )
    for what, values in (('strain', r), ('accelerometer', a), ('gyroscope', w)):
        if not np.isfinite(values).all():
            return f'A {what} reading is not finite. Check the sensor and take the sample again.'
    full = readings.saturated.any(axis=0) | (np.abs(r) >= gates.saturation).any(axis=0)
    if full.any():
        channel = int(np.argmax(full))
        return (
            f'Channel {channel} is saturated ({r[np.argmax(np.abs(r[:, channel])), channel]:.0f} counts, limit '
            f'{gates.saturation:.0f}). Use a lighter mass, move it closer, or lower the gain of the sensor.'
        )
    rate = float(np.sqrt(np.mean(np.sum(w**2, axis=1))))
    if rate > gates.angular_rate:
        return f'The body turns at {rate:.2f} rad/s (limit {gates.angular_rate:g}). Hold it still and take the sample again.'
    norm = float(np.linalg.norm(a.mean(axis=0)))
    if abs(norm - GRAVITY) > gates.norm:
        return (
            f'The accelerometer reads {norm:.2f} m/s^2 instead of {GRAVITY:.2f}: the body moves, or the accelerometer is off by '
            'more than a bias. Hold it still; if it is still, calibrate the accelerometer first.'
        )
    for what, values, limit, unit in (('accelerometer', a, gates.acceleration, 'm/s^2'), ('strain', r, gates.strain, 'counts')):
        scatter = values.std(axis=0)
        if scatter.max() > limit:
            return (
                f'The {what} scatters by {scatter.max():.2g} {unit} in channel {int(np.argmax(scatter))} (limit {limit:g}): the body '
                'moves or something touches it. Hold it still and take the sample again.'
            )
    for what, values, floor, unit in (('strain', r, gates.shift_floor[0], 'counts'),
                                      ('accelerometer', a, gates.shift_floor[1], 'm/s^2')):  # fmt: skip
        moved, error = _shift(values)
        over = moved > np.maximum(gates.shift * error, floor)
        if over.any():
            channel = int(np.argmax(np.where(over, moved, 0)))
            return (
                f'The {what} shifts by {moved[channel]:.2g} {unit} in channel {channel} within the stretch: the body still settles '
                'or turns slowly. Wait a moment and take the sample again.'
            )
    return ''


def static_sample(readings: Readings, begin: int, end: int, dataset: str, load: Load, gates: Gates = Gates()) -> Sample:  # noqa: B008
    """Average the readings with ``begin <= stamp < end`` (ns), or raise the sentence that says why they cannot be used."""
    part = readings.between(begin, end)
    if sentence := why_not_static(part, gates):
        raise EstimationError(sentence)
    warm = float(part.temperature.mean()) if np.isfinite(part.temperature).all() else np.nan
    return Sample(dataset or str(load), load, part.strain.mean(axis=0), part.acceleration.mean(axis=0), warm,
                  int(begin), int(end), len(part.strain), part.strain.std(axis=0) / np.sqrt(len(part.strain)),
                  float(np.sqrt(part.acceleration.var(axis=0).mean() / len(part.acceleration))))  # fmt: skip


def static_stretches(
    readings: Readings, seconds: float = 1.0, gates: Gates = Gates(), *, apart: float = 10.0  # noqa: B008
) -> list[tuple[int, int]]:  # fmt: skip
    """Find stretches of ``seconds`` at rest, each at least ``apart`` degrees from the one before; (begin, end) in ns.

    Looks at a stretch, moves on by a tenth of it; of a body held long in one orientation one stretch is taken.
    """
    if not len(readings.strain_stamps) or not len(readings.imu_stamps):
        return []
    length = int(seconds * NANOSECONDS)
    t, stop = int(max(readings.strain_stamps[0], readings.imu_stamps[0])), readings.end
    found: list[tuple[int, int]] = []
    before: np.ndarray | None = None
    while t + length <= stop:
        part = readings.between(t, t + length)
        if why_not_static(part, gates):
            t += max(1, length // 10)
            continue
        up = part.acceleration.mean(axis=0)
        up = up / np.linalg.norm(up)
        if before is None or np.degrees(np.arccos(np.clip(up @ before, -1, 1))) >= apart:
            found.append((t, t + length))
            before = up
            t += length
        else:
            t += max(1, length // 10)
    return found


def datasets_of(samples: Sequence[Sample]) -> list[Dataset]:
    """Put samples together by their dataset's name, in the order in which the datasets began."""
    result = []
    for name in dict.fromkeys(s.dataset for s in samples):
        mine = [s for s in samples if s.dataset == name]
        warm = np.array([s.temperature for s in mine])
        result.append(Dataset(mine[0].load, np.array([s.strain for s in mine]), np.array([s.acceleration for s in mine]),
                              warm if np.isfinite(warm).all() else None, name))  # fmt: skip
    return result
