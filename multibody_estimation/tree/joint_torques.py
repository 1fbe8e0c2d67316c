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
    """Viscous and dry friction; (nv,). With the law ``stick`` the sign is exact and zero at rest: `simulate` holds joints."""
    v = jnp.asarray(velocity)
    width = _pad(model, jnp.asarray(model.friction_velocity)[_dofs(model)]) + (np.arange(model.nv) < 6 * model.floating)
    sign = jnp.sign(v) if model.structure.friction_law == 'stick' else jnp.tanh(v / width)
    return viscous_torques(model, v) - dry_limits(model, v) * sign


def one_degree(model: Model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Joints that turn or slide, with their places in the position and velocity vector."""
    found, iq, iv = [], 7 * model.floating, 6 * model.floating
    for j, kind in enumerate(model.joint_types):
        if DEGREES[kind] == 1:
            found.append((j, iq, iv))
        iq, iv = iq + POSITIONS[kind], iv + DEGREES[kind]
    joints, q, v = np.array(found, int).reshape(-1, 3).T
    return joints, q, v


def spring_torques(model: Model, position: Any) -> Any:
    """Springs of revolute and prismatic joints; (nv,)."""
    j, iq, iv = one_degree(model)
    torque = -jnp.asarray(model.stiffness)[j] * (jnp.asarray(position)[iq] - jnp.asarray(model.spring_rest)[j])
    return jnp.zeros(model.nv).at[iv].set(torque)


def dry_limits(model: Model, velocity: Any) -> Any:
    """Largest dry friction at a velocity: what holds a joint at rest, and acts against one that slides; (nv,)."""
    d = _dofs(model)
    v = jnp.asarray(velocity)[6 * model.floating :]
    return _pad(model, dry_friction(v, *(jnp.asarray(x)[d] for x in (model.coulomb, model.stribeck, model.stribeck_velocity))))


def viscous_torques(model: Model, velocity: Any) -> Any:
    """The part of friction that is proportional to velocity; (nv,)."""
    return -_pad(model, jnp.asarray(model.damping)[_dofs(model)] * jnp.asarray(velocity)[6 * model.floating :])


def motor_torques(model: Model, command: Any, velocity: Any) -> Any:
    """Gain times command, less back-EMF; the command (nv less base) is that of ``motor_delay`` ago; (nv,)."""
    d = _dofs(model)
    v = jnp.asarray(velocity)[6 * model.floating :]
    return _pad(model, jnp.asarray(model.motor_gain)[d] * jnp.asarray(command) - jnp.asarray(model.back_emf)[d] * v)


def joint_torques(model: Model, position: Any, velocity: Any, command: Any = None) -> Any:
    """Friction, springs and, where a command is given, motors; (nv,)."""
    total = friction_torques(model, velocity) + spring_torques(model, position)
    return total if command is None else total + motor_torques(model, command, velocity)
