# SPDX-License-Identifier: Apache-2.0
"""Equations of motion M(q) dv/dt + h(q, v) = torques + sum J' f, rotor inertias included in M.

Inverse dynamics and the mass matrix are Featherstone's RNEA and CRBA (2008, tables 5.1 and 6.2) in base coordinates, where the
sweeps over the tree are products with constant 0/1 matrices; forward dynamics stands in `articulated`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.geometry.spatial import apply, apply_transposed, cross_force, inertia_times, move_force, multiply, skew
from multibody_estimation.tree import kinematics
from multibody_estimation.tree.bodies import layout
from multibody_estimation.tree.kinematics import Frames, body_accelerations, body_velocities, frames
from multibody_estimation.tree.model import DEGREES, Model, check

__all__ = ['bias_forces', 'external_forces', 'gravity_torques', 'inverse_dynamics', 'mass_matrix']


def rotor_inertia(model: Model) -> Any:
    """Armature of each degree of freedom; (nv,)."""
    which = np.repeat(np.arange(len(model.joint_names)), [DEGREES[t] for t in model.joint_types])
    return jnp.concatenate([jnp.zeros(6 * model.floating), jnp.asarray(model.armature)[which]])


def base_inertias(f: Frames) -> tuple[Any, Any, Any]:
    """Mass, first moment and inertia about the base origin of each body, in base coordinates."""
    m, p, R = f.body.mass, f.position, f.rotation
    h = apply(R, f.body.first)  # about the body's origin, base axes
    P, H = skew(p), skew(h)
    I = multiply(multiply(R, f.body.second), R.swapaxes(-1, -2))
    shifted = multiply(P, H)
    second = I - shifted - shifted.swapaxes(-1, -2) - m[:, None, None] * multiply(P, P)
    return m, h + m[:, None] * p, second


def upward(f: Frames) -> Any:
    """Acceleration that stands for gravity, in base coordinates: -g; (6,)."""
    return jnp.concatenate([-apply_transposed(jnp.asarray(f.base_rotation), jnp.asarray(f.body.gravity)), jnp.zeros(3)])


def _external(model: Model, f: Frames, wrenches: Any) -> Any:
    """Sum of the external wrenches on each body, in base coordinates; (nb, 6)."""
    if isinstance(wrenches, Mapping):
        rows = [model.link_index(name) for name in wrenches]
        full = jnp.zeros((len(model.link_names), 6))
        wrenches = (
            full.at[np.array(rows, int)].set(jnp.stack([jnp.asarray(w, dtype=float) for w in wrenches.values()]))
            if rows
            else full
        )
    R, p = kinematics._links(model, f)
    return layout(model.structure).gather @ move_force(R, p, jnp.asarray(wrenches, dtype=float))


def inverse_dynamics(model: Model, position: Any, velocity: Any, acceleration: Any, wrenches: Any = None) -> Any:
    """Joint torques that make the accelerations, after the base's wrench where it floats; (nv,) [N m, N].

    ``wrenches``: what the world exerts on links, (force, moment about the link's origin) in the link's frame [N, N m], as a
    mapping from link name to (6,) or as (nl, 6). Friction, springs and motors stand apart, in `joint_torques`.
    """
    check(model, position, velocity, acceleration)
    v, a = jnp.asarray(velocity, dtype=float), jnp.asarray(acceleration, dtype=float)
    f = frames(model, position)
    V = body_velocities(model, f, v)
    A = body_accelerations(model, f, V, v, a) + upward(f)
    I = base_inertias(f)
    force = inertia_times(*I, A) + cross_force(V, inertia_times(*I, V))
    if wrenches is not None:
        force = force - _external(model, f, wrenches)
    at = layout(model.structure)
    return ((at.below @ force)[at.dof_body] * f.motion).sum(-1) + rotor_inertia(model) * a


def bias_forces(model: Model, position: Any, velocity: Any, wrenches: Any = None) -> Any:
    """Torques at zero acceleration: Coriolis, centrifugal, gravity, less the external wrenches; (nv,)."""
    return inverse_dynamics(model, position, velocity, np.zeros(model.nv), wrenches)


def gravity_torques(model: Model, position: Any) -> Any:
    """Torques that hold the robot still; (nv,)."""
    check(model, position)
    f = frames(model, position)
    at = layout(model.structure)
    force = inertia_times(*base_inertias(f), jnp.broadcast_to(upward(f), (len(at.parent), 6)))
    return ((at.below @ force)[at.dof_body] * f.motion).sum(-1)


def external_forces(model: Model, position: Any, wrenches: Any) -> Any:
    """Generalised forces J' f of external wrenches as in `inverse_dynamics`; (nv,)."""
    check(model, position)
    f = frames(model, position)
    at = layout(model.structure)
    return ((at.below @ _external(model, f, wrenches))[at.dof_body] * f.motion).sum(-1)


def mass_matrix(model: Model, position: Any) -> Any:
    """Joint-space inertia with rotors; (nv, nv)."""
    check(model, position)
    at = layout(model.structure)
    f = frames(model, position)
    m, h, I = base_inertias(f)
    composite = at.below @ jnp.concatenate([jnp.asarray(m)[:, None], h, I.reshape(-1, 9)], -1)
    d = at.dof_body
    F = inertia_times(composite[:, 0][d], composite[:, 1:4][d], composite[:, 4:].reshape(-1, 3, 3)[d], f.motion)
    M = F @ f.motion.T
    lower = at.moves[d] > 0  # degree of freedom e (column) moves the body of d (row)
    return jnp.where(lower, M, jnp.where(lower.T, M.T, 0.0)) + jnp.diag(rotor_inertia(model))
