# SPDX-License-Identifier: Apache-2.0
"""A model from a few lines of Python: `Link`, `Joint`, `Sensor`, `build`.

model = build(
    links=[Link('base'), Link('arm', mass=0.3, center_of_mass=(0, 0, 0.1), inertia=(1e-3, 1e-3, 2e-4))],
    joints=[Joint('shoulder', 'base', 'arm', axis=(0, 1, 0), damping=0.01)],
)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.tree.model import Model, Structure

__all__ = ['Joint', 'Link', 'Sensor', 'build']

TYPES = ('revolute', 'continuous', 'prismatic', 'spherical', 'floating', 'fixed')
SENSORS = ('force_torque', 'imu', 'accelerometer', 'gyroscope')
Vector = Sequence[float]


@dataclass(frozen=True)
class Link:
    """A rigid body."""

    name: str
    mass: float = 0.0
    """[kg]"""
    center_of_mass: Vector = (0.0, 0.0, 0.0)
    """In the link's frame [m]."""
    inertia: Any = (0.0, 0.0, 0.0)
    """About the centre of mass [kg m^2]: the diagonal, or a 3x3 matrix."""


@dataclass(frozen=True)
class Joint:
    """What holds the child link on its parent; numbers as in `Model`."""

    name: str
    parent: str
    child: str
    type: str = 'revolute'
    axis: Vector = (0.0, 0.0, 1.0)
    position: Vector = (0.0, 0.0, 0.0)
    """Origin of the child's frame in the parent's frame, at joint position zero [m]."""
    rpy: Vector = (0.0, 0.0, 0.0)
    """Its orientation there, roll, pitch, yaw [rad]."""
    armature: float = 0.0
    damping: float = 0.0
    coulomb: float = 0.0
    stribeck: float = 0.0
    stribeck_velocity: float = 0.1
    friction_velocity: float = 0.01
    stiffness: float = 0.0
    spring_rest: float = 0.0
    motor_gain: float = 1.0
    back_emf: float = 0.0
    motor_delay: float = 0.0
    lower: float = -np.inf
    upper: float = np.inf
    velocity_limit: float = np.inf
    effort_limit: float = np.inf


@dataclass(frozen=True)
class Sensor:
    """A sensor frame on a link, or for ``force_torque`` in a joint (given by the joint's name)."""

    name: str
    type: str
    on: str
    """Link, or joint of a force/torque sensor."""
    position: Vector = (0.0, 0.0, 0.0)
    """Origin in the link's frame (the joint's child) [m]."""
    rpy: Vector = (0.0, 0.0, 0.0)
    link: str | None = None
    """Link that carries the frame of a force/torque sensor; by default the joint's child."""
    acts_on: str | None = None
    """Link on which the wrench acts that a force/torque sensor measures; by default the joint's child."""


@dataclass(frozen=True)
class Where:
    """Says where an element stands, for errors: by default only its name."""

    say: Callable[[str, str], str] = field(default=lambda kind, name: f"{kind} '{name}'")


def build(
    links: Sequence[Link],
    joints: Sequence[Joint],
    sensors: Sequence[Sensor] = (),
    *,
    name: str = 'robot',
    base: str | None = None,
    floating: bool = False,
    order: Sequence[str] | None = None,
    friction_law: str = 'smooth',
    gravity: Vector = (0.0, 0.0, -9.81),
    gravity_tilt: Vector = (0.0, 0.0),
    say: Callable[[str, str], str] = Where().say,
) -> Model:
    """Check the parts and put them together.

    ``base`` is the link the tree is held by: any link; joints between it and the root are turned round. ``order`` names the
    moving joints in the order of the position vector; moving joints that it leaves out are locked at zero. ``say`` gives the
    words for an element in an error, with its line in a file where there is one.
    """
    by_link = _unique(links, 'link', say)
    by_joint = _unique(joints, 'joint', say)
    for joint in joints:
        _check_joint(joint, by_link, say)
    for link in links:
        _check_link(link, say)
    if friction_law not in ('smooth', 'stick'):
        raise EstimationError(f"friction_law is '{friction_law}'; it can be 'smooth' or 'stick'.")
    root = _root(links, joints, say)
    if base is not None and base not in by_link:
        raise EstimationError(f"The model has no link '{base}' to be its base.{did_you_mean(base, by_link)}")
    if base is not None and base != root:
        from multibody_estimation.tree.rebase import rebase

        links, joints, sensors = rebase(list(links), list(joints), list(sensors), base)
        by_link, by_joint, root = {x.name: x for x in links}, {x.name: x for x in joints}, base
    carried = {j.child: j for j in joints}
    children: dict[str, list[str]] = {x.name: [] for x in links}
    for joint in joints:
        children[joint.parent].append(joint.child)
    names, stack = [], [root]
    while stack:  # depth first, parents before children
        names.append(stack.pop())
        stack += reversed(children[names[-1]])
    place = {n: i for i, n in enumerate(names)}

    moving = [carried[n] for n in names if n in carried and carried[n].type != 'fixed']
    if order is not None:
        moving = [_moving(n, by_joint, say) for n in order]
        for n in order:
            if list(order).count(n) > 1:
                raise EstimationError(f"Joint '{n}' stands twice in the order of the joints.")
    _check_massless(names, carried, by_link, {j.name for j in moving}, children, say)
    types = tuple('revolute' if j.type == 'continuous' else j.type for j in moving)

    for sensor in sensors:
        if sensor.type not in SENSORS:
            raise EstimationError(f"{say('sensor', sensor.name)} has type '{sensor.type}'.{did_you_mean(sensor.type, SENSORS)}")
        known = by_joint if sensor.type == 'force_torque' else by_link
        if sensor.on not in known:
            raise EstimationError(
                f"{say('sensor', sensor.name)} is on '{sensor.on}', which is not there.{did_you_mean(sensor.on, known)}"
            )
        _finite(np.r_[sensor.position, sensor.rpy], say('sensor', sensor.name), 'pose')
        for x in (sensor.link, sensor.acts_on):
            if x is not None and x not in by_link:
                raise EstimationError(
                    f"{say('sensor', sensor.name)} names a link '{x}' that is not there.{did_you_mean(x, by_link)}"
                )
    through = [by_joint[s.on] if s.type == 'force_torque' else None for s in sensors]
    on = [place[s.link or (j.child if j else s.on)] for s, j in zip(sensors, through)]
    acts = [place[s.acts_on or j.child] if j else -1 for s, j in zip(sensors, through)]
    structure = Structure(
        name, tuple(names), tuple(place[carried[n].parent] if n in carried else -1 for n in names),
        tuple(carried[n].name if n in carried else '' for n in names), tuple(j.name for j in moving), types,
        tuple(place[j.child] for j in moving), bool(floating), friction_law,
        tuple(s.name for s in sensors), tuple(s.type for s in sensors), tuple(on),
        tuple(j.name if j else '' for j in through), tuple(acts),
    )  # fmt: skip
    body = [by_link[n] for n in names]
    held = [carried.get(n, Joint('', '', n)) for n in names]

    def column(items: Sequence, attribute: str, *shape: int) -> np.ndarray:
        return np.array([getattr(x, attribute) for x in items], dtype=float).reshape(len(items), *shape)

    scalars = ['armature', 'damping', 'coulomb', 'stribeck', 'stribeck_velocity', 'friction_velocity', 'stiffness', 'spring_rest',
               'motor_gain', 'back_emf', 'motor_delay', 'lower', 'upper', 'velocity_limit', 'effort_limit']  # fmt: skip
    axis = column(moving, 'axis', 3)
    return Model(
        structure=structure,
        mass=column(body, 'mass'),
        center_of_mass=column(body, 'center_of_mass', 3),
        inertia=np.array([_matrix(x.inertia) for x in body]),
        placement=column(held, 'position', 3),
        placement_rpy=column(held, 'rpy', 3),
        axis=axis / np.linalg.norm(axis, axis=1, keepdims=True) if len(axis) else axis,
        sensor_position=column(sensors, 'position', 3),
        sensor_rpy=column(sensors, 'rpy', 3),
        gravity=np.array(gravity, dtype=float),
        gravity_tilt=np.array(gravity_tilt, dtype=float),
        **{s: column(moving, s) for s in scalars},
    )


def _unique(items: Sequence, kind: str, say: Callable) -> dict:
    found: dict = {}
    for item in items:
        if item.name in found:
            raise EstimationError(f'{say(kind, item.name)}: two {kind}s have this name; names must be unique.')
        found[item.name] = item
    return found


def _finite(x: Any, where: str, what: str) -> np.ndarray:
    x = np.asarray(x, dtype=float)
    if not np.isfinite(x).all():
        raise EstimationError(f'{where}: its {what} is {x.tolist()}; every number must be finite.')
    return x


def _matrix(inertia: Any) -> np.ndarray:
    inertia = np.asarray(inertia, dtype=float)
    return np.diag(inertia) if inertia.shape == (3,) else inertia


def _check_joint(joint: Joint, by_link: dict, say: Callable) -> None:
    where = say('joint', joint.name)
    if joint.type not in TYPES:
        raise EstimationError(f"{where} has type '{joint.type}', which is not supported.{did_you_mean(joint.type, TYPES)}")
    for end in (joint.parent, joint.child):
        if end not in by_link:
            raise EstimationError(f"{where} names a link '{end}' that is not there.{did_you_mean(end, by_link)}")
    _finite(np.r_[joint.position, joint.rpy], where, 'origin')
    axis = _finite(joint.axis, where, 'axis')
    if joint.type in ('revolute', 'continuous', 'prismatic') and not np.linalg.norm(axis) > 1e-9:
        raise EstimationError(f'{where}: its axis is zero; a direction is needed.')
    for quantity in ('armature', 'damping', 'coulomb', 'stribeck', 'stribeck_velocity', 'friction_velocity', 'motor_delay'):
        x = float(_finite(getattr(joint, quantity), where, quantity))
        if x < 0 or (x == 0 and quantity.endswith('_velocity')):
            raise EstimationError(f'{where}: {quantity} is {x}; it must be {"positive" if x == 0 else "at least zero"}.')
    for quantity in ('stiffness', 'spring_rest', 'motor_gain', 'back_emf'):
        _finite(getattr(joint, quantity), where, quantity)
    if joint.lower > joint.upper:
        raise EstimationError(f'{where}: its lower limit {joint.lower} lies above its upper limit {joint.upper}.')


def _check_link(link: Link, say: Callable) -> None:
    where = say('link', link.name)
    mass, _ = float(_finite(link.mass, where, 'mass')), _finite(link.center_of_mass, where, 'centre of mass')
    inertia = _matrix(_finite(link.inertia, where, 'inertia'))
    if mass < 0:
        raise EstimationError(f'{where}: its mass is {mass} kg; it cannot be negative.')
    if inertia.shape != (3, 3) or not np.allclose(inertia, inertia.T, rtol=1e-9, atol=0):
        raise EstimationError(f'{where}: its inertia must be a diagonal of 3 or a symmetric 3x3 matrix.')
    moments = np.linalg.eigvalsh(inertia)
    slack = 1e-6 * max(abs(moments).max(), 1e-12)
    if moments[0] < -slack:
        raise EstimationError(f'{where}: its inertia has a principal moment of {moments[0]:.3g} kg m^2; none can be negative.')
    if moments[2] > moments[0] + moments[1] + slack:
        raise EstimationError(
            f'{where}: its principal moments {moments[0]:.4g}, {moments[1]:.4g}, {moments[2]:.4g} kg m^2 belong to no body: '
            'the largest may not exceed the sum of the two others. Check the units and the reference point (centre of mass).'
        )


def _root(links: Sequence[Link], joints: Sequence[Joint], say: Callable) -> str:
    parent: dict[str, Joint] = {}
    for joint in joints:
        if joint.child in parent:
            raise EstimationError(
                f"{say('joint', joint.name)}: link '{joint.child}' is already carried by joint '{parent[joint.child].name}'. A tree "
                'has no kinematic loops: cut the loop, or use the maximal-coordinate model.'
            )
        parent[joint.child] = joint
    for link in links:
        seen, at = {link.name}, link.name
        while at in parent:
            at = parent[at].parent
            if at in seen:
                raise EstimationError(
                    f"{say('joint', parent[at].name)}: link '{at}' carries itself: the joints form a kinematic loop."
                )
            seen.add(at)
    roots = [x.name for x in links if x.name not in parent]
    if len(roots) != 1:
        raise EstimationError(
            f"A model has one root, this one has {len(roots)}: {' and '.join(say('link', r) for r in roots[:4])}. Join them with a fixed joint."
            if roots else 'A model needs at least one link.'
        )  # fmt: skip
    return roots[0]


def _moving(name: str, by_joint: dict[str, Joint], say: Callable) -> Joint:
    if name not in by_joint:
        raise EstimationError(f"The model has no joint '{name}'.{did_you_mean(name, by_joint)}")
    if by_joint[name].type == 'fixed':
        raise EstimationError(f'{say("joint", name)} is fixed and cannot stand in the order of moving joints.')
    return by_joint[name]


def _check_massless(names: list, carried: dict, by_link: dict, moving: set, children: dict, say: Callable) -> None:
    """Refuse a moving joint that moves no mass at all: forward dynamics would divide by zero."""
    mass: dict[str, float] = {}
    turning: dict[str, float] = {}
    for n in reversed(names):
        mass[n] = by_link[n].mass + sum(mass[c] for c in children[n])
        turning[n] = float(np.abs(_matrix(by_link[n].inertia)).max()) + sum(turning[c] for c in children[n])
        joint = carried.get(n)
        if joint is None or joint.name not in moving:
            continue
        if mass[n] <= 0 and joint.armature <= 0 and not (turning[n] > 0 and joint.type in ('revolute', 'continuous')):
            raise EstimationError(
                f"{say('link', n)} has no inertia, yet joint '{joint.name}' moves it and nothing heavier beyond it. Give the link "
                'a mass and an inertia, or the joint an armature, or make the joint fixed.'
            )
