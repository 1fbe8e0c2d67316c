# SPDX-License-Identifier: Apache-2.0
"""A body hung on a six-axis strain sensor: known loads, datasets of static samples, and the linear model between them.

At rest the sensor carries ``w = M(m, c) a`` with ``M = [m I3; m [c]x]``, where ``a`` is what an accelerometer reads in the
sensor's axes (proper acceleration, +9.81 m/s^2 upwards) and ``w`` the wrench the sensor exerts on the body, force first. The
counts are affine in it: ``r = C^-1 w + o``, so ``w = C (r - o)``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from multibody_estimation.errors import EstimationError

GRAVITY = 9.80665
"""Standard gravity in m/s^2."""

SATURATION = 32767
"""Largest magnitude a 16-bit strain channel can report, in counts."""

AXES = ('fx', 'fy', 'fz', 'tx', 'ty', 'tz')


def _selection() -> np.ndarray:
    """P of shape (18, 4) with ``vec(M) = P [m; m c]``, columns of M stacked."""
    P = np.zeros((18, 4))
    P[[0, 7, 14], 0] = 1.0
    P[11, 1], P[16, 1] = 1.0, -1.0
    P[15, 2], P[5, 2] = 1.0, -1.0
    P[4, 3], P[9, 3] = 1.0, -1.0
    return P


SELECTION = _selection()


def gravity_map(inertia: np.ndarray) -> np.ndarray:
    """Return M of shape (6, 3) from ``[m, m cx, m cy, m cz]`` (kg, kg m): acceleration in m/s^2 to wrench in N and N m."""
    return (SELECTION @ np.asarray(inertia, dtype=float)).reshape(3, 6).T


@dataclass(frozen=True)
class Load:
    """A known mass added to the body, as a technician screws it on; ``mass=0`` is the empty body."""

    mass: float = 0.0
    """kg, not negative."""
    center_of_mass: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """m, in the sensor's axes, from the sensor's origin."""

    def __post_init__(self) -> None:
        center = tuple(float(x) for x in np.asarray(self.center_of_mass, dtype=float).ravel())
        if len(center) != 3 or not np.isfinite([self.mass, *center]).all():
            raise EstimationError(
                f'A load needs a finite mass in kg and three coordinates in m, not {self.mass} and {self.center_of_mass}.'
            )
        if self.mass < 0:
            raise EstimationError(
                f'The load has the mass {self.mass:g} kg. A calibration mass is added, so give it as a positive number; '
                'if something was taken off the body, call the lighter state the empty one.'
            )
        if self.mass == 0 and any(center):
            raise EstimationError(f'The load at {center} m has no mass. Give its mass in kg, or leave its centre at 0 for empty.')
        if max(map(abs, center)) > 5:
            raise EstimationError(f'The centre of the load, {center}, is more than 5 m from the sensor. Give it in metres.')
        object.__setattr__(self, 'mass', float(self.mass))
        object.__setattr__(self, 'center_of_mass', center)

    @property
    def inertia(self) -> np.ndarray:
        """``[m, m c]`` in kg and kg m; shape (4,)."""
        return self.mass * np.array([1.0, *self.center_of_mass])

    def __str__(self) -> str:
        if self.mass == 0:
            return 'empty'
        return f'{self.mass:g} kg at ({", ".join(f"{x:g}" for x in self.center_of_mass)}) m'


@dataclass(frozen=True, eq=False)
class Dataset:
    """Static samples taken with one load in one mounting: the offset of the counts is the same in all of them."""

    load: Load
    strain: np.ndarray
    """Raw counts; shape (n, 6)."""
    acceleration: np.ndarray
    """Proper acceleration in m/s^2 in the sensor's axes; shape (n, 3)."""
    temperature: np.ndarray | None = None
    """Temperature of the sensor in degrees Celsius; shape (n,)."""
    name: str = ''
    """What messages call it; the load in words where empty."""

    def __post_init__(self) -> None:
        name = self.name or str(self.load)
        strain = np.atleast_2d(np.asarray(self.strain, dtype=float))
        acceleration = np.atleast_2d(np.asarray(self.acceleration, dtype=float))
        if strain.shape[1] != 6 or acceleration.shape[1] != 3 or len(strain) != len(acceleration):
            raise EstimationError(
                f"Dataset '{name}': strain {strain.shape} and acceleration {acceleration.shape} must be (n, 6) and (n, 3)."
            )
        temperature = None if self.temperature is None else np.asarray(self.temperature, dtype=float).ravel()
        if temperature is not None and len(temperature) != len(strain):
            raise EstimationError(f"Dataset '{name}': {len(temperature)} temperatures for {len(strain)} samples.")
        for what, values in (('strain', strain), ('acceleration', acceleration)):
            bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
            if len(bad):
                raise EstimationError(f"Dataset '{name}': the {what} of sample {bad[0]} is not finite. Remove the sample.")
        object.__setattr__(self, 'name', name)
        object.__setattr__(self, 'strain', strain)
        object.__setattr__(self, 'acceleration', acceleration)
        object.__setattr__(self, 'temperature', temperature)

    def __len__(self) -> int:
        return len(self.strain)


@dataclass(frozen=True)
class Noise:
    """Standard deviations of one static sample, as it enters a dataset."""

    strain: tuple[float, ...] = (10.0,) * 6
    """Counts, one per channel (one number stands for all six)."""
    acceleration: float = 0.05
    """m/s^2, the same on the three axes."""

    def __post_init__(self) -> None:
        strain = tuple(float(s) for s in np.broadcast_to(np.asarray(self.strain, dtype=float), 6))
        if not (min(strain) > 0 and self.acceleration > 0 and np.isfinite([*strain, self.acceleration]).all()):
            raise EstimationError('Noise must be positive: counts for the strain channels, m/s^2 for the accelerometer.')
        object.__setattr__(self, 'strain', strain)


@dataclass(frozen=True, eq=False)
class Moments:
    """First and second moments of one dataset: all that the likelihood of the linear model needs, whatever n is."""

    count: int
    acceleration: np.ndarray
    """Mean, m/s^2; shape (3,)."""
    strain: np.ndarray
    """Mean, counts; shape (6,)."""
    aa: np.ndarray = field(repr=False)
    """Centred second moment ``mean (a - a_mean)(a - a_mean)'``; shape (3, 3)."""
    ra: np.ndarray = field(repr=False)
    """Centred cross moment; shape (6, 3)."""
    rr: np.ndarray = field(repr=False)
    """Centred second moment of the counts; shape (6, 6)."""
    at: np.ndarray | None = field(default=None, repr=False)
    """Centred cross moment of acceleration and temperature, where a drift was estimated; shape (3,)."""
    tt: float = 0.0
    """Centred second moment of the temperature in K^2."""

    @classmethod
    def of(cls, dataset: Dataset, *, drift: bool = False) -> 'Moments':
        """Moments of a dataset; with ``drift`` also those of its temperature, whose coefficient then counts as unknown."""
        a, r = dataset.acceleration.mean(axis=0), dataset.strain.mean(axis=0)
        da, dr = dataset.acceleration - a, dataset.strain - r
        n = len(dataset)
        warm: dict = {}
        if drift and dataset.temperature is not None:
            dt = dataset.temperature - dataset.temperature.mean()
            warm = {'at': da.T @ dt / n, 'tt': float(dt @ dt / n)}
        return cls(n, a, r, da.T @ da / n, dr.T @ da / n, dr.T @ dr / n, **warm)


def check_datasets(datasets: Sequence[Dataset], *, saturation: float = SATURATION) -> None:
    """Raise a sentence for what no solver could use: too few orientations, a saturated or a dead channel."""
    if not datasets:
        raise EstimationError('There are no samples. Take at least four orientations with each of three loads.')
    for d in datasets:
        row, channel = np.unravel_index(np.argmax(np.abs(d.strain)), d.strain.shape)
        if abs(d.strain[row, channel]) >= saturation:
            raise EstimationError(
                f"Dataset '{d.name}': channel {channel} is saturated in sample {row} ({d.strain[row, channel]:.0f} counts, limit "
                f'{saturation:.0f}). Remove the sample, use a lighter mass or lower the gain of the sensor.'
            )
        if len(d) < 4:
            raise EstimationError(
                f"Dataset '{d.name}' has {len(d)} sample{'s' * (len(d) != 1)}; map and offset need at least four orientations."
            )
        spread = np.sqrt(np.linalg.eigvalsh(Moments.of(d).aa)[0])
        if spread < 0.3:
            raise EstimationError(
                f"Dataset '{d.name}': its {len(d)} samples hold fewer than four independent orientations (gravity varies by only "
                f'{spread:.2f} m/s^2 along one axis). Tilt the body about another axis and add samples.'
            )
    spread = np.min([np.ptp(d.strain, axis=0) for d in datasets], axis=0)
    for channel in np.flatnonzero(spread == 0):
        raise EstimationError(f'Channel {channel} never changes: it is dead or not connected. Check the cable of the sensor.')
