# SPDX-License-Identifier: Apache-2.0
"""`Readings`: strain and IMU of one span, from the buffer of a node or from a recording, with the same numbers either way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.window import Window


@dataclass(frozen=True, eq=False)
class Readings:
    """Strain and IMU readings of one span, each with its own stamps: what a node buffers and a bag holds."""

    strain_stamps: np.ndarray
    """Integer nanoseconds, increasing; shape (n,)."""
    strain: np.ndarray
    """Counts; shape (n, 6)."""
    imu_stamps: np.ndarray
    """Integer nanoseconds, increasing; shape (m,)."""
    acceleration: np.ndarray
    """m/s^2 in the sensor's axes; shape (m, 3)."""
    angular_velocity: np.ndarray
    """rad/s; shape (m, 3)."""
    temperature: np.ndarray
    """Degrees Celsius, nan where there is no thermometer; shape (n,)."""
    saturated: np.ndarray
    """Channels the sensor itself flags as saturated; shape (n, 6)."""
    serial: str = ''

    def __post_init__(self) -> None:
        # The order of summation follows the layout in memory: the same layout, the same last digit.
        for name in ('strain', 'acceleration', 'angular_velocity'):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name)))

    def between(self, begin: int, end: int) -> 'Readings':
        """Readings with ``begin <= stamp < end``, in nanoseconds."""
        s = slice(*np.searchsorted(self.strain_stamps, (begin, end)))
        i = slice(*np.searchsorted(self.imu_stamps, (begin, end)))
        return replace(self, strain_stamps=self.strain_stamps[s], strain=self.strain[s], imu_stamps=self.imu_stamps[i],
                       acceleration=self.acceleration[i], angular_velocity=self.angular_velocity[i],
                       temperature=self.temperature[s], saturated=self.saturated[s])  # fmt: skip

    @classmethod
    def gather(cls, strain: Sequence[tuple], imu: Sequence[tuple], serial: str = '') -> 'Readings':
        """From rows ``(stamp, counts, saturated, temperature)`` and ``(stamp, acceleration, angular_velocity)`` as they came.

        As in a `Window`, rows that are not finite or repeat a stamp are left out, and the rest is put in order.
        """
        strain = _ordered([row for row in strain if np.isfinite(row[1]).all()])
        imu = _ordered([row for row in imu if np.isfinite(row[1]).all() and np.isfinite(row[2]).all()])

        def column(rows: Sequence[tuple], i: int, shape: tuple[int, ...], kind: type = float) -> np.ndarray:
            return np.array([row[i] for row in rows], dtype=kind).reshape(len(rows), *shape)

        return cls(column(strain, 0, (), np.int64), column(strain, 1, (6,)), column(imu, 0, (), np.int64), column(imu, 1, (3,)),
                   column(imu, 2, (3,)), column(strain, 3, ()), column(strain, 2, (6,), bool), serial)  # fmt: skip

    @classmethod
    def of(cls, window: Window, strain: str, imu: str, rotation: np.ndarray | None = None, serial: str = '') -> 'Readings':
        """From a window: signals ``<strain>`` (with ``/temperature``, ``/saturated``), ``<imu>/accelerometer`` (``/gyroscope``).

        ``rotation`` (3, 3) turns vectors of the IMU's axes into the sensor's.
        """
        counts, a = window[strain], window[f'{imu}/accelerometer']
        # An IMU without a gyroscope is judged by its accelerometer alone.
        w = window[f'{imu}/gyroscope'] if f'{imu}/gyroscope' in window else replace(a, values=np.zeros((len(a), 3)))
        if counts.values.shape[1] != 6:
            raise EstimationError(f'{strain} has {counts.values.shape[1]} channels; a strain sensor has six.')

        def beside(name: str, fill: float, width: int) -> np.ndarray:
            values = np.full((len(counts), width), fill)
            if name in window:
                _, here, there = np.intersect1d(counts.stamps, window[name].stamps, return_indices=True)
                values[here] = window[name].values[there]
            return values

        _, ia, iw = np.intersect1d(a.stamps, w.stamps, return_indices=True)
        R = np.eye(3) if rotation is None else rotation
        return cls(counts.stamps, counts.values, a.stamps[ia], a.values[ia] @ R.T, w.values[iw] @ R.T,
                   beside(f'{strain}/temperature', np.nan, 1)[:, 0], beside(f'{strain}/saturated', 0, 6) > 0, serial)  # fmt: skip

    @property
    def end(self) -> int:
        """Just after the last instant both sensors have reached, in nanoseconds; 0 where one is silent."""
        if not len(self.strain_stamps) or not len(self.imu_stamps):
            return 0
        return int(min(self.strain_stamps[-1], self.imu_stamps[-1])) + 1


def _ordered(rows: list[tuple]) -> list[tuple]:
    kept: dict[int, tuple] = {}
    for row in rows:
        kept.setdefault(int(row[0]), row)
    return [kept[stamp] for stamp in sorted(kept)]
