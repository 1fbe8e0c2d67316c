# SPDX-License-Identifier: Apache-2.0
"""A six-axis strain sensor that exists only here: a random well-conditioned matrix, offset, drift, quantisation, saturation."""

from dataclasses import dataclass

import numpy as np

from multibody_estimation.calibration.model import AXES, GRAVITY, SATURATION, Dataset, Load, gravity_map
from multibody_estimation.errors import EstimationError
from multibody_estimation.window import Signal, Window


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


def simulated_session(
    sensor: StrainSensor,
    load: Load,
    directions: np.ndarray,
    rng: np.random.Generator,
    *,
    name: str = 'ft/sensor/strain',
    rate: float = 100.0,
    hold: float = 1.2,
    turn: float = 0.6,
    start: int = 1_000_000_000,
    temperature: float | None = 25.0,
) -> Window:
    """Record somebody who holds the body with ``load`` still with up along each direction (n, 3) in turn, and turns it between.

    Signals as a bag has them: strain in counts with temperature, accelerometer and gyroscope at ``rate`` Hz; times in s, start in ns.
    """  # fmt: skip
    u = np.asarray(directions, dtype=float) / np.linalg.norm(directions, axis=1, keepdims=True)
    ups, rates = [], []
    for i, here in enumerate(u):
        if i:
            before = u[i - 1]
            axis = np.cross(before, here)
            sine = np.linalg.norm(axis)
            axis = axis / sine if sine > 1e-9 else np.linalg.svd(before[None])[2][1]
            whole = np.arctan2(sine, before @ here)
            s = np.arange(1, max(2, round(turn * rate))) / max(2, round(turn * rate))
            phi = whole * (s - np.sin(2 * np.pi * s) / (2 * np.pi))
            ups.append(np.cos(phi)[:, None] * before + np.sin(phi)[:, None] * np.cross(axis, before))
            # The body turns against the direction that up takes in its axes.
            rates.append(-np.outer(whole * (1 - np.cos(2 * np.pi * s)) / turn, axis))
        count = round(hold * rate)
        ups.append(np.tile(here, (count, 1)))
        rates.append(np.zeros((count, 3)))
    a, w = GRAVITY * np.concatenate(ups), np.concatenate(rates)
    stamps = start + np.round(np.arange(len(a)) * 1e9 / rate).astype(np.int64)
    warm = sensor.reference_temperature if temperature is None else temperature
    counts = sensor.counts(a @ gravity_map(sensor.body + load.inertia).T, rng, warm)
    signals = [
        Signal(name, stamps, counts, AXES, 'counts'),
        Signal(f'{name}/saturated', stamps, (np.abs(counts) >= sensor.saturation).astype(float), AXES),
        Signal('imu/accelerometer', stamps, sensor.accelerometer(a, rng), ('x', 'y', 'z'), 'm/s^2'),
        Signal('imu/gyroscope', stamps, w + 0.002 * rng.normal(size=w.shape), ('x', 'y', 'z'), 'rad/s'),
    ]
    if temperature is not None:
        signals.append(Signal(f'{name}/temperature', stamps, np.full((len(a), 1), temperature), ('temperature',), 'degC'))
    return Window.gather(signals, source=f'simulated session with {load}')
