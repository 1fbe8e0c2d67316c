# SPDX-License-Identifier: Apache-2.0
"""What acts in the joints themselves: friction, springs, motors. All are torques ON the joint, so they add up.

The laws take numbers of any shape, so that they serve one sample, a batch with the time axis last, and any other point.
"""

from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.tree.model import DEGREES, POSITIONS, Model

__all__ = ['dry_friction', 'friction_torques', 'joint_torques', 'motor_torques', 'spring_torques']


def dry_friction(velocity: Any, coulomb: Any, stribeck: Any, stribeck_velocity: Any) -> Any:
    """Size of dry friction while sliding, falling from coulomb + stribeck to coulomb (Stribeck curve)."""
    return coulomb + stribeck * jnp.exp(-((velocity / stribeck_velocity) ** 2))


def _dofs(model: Model) -> np.ndarray:
    return np.repeat(np.arange(len(model.joint_names)), [DEGREES[t] for t in model.joint_types])


def _pad(model: Model, torque: Any) -> Any:
    return jnp.concatenate([jnp.zeros(6 * model.floating), torque])


def friction_torques(model: Model, velocity: Any) -> Any:
    """Viscous and dry friction; (nv,). With the law ``stick`` the sign is exact and zero at rest: see `integrate` for holding."""
    d = _dofs(model)
    v = jnp.asarray(velocity)[6 * model.floating :]
    c = dry_friction(v, *(jnp.asarray(x)[d] for x in (model.coulomb, model.stribeck, model.stribeck_velocity)))
    sign = jnp.sign(v) if model.structure.friction_law == 'stick' else jnp.tanh(v / jnp.asarray(model.friction_velocity)[d])
    return _pad(model, -jnp.asarray(model.damping)[d] * v - c * sign)


def spring_torques(model: Model, position: Any) -> Any:
    """Springs of revolute and prismatic joints; (nv,)."""
    q, parts, at = jnp.asarray(position), [], 7 * model.floating
    for j, kind in enumerate(model.joint_types):
        one = DEGREES[kind] == 1
        parts.append(-model.stiffness[j] * (q[at : at + 1] - model.spring_rest[j]) if one else jnp.zeros(DEGREES[kind]))
        at += POSITIONS[kind]
    return _pad(model, jnp.concatenate(parts)) if parts else jnp.zeros(model.nv)


def motor_torques(model: Model, command: Any, velocity: Any) -> Any:
    """Gain times command, less back-EMF; the command (nv less base) is that of ``motor_delay`` ago; (nv,)."""
    d = _dofs(model)
    v = jnp.asarray(velocity)[6 * model.floating :]
    return _pad(model, jnp.asarray(model.motor_gain)[d] * jnp.asarray(command) - jnp.asarray(model.back_emf)[d] * v)


def joint_torques(model: Model, position: Any, velocity: Any, command: Any = None) -> Any:
    """Friction, springs and, where a command is given, motors; (nv,)."""
    total = friction_torques(model, velocity) + spring_torques(model, position)
    return total if command is None else total + motor_torques(model, command, velocity)
