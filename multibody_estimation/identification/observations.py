# SPDX-License-Identifier: Apache-2.0
"""What the sensors see and what the motors do: observations and inputs of an identification problem.

An observation predicts its signal from joint positions, velocities and accelerations (q, qd, qdd; each (nq, n), time last), the
model and its own settings. Write another one by giving a class the fields and the ``predict`` of `Custom`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['Accelerometer', 'Custom', 'Encoder', 'ForceTorque', 'Gyroscope', 'Input', 'JointTorque', 'Observation', 'Position']

KINDS = ('torque', 'voltage')


@dataclass(frozen=True)
class Input:
    """A command signal that pushes one joint, held between its samples (zero-order hold)."""

    signal: str = 'command'
    joint: str = ''
    kind: str = 'torque'
    """``torque``: the signal is the joint's force (N m or N). ``voltage``: gain * signal - back_emf * joint speed."""
    delay: float = 0.0
    """Seconds from the stamp to the effect at the joint; parameter ``<signal>.delay``."""
    gain: float = 1.0
    """Force per unit of the signal; parameter ``<signal>.gain``."""
    back_emf: float = 0.0
    """Force lost per unit of joint speed (N m s/rad); parameter ``<signal>.back_emf``."""
    offset: float = 0.0
    """Constant force at the joint (N m); parameter ``<signal>.offset``."""
    column: str = ''
    """Column of the signal, where it has several; empty: the one named like the joint, or the only one."""
    noise: float = 0.0
    """Standard deviation of the signal in its unit, for robots whose torques are measured; 0: not stated."""

    def __post_init__(self) -> None:
        if self.noise < 0:
            raise EstimationError(f'{self.signal}: noise {self.noise} must not be negative.')
        if self.kind not in KINDS:
            raise EstimationError(f"{self.signal}: input kind '{self.kind}' is unknown.{did_you_mean(self.kind, KINDS)}")
        if not self.joint:
            raise EstimationError(f'{self.signal}: say which joint the input drives, e.g. Input(joint="shoulder").')
        if not 0 <= self.delay < 1:
            raise EstimationError(f'{self.signal}: a delay of {self.delay} s is outside [0, 1) s.')


NUMBERS = ('offset', 'bias', 'delay')
"""Fields of a sensor that can be estimated."""


@dataclass(frozen=True)
class Observation:
    """What every sensor has: a signal, the noise of its samples, a delay."""

    signal: str
    noise: float | tuple[float, ...] = 0.0
    """Standard deviation in the signal's unit, one or one per column; 0 takes the signal's own, or the quantisation's."""
    delay: float = 0.0
    """Seconds by which the stamp comes after the moment it describes; parameter ``<signal>.delay``."""
    huber: float = 0.0
    """Residuals beyond so many standard deviations count linearly (robust loss); 0: plain least squares."""

    @property
    def angular(self) -> bool:
        """True where 2 pi is no difference."""
        return False

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the signal that it reads; empty: all."""
        return ()

    @property
    def axes(self) -> tuple[str, ...]:
        """Last part of the names of its offsets or biases."""
        return ()


@dataclass(frozen=True)
class Encoder(Observation):
    """Joint angles (rad) or positions (m), with an offset each: parameter ``<signal>.offset.<joint>``."""

    signal: str = 'encoders'
    joints: tuple[str, ...] = ()
    quantisation: float = 0.0
    """Step of the encoder in rad or m; adds step / sqrt(12) to the noise."""
    wrap: bool = True
    """Angles that differ by a full turn are equal (revolute joints)."""
    offset: tuple[float, ...] = ()
    """Reading at joint zero, in rad or m, one per joint; empty: zero."""

    def __post_init__(self) -> None:
        if not self.joints:
            raise EstimationError(f'{self.signal}: say which joints the encoder reads, e.g. joints=("shoulder", "elbow").')
        if self.quantisation < 0:
            raise EstimationError(f'{self.signal}: quantisation {self.quantisation} must not be negative.')
        if self.offset and len(self.offset) != len(self.joints):
            raise EstimationError(f'{self.signal}: {len(self.offset)} offsets for {len(self.joints)} joints.')
        object.__setattr__(self, 'offset', tuple(self.offset) or (0.0,) * len(self.joints))
        if np.any(np.asarray(self.noise) < 0):
            raise EstimationError(f'{self.signal}: noise must not be negative, in rad or m, not {self.noise}.')

    @property
    def angular(self) -> bool:
        return self.wrap

    @property
    def axes(self) -> tuple[str, ...]:
        return self.joints

    @property
    def columns(self) -> tuple[str, ...]:
        return self.joints


@dataclass(frozen=True)
class OnLink(Observation):
    """A sensor that sits on a link."""

    link: str = ''
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Its origin in the link's frame [m]."""
    rpy: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Its orientation there, roll, pitch, yaw [rad]."""
    bias: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Reading at zero; parameters ``<signal>.bias.x`` and so on."""

    def __post_init__(self) -> None:
        if not self.link:
            raise EstimationError(f'{self.signal}: say on which link the sensor sits, e.g. link="forearm".')

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of its columns, as the parameters of its bias have them."""
        return ('x', 'y', 'z')


@dataclass(frozen=True)
class Gyroscope(OnLink):
    """Angular velocity in the sensor's frame (rad/s), with a bias."""

    signal: str = 'imu/gyroscope'


@dataclass(frozen=True)
class Accelerometer(OnLink):
    """Proper acceleration in the sensor's frame (m/s^2; at rest it shows gravity upward), with a bias."""

    signal: str = 'imu/accelerometer'


@dataclass(frozen=True)
class Position(OnLink):
    """Position of a point of a link in the world (m), e.g. a marker at the tip, with an offset: parameters ``<signal>.bias.x``."""

    signal: str = 'tip'


@dataclass(frozen=True)
class ForceTorque(OnLink):
    """Force (N) and moment (N m) that pass through the joint that carries ``link``, onto that link, about the sensor's origin and in its axes.

    Of the links beyond, motion and weight; parameters ``<signal>.bias.fx`` ... ``.tz``.
    """

    signal: str = 'ft/wrench'
    bias: tuple[float, ...] = (0.0,) * 6

    @property
    def axes(self) -> tuple[str, ...]:
        return ('fx', 'fy', 'fz', 'tx', 'ty', 'tz')


@dataclass(frozen=True)
class JointTorque(Observation):
    """Joint torque sensors (N m): what the links demand of the joints, friction included; parameters ``<signal>.bias.<joint>``."""

    signal: str = 'joint_torques'
    joints: tuple[str, ...] = ()
    bias: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.joints:
            raise EstimationError(f'{self.signal}: say which joints it reads, e.g. joints=("shoulder", "elbow").')
        object.__setattr__(self, 'bias', tuple(self.bias) or (0.0,) * len(self.joints))

    @property
    def axes(self) -> tuple[str, ...]:
        return self.joints

    @property
    def columns(self) -> tuple[str, ...]:
        return self.joints


@dataclass(frozen=True)
class Custom(Observation):
    """Any sensor: ``function(model, q, qd, qdd) -> (k, n)``, JAX-traceable, time axis last."""

    signal: str = ''
    function: Callable[[Any, Any, Any, Any], Any] | None = None
    names: tuple[str, ...] = ()
    wrap: bool = False

    def __post_init__(self) -> None:
        if not self.signal or self.function is None:
            raise EstimationError('A custom observation needs a signal and a function(model, q, qd, qdd).')

    @property
    def angular(self) -> bool:
        return self.wrap

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names
