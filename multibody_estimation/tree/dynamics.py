# SPDX-License-Identifier: Apache-2.0
"""Equations of motion M(q) dv/dt + h(q, v) = torques + sum J' f, rotor inertias included in M.

Inverse dynamics and the mass matrix are Featherstone's RNEA and CRBA (2008, tables 5.1 and 6.2) in base coordinates, where the
sweeps over the tree are products with constant 0/1 matrices. That code gives all derivatives, and the values where the compiled kernel is
missing; the kernel is several times faster, most of all for a batch. Forward dynamics stands in `forward_dynamics`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.geometry.spatial import apply, apply_transposed, cross_force, inertia_times, move_force, multiply, skew
from multibody_estimation.kernels import tree_dynamics
from multibody_estimation.tree.bodies import Bodies, bodies, layout
from multibody_estimation.tree.compiled import constants, topology, with_twin
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


def wrenches_on_bodies(model: Model, body: Bodies, wrenches: Any) -> Any:
    """Sum of the external wrenches on the links of each body, about its origin, in its frame; (nb, 6), or (0, 6) for none."""
    if wrenches is None:
        return np.zeros((0, 6))
    if isinstance(wrenches, Mapping):
        full = jnp.zeros((len(model.link_names), 6))
        for name, wrench in wrenches.items():
            full = full.at[model.link_index(name)].add(
                _six(model, jnp.asarray(wrench, dtype=float), (6,), f"the wrench on '{name}'")
            )
        wrenches = full
    wrenches = _six(model, jnp.asarray(wrenches, dtype=float), (len(model.link_names), 6), 'the array of wrenches, one per link,')
    return layout(model.structure).gather @ move_force(body.link_rotation, body.link_position, wrenches)


def _six(model: Model, array: Any, shape: tuple, what: str) -> Any:
    if array.shape != shape:
        raise EstimationError(f'{model.name}: {what} has shape {array.shape}; {shape} is needed: force, then moment.')
    return array


def in_base(f: Frames, wrenches: Any) -> Any:
    """Wrenches on the bodies in base coordinates; (nb, 6)."""
    return move_force(f.rotation, f.position, wrenches)


def _inverse_dynamics(model: Model, q: Any, v: Any, a: Any, wrenches: Any) -> Any:
    f = frames(model, q)
    V = body_velocities(model, f, v)
    A = body_accelerations(model, f, V, v, a) + upward(f)
    I = base_inertias(f)
    force = inertia_times(*I, A) + cross_force(V, inertia_times(*I, V))
    if wrenches.shape[0]:
        force = force - in_base(f, wrenches)
    at = layout(model.structure)
    return ((at.below @ force)[at.dof_body] * f.motion).sum(-1) + rotor_inertia(model) * a


def inverse_dynamics(model: Model, position: Any, velocity: Any, acceleration: Any, wrenches: Any = None) -> Any:
    """Joint torques that make the accelerations, after the base's wrench where it floats; (nv,) [N m, N].

    ``wrenches``: what the world exerts on links, (force, moment about the link's origin) in the link's frame [N, N m], as a
    mapping from link name to (6,) or as (nl, 6). Friction, springs and motors stand apart, in `joint_torques`.
    """
    check(model, position, velocity, acceleration)
    q, v, a = (jnp.asarray(x, dtype=float) for x in (position, velocity, acceleration))
    body = bodies(model)
    on_bodies = wrenches_on_bodies(model, body, wrenches)
    if not (tree_dynamics.ready() and model.nv):
        return _inverse_dynamics(model, q, v, a, on_bodies)
    kernel = partial(tree_dynamics.inverse_dynamics, topology(model.structure))
    return with_twin(model, kernel, _inverse_dynamics, (constants(model, body), body.gravity), q, v, a, on_bodies)


def bias_forces(model: Model, position: Any, velocity: Any, wrenches: Any = None) -> Any:
    """Torques at zero acceleration: Coriolis, centrifugal, gravity, less the external wrenches; (nv,)."""
    return inverse_dynamics(model, position, velocity, np.zeros(model.nv), wrenches)


def gravity_torques(model: Model, position: Any) -> Any:
    """Torques that hold the robot still; (nv,)."""
    still = np.zeros(model.nv)
    return inverse_dynamics(model, position, still, still)


def external_forces(model: Model, position: Any, wrenches: Any) -> Any:
    """Generalised forces J' f of external wrenches as in `inverse_dynamics`; (nv,)."""
    check(model, position)
    f = frames(model, position)
    at = layout(model.structure)
    return ((at.below @ in_base(f, wrenches_on_bodies(model, f.body, wrenches)))[at.dof_body] * f.motion).sum(-1)


def _mass_matrix(model: Model, q: Any) -> Any:
    at = layout(model.structure)
    f = frames(model, q)
    m, h, I = base_inertias(f)
    composite = at.below @ jnp.concatenate([jnp.asarray(m)[:, None], h, I.reshape(-1, 9)], -1)
    d = at.dof_body
    F = inertia_times(composite[:, 0][d], composite[:, 1:4][d], composite[:, 4:].reshape(-1, 3, 3)[d], f.motion)
    M = F @ f.motion.T
    lower = at.moves[d] > 0  # degree of freedom e (column) moves the body of d (row)
    return jnp.where(lower, M, jnp.where(lower.T, M.T, 0.0)) + jnp.diag(rotor_inertia(model))


def mass_matrix(model: Model, position: Any) -> Any:
    """Joint-space inertia with rotors; (nv, nv)."""
    check(model, position)
    q = jnp.asarray(position, dtype=float)
    if not (tree_dynamics.ready() and model.nv):
        return _mass_matrix(model, q)
    kernel = partial(tree_dynamics.mass_matrix, topology(model.structure), model.nv)
    return with_twin(model, kernel, _mass_matrix, (constants(model, bodies(model)),), q)
