# SPDX-License-Identifier: Apache-2.0
"""`Model`: a tree of links and joints as a value; what is structure is hashable, every physical number is a pytree leaf."""

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, static, value
from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['DEGREES', 'POSITIONS', 'Model', 'Structure']

POSITIONS = {'revolute': 1, 'prismatic': 1, 'spherical': 4, 'floating': 7}
"""Numbers in the position vector for each kind of moving joint; quaternions are (w, x, y, z)."""
DEGREES = {'revolute': 1, 'prismatic': 1, 'spherical': 3, 'floating': 6}
"""Degrees of freedom for each kind of moving joint."""


@dataclasses.dataclass(frozen=True)
class Structure:
    """Names and topology: the part of a model that a compiled program is specialised to."""

    name: str
    link_names: tuple[str, ...]
    """Parents before children; the first one is the base."""
    parents: tuple[int, ...]
    """Parent link of each link, -1 for the base."""
    link_joint_names: tuple[str, ...]
    """Joint that carries each link, moving or fixed; '' for the base."""
    joint_names: tuple[str, ...]
    """Moving joints, in the order of the position and velocity vectors."""
    joint_types: tuple[str, ...]
    """``revolute``, ``prismatic``, ``spherical`` or ``floating`` for each moving joint."""
    joint_links: tuple[int, ...]
    """Link that each moving joint carries."""
    floating: bool
    """Whether the base floats: then the first 7 positions and 6 velocities are its own."""
    friction_law: str
    """``stick``: dry friction holds exactly at rest; ``smooth``: its sign is tanh(velocity / friction_velocity)."""
    sensor_names: tuple[str, ...] = ()
    sensor_types: tuple[str, ...] = ()
    """``force_torque``, ``imu``, ``accelerometer`` or ``gyroscope``."""
    sensor_links: tuple[int, ...] = ()
    """Link on which each sensor sits; a force/torque sensor sits on the link that is its joint's child in the URDF."""
    sensor_joints: tuple[str, ...] = ()
    """Joint whose wrench each force/torque sensor measures; '' for other sensors."""
    sensor_acts_on: tuple[int, ...] = ()
    """Link on which the measured wrench acts; -1 for other sensors. The link on the joint's other side exerts it."""

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, f.name) for f in dataclasses.fields(self)))

    def __hash__(self) -> int:
        # A model is an argument of nearly every compiled function: its hash is asked for at each call.
        return self._hash


@value
class Model:
    """A kinematic tree with its dynamics. All numbers in SI; nl links, nj moving joints, ns sensors.

    Positions are those of the floating base, if any (position in the world, quaternion w x y z), then those of the joints in
    the order of ``joint_names``; velocities are the base's (linear and angular, both in the base frame), then the joints'.
    """

    structure: Structure = static()
    mass: Any
    """Mass of each link [kg]; (nl,)."""
    center_of_mass: Any
    """Centre of mass in the link's frame [m]; (nl, 3)."""
    inertia: Any
    """Inertia about the centre of mass, axes of the link's frame [kg m^2]; (nl, 3, 3)."""
    placement: Any
    """Origin of each link's joint, moving or fixed, in the parent link [m]; (nl, 3)."""
    placement_rpy: Any
    """Orientation of each link's joint in the parent link as roll, pitch, yaw [rad]; (nl, 3)."""
    axis: Any
    """Axis of each moving joint in its child link, a unit vector (not used by spherical and floating ones); (nj, 3)."""
    armature: Any
    """Rotor inertia seen at the joint [kg m^2 or kg]; (nj,)."""
    damping: Any
    """Viscous friction [N m s/rad or N s/m]; (nj,)."""
    coulomb: Any
    """Dry friction while sliding [N m or N]; (nj,)."""
    stribeck: Any
    """Dry friction at the start of sliding in excess of ``coulomb`` [N m or N]; (nj,)."""
    stribeck_velocity: Any
    """Velocity at which that excess has fallen to 1/e [rad/s or m/s]; (nj,)."""
    friction_velocity: Any
    """Width of the sign change in the smooth friction law [rad/s or m/s]; (nj,)."""
    stiffness: Any
    """Joint spring [N m/rad or N/m]; (nj,)."""
    spring_rest: Any
    """Joint position at which its spring is free [rad or m]; (nj,)."""
    motor_gain: Any
    """Joint torque per unit of command [N m per unit]; (nj,)."""
    back_emf: Any
    """Motor torque lost per velocity [N m s/rad]; (nj,)."""
    motor_delay: Any
    """Time from command to torque [s]; (nj,)."""
    lower: Any
    """Lowest joint position [rad or m], -inf where unlimited; (nj,)."""
    upper: Any
    """Highest joint position [rad or m], inf where unlimited; (nj,)."""
    velocity_limit: Any
    """Highest joint speed [rad/s or m/s]; (nj,)."""
    effort_limit: Any
    """Highest joint torque or force [N m or N]; (nj,)."""
    sensor_position: Any
    """Origin of each sensor in its link [m]; (ns, 3)."""
    sensor_rpy: Any
    """Orientation of each sensor in its link, roll, pitch, yaw [rad]; (ns, 3)."""
    gravity: Any
    """Gravity in the world [m/s^2]; (3,)."""
    gravity_tilt: Any
    """Angles about the world's x and y by which true gravity is turned from ``gravity`` [rad]; (2,)."""

    # What structure says, under the model's own name.
    name = property(lambda self: self.structure.name)
    link_names = property(lambda self: self.structure.link_names)
    joint_names = property(lambda self: self.structure.joint_names)
    joint_types = property(lambda self: self.structure.joint_types)
    parents = property(lambda self: self.structure.parents)
    floating = property(lambda self: self.structure.floating)
    sensor_names = property(lambda self: self.structure.sensor_names)

    @property
    def nq(self) -> int:
        """Length of the position vector."""
        return 7 * self.floating + sum(POSITIONS[t] for t in self.joint_types)

    @property
    def nv(self) -> int:
        """Length of the velocity vector: degrees of freedom."""
        return 6 * self.floating + sum(DEGREES[t] for t in self.joint_types)

    def replace(self, **leaves: Any) -> 'Model':
        """Return the model with other numbers."""
        return dataclasses.replace(self, **leaves)

    def link_index(self, name: str) -> int:
        """Place of a link in ``link_names``."""
        return _index(name, self.link_names, 'link')

    def joint_index(self, name: str) -> int:
        """Place of a moving joint in ``joint_names``."""
        if name in self.structure.link_joint_names and name not in self.joint_names:
            raise EstimationError(f"Joint '{name}' is fixed: it has no position, velocity or torque.")
        return _index(name, self.joint_names, 'joint')

    def sensor_index(self, name: str) -> int:
        """Place of a sensor in ``sensor_names``."""
        return _index(name, self.sensor_names, 'sensor')

    def joint_positions(self, name: str) -> slice:
        """Where a joint stands in the position vector."""
        j = self.joint_index(name)
        start = 7 * self.floating + sum(POSITIONS[t] for t in self.joint_types[:j])
        return slice(start, start + POSITIONS[self.joint_types[j]])

    def joint_velocities(self, name: str) -> slice:
        """Where a joint stands in the velocity and torque vectors."""
        j = self.joint_index(name)
        start = 6 * self.floating + sum(DEGREES[t] for t in self.joint_types[:j])
        return slice(start, start + DEGREES[self.joint_types[j]])

    def __repr__(self) -> str:
        base = 'floating' if self.floating else 'fixed'
        return f'Model({self.name!r}: {len(self.link_names)} links, {self.nv} degrees of freedom, {base} base {self.link_names[0]!r})'


def _index(name: str, known: tuple[str, ...], kind: str) -> int:
    if name not in known:
        raise EstimationError(f"The model has no {kind} '{name}'.{did_you_mean(name, known)}")
    return known.index(name)


def check(model: Model, position: Any = None, velocity: Any = None, *more: Any) -> None:
    """Refuse vectors of the wrong length, and numbers that are known and not finite."""
    for what, x, length in [
        ('position', position, model.nq),
        ('velocity', velocity, model.nv),
        *(('acceleration or torque', m, model.nv) for m in more),
    ]:
        if x is None:
            continue
        shape = np.shape(x)
        if shape != (length,):
            raise EstimationError(
                f'{model.name}: the {what} vector has shape {shape}; {length} numbers are needed'
                f'{" (floating base first)" if model.floating else ""}: {", ".join(model.joint_names[:8])}'
                f'{", ..." if len(model.joint_names) > 8 else ""}. Use jax.vmap for a batch.'
            )
        if not isinstance(x, jax.core.Tracer) and not np.isfinite(np.asarray(x)).all():
            bad = int(np.flatnonzero(~np.isfinite(np.asarray(x)))[0])
            raise EstimationError(f'{model.name}: number {bad} of the {what} vector is {np.asarray(x)[bad]}; all must be finite.')
