# SPDX-License-Identifier: Apache-2.0
"""Dotted names for every physical number: ``forearm.mass``, ``forearm.inertia.xx``, ``shoulder.damping``, ``gravity.tilt_x``."""

from functools import lru_cache
from typing import Any

from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.tree.model import Model, Structure

__all__ = ['get_leaf', 'leaf_names', 'locate', 'set_leaf']

JOINT = ('armature', 'damping', 'coulomb', 'stribeck', 'stribeck_velocity', 'friction_velocity', 'stiffness', 'spring_rest', 'motor_gain',
         'back_emf', 'motor_delay', 'lower', 'upper', 'velocity_limit', 'effort_limit')  # fmt: skip
XYZ = 'xyz'
Place = tuple[str, tuple[int, ...]]


@lru_cache(maxsize=256)
def places(structure: Structure) -> dict[str, Place]:
    """Field and index of every dotted name."""
    table: dict[str, Place] = {}
    for i, link in enumerate(structure.link_names):
        table[f'{link}.mass'] = ('mass', (i,))
        for k in range(3):
            table[f'{link}.center_of_mass.{XYZ[k]}'] = ('center_of_mass', (i, k))
        for a in range(3):
            for b in range(a, 3):
                table[f'{link}.inertia.{XYZ[a]}{XYZ[b]}'] = ('inertia', (i, a, b))
        joint = structure.link_joint_names[i]
        for k in range(3 if joint else 0):
            table[f'{joint}.placement.{XYZ[k]}'] = ('placement', (i, k))
            table[f'{joint}.placement.{("roll", "pitch", "yaw")[k]}'] = ('placement_rpy', (i, k))
    for j, joint in enumerate(structure.joint_names):
        table |= {f'{joint}.{quantity}': (quantity, (j,)) for quantity in JOINT}
        table |= {f'{joint}.axis.{XYZ[k]}': ('axis', (j, k)) for k in range(3)}
    for s, sensor in enumerate(structure.sensor_names):
        for k in range(3):
            table.setdefault(f'{sensor}.position.{XYZ[k]}', ('sensor_position', (s, k)))
            table.setdefault(f'{sensor}.{("roll", "pitch", "yaw")[k]}', ('sensor_rpy', (s, k)))
    table |= {f'gravity.{XYZ[k]}': ('gravity', (k,)) for k in range(3)}
    table |= {'gravity.tilt_x': ('gravity_tilt', (0,)), 'gravity.tilt_y': ('gravity_tilt', (1,))}
    return table


def leaf_names(model: Model) -> tuple[str, ...]:
    """Every dotted name of the model's numbers."""
    return tuple(places(model.structure))


def locate(model: Model, name: str) -> Place:
    """Field of the model and index in it that a dotted name stands for."""
    table = places(model.structure)
    if name not in table:
        raise EstimationError(f"'{name}' is no number of {model.name}.{did_you_mean(name, table)}")
    return table[name]


def get_leaf(model: Model, name: str) -> Any:
    """Read one number."""
    field, index = locate(model, name)
    return getattr(model, field)[index]


def set_leaf(model: Model, name: str, number: Any) -> Model:
    """Return the model with one number replaced (an inertia's off-diagonal on both sides); works inside `jax.jit`."""
    field, index = locate(model, name)
    array = jnp.asarray(getattr(model, field)).at[index].set(number)
    if field == 'inertia' and index[1] != index[2]:
        array = array.at[index[0], index[2], index[1]].set(number)
    return model.replace(**{field: array})
