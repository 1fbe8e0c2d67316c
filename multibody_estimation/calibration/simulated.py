# SPDX-License-Identifier: Apache-2.0
"""A six-axis strain sensor that exists only here: a random well-conditioned matrix, offset, drift, quantisation, saturation."""

from dataclasses import dataclass

import numpy as np

from multibody_estimation.calibration.model import GRAVITY, SATURATION, Dataset, Load, gravity_map
from multibody_estimation.errors import EstimationError


@dataclass(frozen=True, eq=False)
class StrainSensor:
    """What a strain sensor does to a wrench, and the body that hangs on it."""

    matrix: np.ndarray
    """True C in N and N m per count; shape (6, 6)."""
    offset: np.ndarray
    """Counts at zero wrench and reference temperature; shape (6,)."""
    body: np.ndarray
    """``[m, m c]`` of the unknown body in kg and kg m; shape (4,)."""
    drift: np.ndarray
    """Counts per kelvin; shape (6,)."""
    reference_temperature: float = 25.0
    """Degrees Celsius at which ``offset`` holds."""
    strain_noise: float = 10.0
    """Counts, standard deviation."""
    acceleration_noise: float = 0.05
    """m/s^2, standard deviation."""
    acceleration_bias: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """m/s^2."""
    quantised: bool = True
    """Whether the counts are whole numbers."""
    saturation: float = SATURATION
    """Largest count the converter gives."""

    @classmethod
    def random(
        cls,
        seed: int = 0,
        *,
        full_scale_force: float = 1000.0,
        full_scale_torque: float = 40.0,
        crosstalk: float = 0.3,
        body: tuple[float, float, float, float] = (1.5, 0.01, -0.02, 0.06),
        **more,
    ) -> 'StrainSensor':
        """Draw a sensor: orthogonal mixing of the six axes with ``crosstalk``, scaled so that full scale is the last count.

        ``body`` is mass in kg and centre of mass in m.
        """
        rng = np.random.default_rng(seed)
        if not 0 <= crosstalk <= 1:
            raise EstimationError(f'crosstalk is a share from 0 to 1, not {crosstalk}.')
        skew = rng.normal(size=(6, 6))
        mixing = np.linalg.solve(np.eye(6) + crosstalk * (skew - skew.T) / 2, np.eye(6) - crosstalk * (skew - skew.T) / 2)
        full = np.repeat([full_scale_force, full_scale_torque], 3)
        gain = rng.uniform(0.8, 1.25, 6)
        matrix = full[:, None] * mixing * gain / SATURATION
        offset = rng.uniform(-4000, 4000, 6)
        mass, *center = body
        inertia = mass * np.array([1.0, *center])
        return cls(matrix, offset, inertia, rng.uniform(-8, 8, 6), **more)

    def counts(self, wrench: np.ndarray, rng: np.random.Generator | None, temperature: float | np.ndarray = 25.0) -> np.ndarray:
        """Counts for wrenches in N and N m, shape (n, 6); without ``rng`` there is no noise."""
        r = np.linalg.solve(self.matrix, np.atleast_2d(wrench).T).T + self.offset
        r = r + np.multiply.outer(np.broadcast_to(np.asarray(temperature) - self.reference_temperature, len(r)), self.drift)
        if rng is not None:
            r = r + self.strain_noise * rng.normal(size=r.shape)
        if self.quantised:
            r = np.round(r)
        return np.clip(r, -self.saturation - 1, self.saturation)

    def accelerometer(self, acceleration: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """Accelerometer reading in m/s^2 for a true proper acceleration, shape (n, 3)."""
        a = np.atleast_2d(acceleration) + np.asarray(self.acceleration_bias)
        return a if rng is None else a + self.acceleration_noise * rng.normal(size=a.shape)

    def dataset(self, load: Load, acceleration: np.ndarray, rng: np.random.Generator | None, **more) -> Dataset:
        """Hold the body with ``load`` still under each true proper acceleration in m/s^2, shape (n, 3), and sample."""
        wrench = np.atleast_2d(acceleration) @ gravity_map(self.body + load.inertia).T
        temperature = more.pop('temperature', None)
        warm = self.reference_temperature if temperature is None else temperature
        return Dataset(load, self.counts(wrench, rng, warm), self.accelerometer(acceleration, rng), temperature, **more)


def random_orientations(count: int, rng: np.random.Generator) -> np.ndarray:
    """Proper accelerations in m/s^2 of bodies held still in random orientations; shape (count, 3)."""
    v = rng.normal(size=(count, 3))
    return GRAVITY * v / np.linalg.norm(v, axis=1, keepdims=True)
