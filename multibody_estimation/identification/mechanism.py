# SPDX-License-Identifier: Apache-2.0
"""Mechanisms in maximal coordinates as identification sees them: names of their numbers, and a robot's tree turned into one."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from multibody_estimation import maximal, tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification.robot import Robot

__all__ = ['as_mechanism', 'get_leaf', 'leaf_names', 'set_leaf']

AXIS = ('viscous', 'armature', 'coulomb', 'load_radius', 'creep', 'gain', 'back_emf', 'stiffness', 'rest', 'offset')
INERTIA = ('xx', 'yy', 'zz', 'xy', 'xz', 'yz')
OTHER_NAMES = {'damping': 'viscous', 'friction_velocity': 'creep', 'spring_rest': 'rest', 'motor_gain': 'gain'}
"""Last part of a name in a tree, and what a mechanism calls the same."""


@lru_cache(maxsize=64)
def _places(bodies: tuple[str, ...], joints: tuple[str, ...], axes: tuple[str, ...]) -> dict[str, tuple[str, tuple[int, ...]]]:
    table: dict[str, tuple[str, tuple[int, ...]]] = {'tilt.x': ('tilt', (0,)), 'tilt.y': ('tilt', (1,))}
    for i, body in enumerate(bodies):
        table[f'{body}.mass'] = ('mass', (i,))
        table |= {f'{body}.center_of_mass.{x}': ('center_of_mass', (i, k)) for k, x in enumerate('xyz')}
        table |= {f'{body}.inertia.{x}': ('inertia', (i, k)) for k, x in enumerate(INERTIA)}
    for j, joint in enumerate(joints):
        for field in ('point_first', 'point_second'):
            table |= {f'{joint}.{field}.{x}': (field, (j, k)) for k, x in enumerate('xyz')}
        table[f'{joint}.length'] = ('length', (j,))
    for j, axis in enumerate(axes):
        table |= {f'{axis}.{what}': (what, (j,)) for what in AXIS}
    return table


def _table(model: maximal.Multibody) -> dict[str, tuple[str, tuple[int, ...]]]:
    return _places(model.bodies, model.joints, model.axis_names)


def leaf_names(model: maximal.Multibody) -> list[str]:
    """Dotted names of the numbers that can be estimated."""
    return list(_table(model))


def get_leaf(model: maximal.Multibody, name: str) -> float:
    """Read one number."""
    field, index = _table(model)[name]
    return float(np.asarray(getattr(model, field))[index])


def set_leaf(model: maximal.Multibody, name: str, number: Any) -> maximal.Multibody:
    """Return the mechanism with one number replaced; works while tracing."""
    field, index = _table(model)[name]
    array = getattr(model, field)
    if isinstance(number, jax.core.Tracer) or isinstance(array, jax.core.Tracer):
        changed: dict[str, Any] = {field: jnp.asarray(array).at[index].set(number)}
        return replace(model, **changed)
    array = np.array(array, dtype=float)
    array[index] = float(number)
    other: dict[str, Any] = {field: array}
    return replace(model, **other)


def as_mechanism(robot: Robot, compliance: float, damping: float) -> Robot:
    """The robot with a mechanism as its model; a tree is converted, and its parameters keep their names."""
    if isinstance(robot.model, maximal.Multibody):
        model = robot.model
        rows = len(model.rows)
        soft: dict[str, Any] = {'compliance': np.full(rows, compliance), 'damping': np.full(rows, damping)}
        return replace(robot, model=replace(model, **soft))
    if not isinstance(robot.model, tree.Model):
        raise EstimationError('The maximal and paper forms need a tree or a mechanism, not hand-written equations.')
    model = maximal.from_tree(robot.model, compliance=compliance, damping=damping)
    known, signals = leaf_names(model), [*(i.signal for i in robot.inputs), *(s.signal for s in robot.sensors)]
    parameters = []
    for p in robot.parameters:
        if p.assign is not None:
            raise EstimationError(
                f'{p.name}: a parameter with its own assign function cannot be carried over to maximal coordinates.'
            )
        if any(p.target.startswith(f'{s}.') for s in signals):
            parameters.append(p)
            continue
        owner, *rest = p.target.split('.')
        if owner == 'gravity' and rest[0].startswith('tilt_'):
            name = f'tilt.{rest[0][-1]}'
        elif rest[0] == 'placement':
            name = f'{owner}.point_first.{rest[1]}'
        else:
            name = '.'.join([owner, OTHER_NAMES.get(rest[0], rest[0]), *rest[1:]])
        if name not in known:
            raise EstimationError(f"'{p.target}' has no counterpart in maximal coordinates.{did_you_mean(name, known)}")
        start = p.start if p.start is not None else float(tree.get_leaf(robot.model, p.target))
        parameters.append(replace(p, leaf=name, start=start))
    return replace(robot, model=jax.tree.map(np.asarray, model), parameters=tuple(parameters))
