# SPDX-License-Identifier: Apache-2.0
"""Forward dynamics by articulated bodies (Featherstone 2008, table 7.1) in base coordinates: a scan over the bodies.

The compiled kernel serves where it is there; the scan is its twin.
"""

from functools import partial
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry.spatial import cross_force, cross_motion, inertia_times, skew
from multibody_estimation.kernels import tree_dynamics
from multibody_estimation.tree.bodies import bodies, layout
from multibody_estimation.tree.compiled import constants, topology, with_twin
from multibody_estimation.tree.dynamics import (
    _inverse_dynamics,
    _mass_matrix,
    base_inertias,
    in_base,
    rotor_inertia,
    upward,
    wrenches_on_bodies,
)
from multibody_estimation.tree.kinematics import body_velocities, frames
from multibody_estimation.tree.model import Model, check

__all__ = ['forward_dynamics']


def forward_dynamics(model: Model, position: Any, velocity: Any, torques: Any, wrenches: Any = None) -> Any:
    """Accelerations (nv,) that joint torques (nv,), after the base's wrench where it floats, and external wrenches make."""
    check(model, position, velocity, torques)
    q, v, tau = (jnp.asarray(x, dtype=float) for x in (position, velocity, torques))
    body = bodies(model)
    on_bodies = wrenches_on_bodies(model, body, wrenches)
    if not (tree_dynamics.ready() and model.nv):
        return _articulated(model, q, v, tau, on_bodies)
    kernel = partial(tree_dynamics.forward_dynamics, topology(model.structure))
    return with_twin(model, kernel, _by_mass_matrix, (constants(model, body), body.gravity), q, v, tau, on_bodies)


def _by_mass_matrix(model: Model, q: Any, v: Any, tau: Any, wrenches: Any) -> Any:
    """The same function for derivatives: that of a linear solve needs no derivative of the sweeps."""
    M, h = _mass_matrix(model, q), _inverse_dynamics(model, q, v, jnp.zeros_like(v), wrenches)
    return jax.scipy.linalg.solve(M, tau - h, assume_a='pos')


def _articulated(model: Model, q: Any, v: Any, tau: Any, wrenches: Any) -> Any:
    at, f = layout(model.structure), frames(model, q)
    nb, nv = len(at.parent), model.nv
    m, h, I = base_inertias(f)
    V = body_velocities(model, f, v)
    bias = cross_force(V, inertia_times(m, h, I, V))
    if wrenches.shape[0]:
        bias = bias - in_base(f, wrenches)
    H = skew(h)
    mass = jnp.asarray(m)[:, None, None] * np.eye(3)
    articulated = jnp.concatenate([jnp.concatenate([mass, -H], -1), jnp.concatenate([H, I], -1)], -2)

    # Every body gets the same number k of columns; those it does not have are zero, with a unit inertia that decouples them.
    dofs = [np.flatnonzero(at.dof_body == b) for b in range(nb)] if nv else [np.zeros(0, int)] * nb
    if not model.floating:
        dofs[0] = np.zeros(0, int)
    k = max(1, *(len(d) for d in dofs[1:])) if nb > 1 else 1
    pick = np.array([np.pad(d, (0, k - len(d)), constant_values=nv) for d in dofs[1:]], int).reshape(nb - 1, k)
    pad = (pick == nv).astype(float)
    S = jnp.concatenate([f.motion, jnp.zeros((1, 6))])[pick]  # (nb - 1, k, 6)
    tau_b = jnp.append(tau, 0.0)[pick]
    rotor = jnp.append(rotor_inertia(model), 0.0)[pick] + pad
    drift = cross_motion(V[1:], (S * jnp.append(v, 0.0)[pick][..., None]).sum(1))
    ids, parent = jnp.arange(1, nb), jnp.asarray(at.parent[1:])

    def inverse(D: Any) -> Any:
        return 1.0 / D if k == 1 else jnp.linalg.inv(D)

    def inward(carry: Any, x: Any) -> Any:
        IA, pA = carry
        i, to, s, t, r, c = x
        U = s @ IA[i]
        D = inverse(U @ s.T + jnp.diag(r))
        u = t - s @ pA[i]
        G = D @ U
        Ia = IA[i] - U.T @ G
        pa = pA[i] + Ia @ c + G.T @ u
        return (IA.at[to].add(Ia), pA.at[to].add(pa)), (U, D, u)

    (IA, pA), (U, D, u) = jax.lax.scan(inward, (articulated, bias), (ids, parent, S, tau_b, rotor, drift), reverse=True)
    a0 = upward(f)
    if model.floating:
        a0 = jnp.linalg.solve(IA[0], tau[:6] - pA[0])

    def outward(A: Any, x: Any) -> Any:
        i, to, s, c, Ui, Di, ui = x
        a = A[to] + c
        rate = Di @ (ui - Ui @ a)
        return A.at[i].set(a + s.T @ rate), rate

    _, rates = jax.lax.scan(outward, jnp.zeros((nb, 6)).at[0].set(a0), (ids, parent, S, drift, U, D, u))
    result = jnp.zeros(nv + 1).at[pick.reshape(-1)].set(rates.reshape(-1))[:nv]
    return result.at[:6].set(a0 - upward(f)) if model.floating else result
