# SPDX-License-Identifier: Apache-2.0
"""A force/torque sensor in the hands of a technician who exists only here: held still, turned, held still, with one load after the other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from multibody_estimation.calibration.model import SATURATION, Load, gravity_map
from multibody_estimation.calibration.simulated import StrainSensor, random_orientations
from multibody_estimation.errors import EstimationError
from multibody_estimation.hardware.device import Channel, Device, DeviceLost, Sample
from multibody_estimation.hardware.pace import Pace

__all__ = ['Hold', 'SimulatedStrain']

SHAKE = 0.6
"""m/s^2 by which a hand shakes while it turns the sensor."""


@dataclass(frozen=True)
class Hold:
    """A stretch of time in which the sensor is held still."""

    begin: float
    """Seconds from the first sample."""
    end: float
    load: Load


@dataclass
class SimulatedStrain(Device):
    """``ft/<name>/strain`` (RawStrain, in counts) and ``imu/data_raw`` (accelerometer and gyroscope in the sensor's axes)."""

    name: str = 'sensor'
    rate: float = 100.0
    """Readings per second of both."""
    orientations: int = 12
    """How many orientations are held with each load."""
    hold: float = 2.0
    """Seconds each is held."""
    turn: float = 1.0
    """Seconds to the next; the loads are changed in such a pause too."""
    loads: tuple[str, ...] = field(default=('0', '0.5:0,0,0.1'), metadata={'separator': ';'})
    """``mass:x,y,z`` of each load in kg and m, one after the other; ``0`` is the empty sensor."""
    repeat: bool = True
    """Begin again with the first load at the end; otherwise the last orientation is held for ever."""
    temperature: float = 25.0
    """Degrees Celsius."""
    warming: float = 0.0
    """Kelvin per minute; the counts drift with it."""
    realtime: bool = True
    seed: int = 0
    """Of the sensor (matrix, offset, drift), the orientations and the noise."""
    epoch: int = 0
    """First stamp in ns; 0: now."""

    _pace: Pace | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.rate > 0 or self.orientations < 1 or not self.hold > 0 or not self.turn > 0:
            raise EstimationError('rate, orientations, hold and turn must all be above zero.')
        self.sensor = StrainSensor.random(self.seed)
        """The true sensor."""
        rng = np.random.default_rng(self.seed + 1)
        kept = [_load(text) for text in self.loads]
        if not kept:
            raise EstimationError("Give one load at least; '0' is the empty sensor.")
        self._poses = [(load, u) for load in kept for u in random_orientations(self.orientations, rng)]
        self._rng = np.random.default_rng(self.seed + 2)

    @property
    def channels(self) -> tuple[Channel, ...]:
        noise = {'/accelerometer': (self.sensor.acceleration_noise,) * 3, '/gyroscope': (2e-3,) * 3}
        topic = f'ft/{self.name}/strain'
        return (
            Channel(topic, 'multibody_estimation/msg/RawStrain', topic, frame=self.name, rate=self.rate, serial=f'SIM{self.seed:03d}',
                    noise={'': (self.sensor.strain_noise,) * 6}),
            Channel('imu/data_raw', 'sensor_msgs/msg/Imu', 'imu', frame=self.name, rate=self.rate, noise=noise),
        )  # fmt: skip

    def schedule(self) -> tuple[Hold, ...]:
        """When it is held still with which load, in one round."""
        step = self.hold + self.turn
        return tuple(Hold(k * step, k * step + self.hold, load) for k, (load, _) in enumerate(self._poses))

    def open(self) -> None:
        """Begin with the first orientation."""
        self._pace = Pace(self.rate, self.realtime, self.epoch)

    def read(self, timeout: float) -> list[Sample]:
        """Return the next reading of both sensors."""
        if self._pace is None:
            raise DeviceLost('The simulated sensor is not open.')
        now = self._pace.count / self.rate
        stamp = self._pace.wait(timeout)
        if stamp is None:
            return []
        load, acceleration, rotation, moving = self._pose(now)
        shaking = acceleration + (SHAKE * self._rng.normal(size=3) if moving else 0.0)
        wrench = gravity_map(self.sensor.body + load.inertia) @ shaking
        warm = self.temperature + self.warming * now / 60
        counts = self.sensor.counts(wrench[None], self._rng, warm)[0]
        strain: dict[str, Any] = {
            '': counts.tolist(), '/saturated': (np.abs(counts) >= SATURATION).astype(float).tolist(), '/temperature': (warm,),
        }  # fmt: skip
        inertial = {
            '/accelerometer': self.sensor.accelerometer(shaking, self._rng)[0].tolist(),
            '/gyroscope': (rotation + 2e-3 * self._rng.normal(size=3)).tolist(),
        }
        return [Sample(f'ft/{self.name}/strain', stamp, strain), Sample('imu/data_raw', stamp, inertial)]

    def _pose(self, now: float) -> tuple[Load, np.ndarray, np.ndarray, bool]:
        """Load, proper acceleration (m/s^2), angular velocity (rad/s) in the sensor's axes, and whether it is being turned."""
        step, total = self.hold + self.turn, len(self._poses)
        k = int(now / step)
        if k >= total - 1 and not self.repeat:
            k, now = total - 1, (total - 1) * step
        load, u = self._poses[k % total]
        since = now - k * step - self.hold
        if since < 0:
            return load, u, np.zeros(3), False
        v = self._poses[(k + 1) % total][1]
        axis = np.cross(u, v)
        size = np.linalg.norm(axis)
        axis = axis / size if size > 1e-9 else np.array([1.0, 0.0, 0.0])
        angle = math.atan2(size, u @ v)
        share = 0.5 - 0.5 * math.cos(math.pi * since / self.turn)
        speed = angle * 0.5 * math.pi / self.turn * math.sin(math.pi * since / self.turn)
        a = share * angle
        turned = u * math.cos(a) + np.cross(axis, u) * math.sin(a) + axis * (axis @ u) * (1 - math.cos(a))
        # What stands still in the world turns backwards in the sensor's axes.
        return load, turned, -speed * axis, True

    def close(self) -> None:
        """Put the sensor away."""
        self._pace = None

    @property
    def truth(self) -> Mapping[str, float]:
        """Entries of the true matrix (N and N m per count), row by row, and of the offset (counts)."""
        matrix = {f'matrix.{i}{j}': float(self.sensor.matrix[i, j]) for i in range(6) for j in range(6)}
        return matrix | {f'offset.{i}': float(self.sensor.offset[i]) for i in range(6)}


def _load(text: str) -> Load:
    mass, _, center = text.partition(':')
    try:
        x, y, z = (float(c) for c in center.split(',')) if center else (0.0, 0.0, 0.0)
        return Load(float(mass), (x, y, z))
    except ValueError as error:
        if isinstance(error, EstimationError):
            raise
        raise EstimationError(f"'{text}' is no load; write mass:x,y,z in kg and m, e.g. 0.5:0,0,0.1.") from None
