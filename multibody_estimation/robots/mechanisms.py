# SPDX-License-Identifier: Apache-2.0
"""Mechanisms in maximal coordinates, each a function that returns a `Multibody`: pendulums, a loop, things in contact."""

import dataclasses
from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.maximal.build import Body, Contact, Joint, multibody
from multibody_estimation.maximal.model import Multibody

__all__ = [
    'FURUTA', 'box_stack', 'cart_pole', 'chain', 'double_pendulum', 'four_bar', 'furuta', 'furuta_with', 'incline', 'pendulum',
    'sphere_stack',
]  # fmt: skip


class Number(NamedTuple):
    """A named number of a mechanism."""

    name: str
    unit: str
    nominal: float


# The rod's mass (0.1 kg) and spin inertia are weighed: joint angles and voltages fix only ratios to one of the scales.
FURUTA = (
    Number('arm.inertia', 'kg m^2', 2e-3),
    Number('arm.length', 'm', 0.2),
    Number('pendulum.center_of_mass', 'm', 0.15),
    Number('pendulum.inertia', 'kg m^2', 7.5e-4),
    Number('pendulum.cross_inertia', 'kg m^2', 7.48e-4),
    Number('arm.viscous', 'N m s/rad', 1e-3),
    Number('pendulum.viscous', 'N m s/rad', 1e-4),
    Number('arm.coulomb', 'N m', 4e-3),
    Number('pendulum.coulomb', 'N m', 5e-4),
    Number('tilt.x', 'rad', 0.010),
    Number('tilt.y', 'rad', -0.015),
    Number('motor.gain', 'N m/V', 0.01),
    Number('motor.back_emf', 'N m s/rad', 4e-4),
)
"""The 13 numbers of the Furuta pendulum: inertial, frictional, tilt, motor."""


def furuta(numbers: Mapping[str, float] | None = None, *, compliance: float = 1e-8, damping: float = 1e-3) -> Multibody:
    """Furuta pendulum: arm about the vertical (driven, input in V), rod about the arm's own axis x; drawn hanging.

    ``numbers`` replaces nominal values of `FURUTA` by name.
    """
    names = [p.name for p in FURUTA]
    for name in numbers or {}:
        if name not in names:
            raise EstimationError(f"The Furuta pendulum has no number '{name}'.{did_you_mean(name, names)}")
    x = {p.name: p.nominal for p in FURUTA} | dict(numbers or {})
    length, center = x['arm.length'], x['pendulum.center_of_mass']
    soft: dict[str, Any] = {'compliance': compliance, 'damping': damping, 'creep': 1e-2, 'dry': True}
    rod = (x['pendulum.inertia'], x['pendulum.cross_inertia'], 4e-6)
    return multibody(
        [Body('arm', 0.2, (2e-3, 2e-3, x['arm.inertia'])), Body('rod', 0.1, rod, (length, 0, 0), center_of_mass=(0, 0, -center))],
        [
            Joint('arm', 'hinge', 'world', 'arm', axis=(0, 0, 1), viscous=x['arm.viscous'], coulomb=x['arm.coulomb'],
                  gain=x['motor.gain'], back_emf=x['motor.back_emf'], **soft),
            Joint('pendulum', 'hinge', 'arm', 'rod', at=(length, 0, 0), axis=(1, 0, 0), viscous=x['pendulum.viscous'],
                  coulomb=x['pendulum.coulomb'], **soft),
        ],
        tilt=(x['tilt.x'], x['tilt.y']),
    )  # fmt: skip


def furuta_with(model: Multibody, numbers: Any) -> Multibody:
    """Put the 13 numbers, in the order of `FURUTA`, shape (13,), into a Furuta model; differentiable."""
    x = {p.name: numbers[i] for i, p in enumerate(FURUTA)}
    length, center = x['arm.length'], x['pendulum.center_of_mass']
    inertia = model.inertia.at[0, 2].set(x['arm.inertia'])
    return dataclasses.replace(
        model,
        inertia=inertia.at[1, 0].set(x['pendulum.inertia']).at[1, 1].set(x['pendulum.cross_inertia']),
        center_of_mass=model.center_of_mass.at[1, 2].set(-center),
        point_first=model.point_first.at[1, 0].set(length),
        viscous=jnp.stack([x['arm.viscous'], x['pendulum.viscous']]),
        coulomb=jnp.stack([x['arm.coulomb'], x['pendulum.coulomb']]),
        tilt=jnp.stack([x['tilt.x'], x['tilt.y']]),
        gain=model.gain.at[0].set(x['motor.gain']),
        back_emf=model.back_emf.at[0].set(x['motor.back_emf']),
        reference=model.reference.at[1, 0].set(length).at[1, 2].set(-center),
    )


def _rod(mass: float, length: float) -> tuple[float, float, float]:
    """Moments of a slender rod along z, kg m^2, with a little thickness."""
    return (mass * length**2 / 12, mass * length**2 / 12, mass * length**2 * 1e-3)


def chain(count: int, *, mass: float = 0.3, length: float = 0.25, gain: float | None = None, **joint: Any) -> Multibody:
    """``count`` rods hanging from the world one below the other, hinges about y named ``joint0``...; numbers of `Joint` by name."""
    if count < 1:
        raise EstimationError(f'A chain of {count} rods cannot be built; give at least one.')
    names = ['world', *(f'rod{i}' for i in range(count))]
    bodies = [
        Body(n, mass, _rod(mass, length), (0, 0, -length * i), center_of_mass=(0, 0, -length / 2))
        for i, n in enumerate(names[1:])
    ]
    joints = [
        Joint(f'joint{i}', 'hinge', names[i], names[i + 1], at=(0, 0, -length * i), axis=(0, 1, 0), gain=gain, **joint)
        for i in range(count)
    ]
    return multibody(bodies, joints)


def pendulum(**options: Any) -> Multibody:
    """One hanging rod of 0.3 kg and 0.25 m; options of `chain`."""
    return chain(1, **options)


def double_pendulum(**options: Any) -> Multibody:
    """Two hanging rods; options of `chain`."""
    return chain(2, **options)


def cart_pole(*, gain: float = 1.0, friction: float = 0.0, viscous: float = 0.1) -> Multibody:
    """Cart of 0.5 kg on a rail along x (driven, input times gain in N) with a hanging rod; friction of the rail in N."""
    return multibody(
        [
            Body('cart', 0.5, (1e-3, 1e-3, 1e-3)),
            Body('pole', 0.2, _rod(0.2, 0.5), center_of_mass=(0, 0, -0.25)),
        ],
        [
            Joint('rail', 'slider', 'world', 'cart', axis=(1, 0, 0), gain=gain, coulomb=friction, viscous=viscous),
            Joint('pole', 'hinge', 'cart', 'pole', axis=(0, 1, 0), viscous=1e-3),
        ],
    )


def four_bar(*, crank: float = 0.1, coupler: float = 0.25, gain: float | None = 1.0, **joint: Any) -> Multibody:
    """Parallelogram in the x-z plane: two cranks, a coupler, four hinges about y; of 20 rows 17 are independent."""
    rod: dict[str, Any] = {'compliance': 1e-8, 'damping': 1e-3} | joint
    y = (0, 1, 0)
    return multibody(
        [
            Body('left', 0.2, _rod(0.2, crank), center_of_mass=(0, 0, crank / 2)),
            Body('coupler', 0.3, (1e-4, 0.3 * coupler**2 / 12, 0.3 * coupler**2 / 12), (0, 0, crank), center_of_mass=(coupler / 2, 0, 0)),
            Body('right', 0.2, _rod(0.2, crank), (coupler, 0, 0), center_of_mass=(0, 0, crank / 2)),
        ],
        [
            Joint('crank', 'hinge', 'world', 'left', axis=y, gain=gain, **rod),
            Joint('knee', 'hinge', 'left', 'coupler', at=(0, 0, crank), axis=y, **rod),
            Joint('elbow', 'hinge', 'coupler', 'right', at=(coupler, 0, crank), axis=y, **rod),
            Joint('rocker', 'hinge', 'world', 'right', at=(coupler, 0, 0), axis=y, **rod),
        ],
    )  # fmt: skip


def _box(name: str, mass: float, size: tuple, center: tuple) -> Body:
    x, y, z = (s * s for s in size)
    return Body(name, mass, (mass * (y + z) / 12, mass * (x + z) / 12, mass * (x + y) / 12), center)


def _feet(name: str, size: tuple, center: tuple, **contact: Any) -> list[Contact]:
    """Four points under a box."""
    signs = product((-1, 1), (-1, 1))
    low = center[2] - size[2] / 2
    return [
        Contact(f'{name}.{i}', name, at=(center[0] + a * size[0] / 2, center[1] + b * size[1] / 2, low), **contact)
        for i, (a, b) in enumerate(signs)
    ]


def incline(angle: float, *, friction: float = 0.5, mass: float = 1.0, **contact: Any) -> Multibody:
    """Flat box on a plane that falls along x by ``angle`` rad: drawn level, with gravity turned instead."""
    size, center = (0.2, 0.2, 0.05), (0.0, 0.0, 0.025)
    g = 9.81 * np.array([np.sin(angle), 0.0, -np.cos(angle)])
    feet = _feet('box', size, center, second='world', friction=friction, **contact)
    return multibody([_box('box', mass, size, center)], contacts=feet, gravity=tuple(g))


def sphere_stack(*, radius: float = 0.1, mass: float = 1.0, friction: float = 0.5) -> Multibody:
    """Two balls one on the other, the lower one on the floor, upper one balanced."""
    J = (0.4 * mass * radius**2,) * 3
    return multibody(
        [Body('low', mass, J, (0, 0, radius)), Body('high', mass, J, (0, 0, 3 * radius))],
        contacts=[
            Contact('floor', 'low', 'world', (0, 0, radius), radius, friction=friction),
            Contact('balls', 'high', 'low', (0, 0, 3 * radius), radius, (0, 0, radius), radius_second=radius, friction=friction),
        ],
    )


def box_stack(*, friction: float = 0.5) -> Multibody:
    """A box of 0.5 kg on a box of 1 kg on the floor, four contact points each."""
    low, high = ((0.2, 0.2, 0.1), (0.0, 0.0, 0.05)), ((0.1, 0.1, 0.1), (0.0, 0.0, 0.15))
    return multibody(
        [_box('low', 1.0, *low), _box('high', 0.5, *high)],
        contacts=_feet('low', *low, second='world', friction=friction)
        + _feet('high', *high, second='low', plane=(0, 0, 0.1), friction=friction),
    )
