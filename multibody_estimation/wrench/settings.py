# SPDX-License-Identifier: Apache-2.0
"""What an estimate of wrenches is told beside the model: sensors, noise, contacts, priors. `WrenchSetup` is the value of it all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['SENSORS', 'Prior', 'SubMass', 'WrenchSensor', 'WrenchSetup', 'covariance_matrix']

SENSORS: dict[str, tuple[int, str]] = {
    'accelerometer': (3, 'm/s^2'), 'gyroscope': (3, 'rad/s'), 'angular_accelerometer': (3, 'rad/s^2'), 'force_torque': (6, 'N, N m'),
    'skin': (1, 'N'), 'external_wrench': (6, 'N, N m'), 'joint_torque': (1, 'N m'), 'joint_acceleration': (1, 'rad/s^2'),
}  # fmt: skip
"""Numbers per sample of each type of sensor, and their unit."""
Vector = Sequence[float]


def covariance_matrix(noise: Any, size: int, where: str, zero: bool = False) -> np.ndarray:
    """Covariance from standard deviations (one, or one per axis) or from a matrix; checked."""
    x = np.asarray(noise, dtype=float)
    if not np.isfinite(x).all():
        raise EstimationError(f'{where}: its noise holds {x.tolist()}; every number must be finite.')
    if x.ndim == 2:
        if x.shape != (size, size):
            raise EstimationError(f'{where}: its covariance is {x.shape[0]} x {x.shape[1]}; {size} x {size} is needed.')
        if not np.allclose(x, x.T, rtol=1e-9, atol=1e-12 * np.abs(x).max()):
            raise EstimationError(f'{where}: its covariance is not symmetric.')
        low = np.linalg.eigvalsh(x).min()
        if low < (-1e-12 * np.abs(x).max() if zero else 1e-300):
            raise EstimationError(f'{where}: its covariance has an eigenvalue of {low:.3g}; it must be positive definite.')
        return 0.5 * (x + x.T)
    if x.ndim > 1 or x.size not in (1, size):
        raise EstimationError(f'{where}: its noise has {x.size} numbers; 1 or {size} standard deviations are needed.')
    std = np.broadcast_to(x.ravel(), (size,))
    if (std < 0).any() or (not zero and (std == 0).any()):
        raise EstimationError(
            f'{where}: its noise is {std.tolist()}; a standard deviation must be {"at least zero" if zero else "positive"}.'
        )
    return np.diag(std**2)


@dataclass(frozen=True, eq=False)
class Prior:
    """What is believed of six numbers (or one, of a joint) before the sensors: mean, and covariance or standard deviations."""

    noise: Any
    """Standard deviations, or a covariance matrix."""
    mean: Any = 0.0


@dataclass(frozen=True, eq=False)
class SubMass:
    """The part of a link between its joint and a force/torque sensor inside it."""

    mass: float
    """[kg]"""
    center_of_mass: Vector = (0.0, 0.0, 0.0)
    """In the link's frame [m]."""
    inertia: Any = (0.0, 0.0, 0.0)
    """About the centre of mass [kg m^2]: the diagonal, or a 3x3 matrix."""


@dataclass(frozen=True, eq=False)
class WrenchSensor:
    """One sensor. Measured = what its type says, in its own frame, plus offset, plus noise."""

    name: str
    type: str
    """One of `SENSORS`."""
    on: str
    """Link; joint for ``force_torque``, ``joint_torque`` and ``joint_acceleration``; link for a force/torque sensor with sub-mass."""
    noise: Any
    """Standard deviation (one, or one per axis), or a covariance matrix, in the sensor's unit."""
    position: Vector = (0.0, 0.0, 0.0)
    """Origin of the sensor's frame in its link (of a joint's sensor: in the link `frame_link`) [m]."""
    rpy: Vector = (0.0, 0.0, 0.0)
    """Its orientation there, roll, pitch, yaw [rad]."""
    offset: Any = 0.0
    """Constant part of the measurement, known from calibration."""
    gate: float | None = None
    """Probability, e.g. 1e-4, below which a sample counts as an outlier and is left out; None: never."""
    normal: Vector = (0.0, 0.0, 1.0)
    """Of a ``skin`` sensor: direction of the force it measures, in its frame; the force is that of the world on the robot."""
    sub_mass: SubMass | None = None
    frame_link: str = ''
    """Of a ``force_torque`` sensor: link in which its frame is fixed; the child of its joint by default."""
    acts_on: str = ''
    """Of a ``force_torque`` sensor: link on which the measured wrench acts; the child of its joint by default."""
    share: str = ''
    """Sensors of the same type with the same word here share one covariance when it is learned."""
    signal: str = ''
    """Signal of a recording that holds it; the sensor's name by default."""

    @property
    def size(self) -> int:
        """Numbers per sample."""
        return SENSORS[self.type][0]

    @property
    def where(self) -> str:
        return f"sensor '{self.name}'"

    def covariance(self) -> np.ndarray:
        """(size, size), in the square of the sensor's unit."""
        return covariance_matrix(self.noise, self.size, self.where)

    def bias(self) -> np.ndarray:
        """The offset as (size,)."""
        x = np.asarray(self.offset, dtype=float)
        if not np.isfinite(x).all() or x.size not in (1, self.size):
            raise EstimationError(f'{self.where}: its offset must be 1 or {self.size} finite numbers, not {x.tolist()}.')
        return np.broadcast_to(x.ravel(), (self.size,)).copy()


def _frozen() -> Any:
    return field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, eq=False)
class WrenchSetup:
    """Sensors, contacts and noise. The word ``*`` stands for every link (or joint) that is not named."""

    sensors: tuple[WrenchSensor, ...]
    base: str = ''
    """Link the tree is held by; the model's base by default."""
    floating: bool | None = None
    """Whether the base's acceleration is unknown; as the model says by default. A fixed base feels gravity only."""
    gravity: Vector | None = None
    """In the base's frame [m/s^2]; for a fixed base other than the model's."""
    contacts: Mapping[str, Prior] = _frozen()
    """Links on which the world may act, with the prior of that wrench (force, moment about the link's origin) [N, N m]."""
    contact_free: Prior = field(default_factory=lambda: Prior(1e-3))
    """Prior of the external wrench of all other links: small [N, N m]."""
    equation_noise: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({'*': 1e-2}))
    """By link: standard deviation or covariance of the Newton-Euler equation [N, N m]; zero makes it exact."""
    motion_noise: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({'*': 1e-2}))
    """By link: the same of the acceleration that its joint gives it [m/s^2, rad/s^2]."""
    joint_acceleration: Mapping[str, Prior] = field(default_factory=lambda: MappingProxyType({'*': Prior(100.0)}))
    """By joint: prior of its acceleration [rad/s^2 or m/s^2]."""
    acceleration: Mapping[str, Prior] = _frozen()
    """By link: prior of its proper acceleration, where there is one [m/s^2, rad/s^2]."""
    joint_wrench: Mapping[str, Prior] = _frozen()
    """By link: prior of the wrench its joint transmits, where there is one [N, N m]."""
    positions: str = 'encoders'
    """Signal of a recording with the joint positions; its columns are joint names."""
    velocities: str = ''
    """Signal with the joint velocities; empty: the positions are differentiated."""
    base_velocity: str = ''
    """Signal with the angular velocity of a floating base, in its frame; empty: told by the gyroscopes."""
    smoothing: float = 0.1
    """Span over which positions are differentiated [s]."""
    joint_noise: tuple[float, float] = (1e-3, 1e-2)
    """Standard deviation of joint positions and velocities, for the estimate of the state [rad, rad/s]."""

    def __post_init__(self) -> None:
        object.__setattr__(self, 'sensors', tuple(self.sensors))
        for name in ('contacts', 'equation_noise', 'motion_noise', 'joint_acceleration', 'acceleration', 'joint_wrench'):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        seen: set[str] = set()
        for s in self.sensors:
            if s.type not in SENSORS:
                raise EstimationError(f"{s.where} has type '{s.type}'.{did_you_mean(s.type, SENSORS)}")
            if s.name in seen:
                raise EstimationError(f'{s.where}: two sensors have this name; names must be unique.')
            if s.gate is not None and not 0 < s.gate < 1:
                raise EstimationError(f'{s.where}: its gate is {s.gate}; it is a probability, e.g. 1e-4.')
            seen.add(s.name)
            s.covariance(), s.bias()
        if self.smoothing <= 0:
            raise EstimationError(f'smoothing is {self.smoothing} s; it must be positive.')

    @property
    def rows(self) -> dict[str, slice]:
        """Where each sensor stands in the measurement vector."""
        out, at = {}, 0
        for s in self.sensors:
            out[s.name] = slice(at, at + s.size)
            at += s.size
        return out

    @property
    def size(self) -> int:
        """Length of the measurement vector."""
        return sum(s.size for s in self.sensors)

    def sensor(self, name: str) -> WrenchSensor:
        """Return a sensor by name."""
        for s in self.sensors:
            if s.name == name:
                return s
        raise EstimationError(f"There is no sensor '{name}'.{did_you_mean(name, [s.name for s in self.sensors])}")

    def replace(self, **fields: Any) -> 'WrenchSetup':
        """Return the setup with other fields."""
        return replace(self, **fields)

    def with_contacts(self, contacts: Mapping[str, Prior] | Sequence[str]) -> 'WrenchSetup':
        """Return the setup with other contact links; names alone get a prior of 200 N and 50 N m."""
        if not isinstance(contacts, Mapping):
            contacts = {name: Prior((200.0,) * 3 + (50.0,) * 3) for name in contacts}
        return replace(self, contacts=contacts)

    def with_covariance(self, covariance: Any) -> 'WrenchSetup':
        """Return the setup with the noise of all sensors taken from one matrix over the measurement vector, block by block.

        Noise that two sensors share cannot be used: the sweep over the tree treats sensors one by one.
        """
        C = np.asarray(covariance, dtype=float)
        if C.shape != (self.size, self.size):
            raise EstimationError(f'The covariance of the measurements has shape {C.shape}; {(self.size, self.size)} is needed.')
        rows, sensors = self.rows, []
        owner = np.concatenate([np.full(s.size, i) for i, s in enumerate(self.sensors)]) if self.sensors else np.zeros(0, int)
        bad = np.argwhere((C != 0) & (owner[:, None] != owner[None]))
        if len(bad):
            a, b = (self.sensors[owner[k]] for k in bad[0])
            raise EstimationError(
                f"The covariance couples sensor '{a.name}' on '{a.on}' with sensor '{b.name}' on '{b.on}' (entry {bad[0][0]}, {bad[0][1]}). "
                'Noise shared between sensors is not supported: give each sensor its own block, zeros elsewhere.'
            )
        for s in self.sensors:
            sensors.append(replace(s, noise=C[rows[s.name], rows[s.name]]))
        return replace(self, sensors=tuple(sensors))
