# SPDX-License-Identifier: Apache-2.0
"""Inverse dynamics is linear in the inertial parameters: torques = regressor @ parameters + rotor inertias * acceleration.

The ten parameters of a link are its mass, its first moment m c and its inertia about the ORIGIN of its frame, in the order
(m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz). With w the angular velocity, dw its rate and d the classical proper acceleration of
the origin, all in the link's frame, the net wrench on the link is (Atkeson, An, Hollerbach 1986)

    force  = m d + ([dw]x + [w]x[w]x) mc,        moment = mc x d + L(dw) I + [w]x L(w) I,        L(w) I = (inertia) w.
"""

from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.geometry import spatial
from multibody_estimation.geometry.spatial import cross, multiply, skew
from multibody_estimation.tree.bodies import layout
from multibody_estimation.tree.dynamics import upward
from multibody_estimation.tree.kinematics import _links, _to_link, body_accelerations, body_velocities, frames
from multibody_estimation.tree.model import Model, check

__all__ = ['PARAMETERS', 'inertial_parameters', 'joint_torque_regressor', 'with_inertial_parameters']

PARAMETERS = ('m', 'mcx', 'mcy', 'mcz', 'Ixx', 'Ixy', 'Iyy', 'Ixz', 'Iyz', 'Izz')
_PICK = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))


def inertial_parameters(model: Model) -> Any:
    """Parameters of every link about its own origin; (nl, 10)."""
    xp = spatial.namespace(model.mass, model.center_of_mass, model.inertia)
    m, c = model.mass[:, None], model.center_of_mass
    S = skew(c)
    about = model.inertia - m[..., None] * multiply(S, S)
    return xp.concatenate([m, m * c, xp.stack([about[:, i, j] for i, j in _PICK], -1)], -1)


def with_inertial_parameters(model: Model, parameters: Any) -> Model:
    """The model with other inertial parameters (nl, 10); a massless link keeps its centre of mass."""
    xp = spatial.namespace(parameters, model.center_of_mass)
    m = parameters[:, :1]
    c = xp.where(m > 0, parameters[:, 1:4] / xp.where(m > 0, m, 1.0), model.center_of_mass)
    xx, xy, yy, xz, yz, zz = (parameters[:, 4 + i] for i in range(6))
    about = xp.stack([xp.stack([xx, xy, xz], -1), xp.stack([xy, yy, yz], -1), xp.stack([xz, yz, zz], -1)], -2)
    S = skew(c)
    return model.replace(mass=m[:, 0], center_of_mass=c, inertia=about + m[..., None] * multiply(S, S))


def _inertia_columns(w: Any) -> Any:
    """L(w): the six inertia numbers to (inertia) w; shapes (..., 3) -> (..., 3, 6)."""
    x, y, z = w[..., 0], w[..., 1], w[..., 2]
    o = jnp.zeros_like(x)
    rows = [[x, y, o, z, o, o], [o, x, y, o, z, o], [o, o, o, x, y, z]]
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def joint_torque_regressor(model: Model, position: Any, velocity: Any, acceleration: Any) -> Any:
    """Matrix (nv, 10 nl) that `inertial_parameters`, flattened, is multiplied with to give `inverse_dynamics` without rotors."""
    check(model, position, velocity, acceleration)
    v, a = jnp.asarray(velocity, dtype=float), jnp.asarray(acceleration, dtype=float)
    at, f = layout(model.structure), frames(model, position)
    b = at.link_body
    R, p = _links(model, f)
    V = body_velocities(model, f, v)
    A = _to_link(R, p, (body_accelerations(model, f, V, v, a) + upward(f))[b])
    V = _to_link(R, p, V[b])
    w, dw = V[:, 3:], A[:, 3:]
    d = A[:, :3] + cross(w, V[:, :3])
    W = skew(w)
    o = jnp.zeros((*w.shape[:1], 3, 6))
    force = jnp.concatenate([d[..., None], skew(dw) + multiply(W, W), o], -1)
    moment = jnp.concatenate([o[..., :1], -skew(d), _inertia_columns(dw) + W @ _inertia_columns(w)], -1)
    S = _to_link(R[:, None], p[:, None], f.motion[None]) * at.moves[b][..., None]  # (nl, nv, 6): every motion seen in every link
    Y = jnp.einsum('ldk,lkp->dlp', S, jnp.concatenate([force, moment], -2))
    return Y.reshape(model.nv, 10 * len(np.asarray(b)))
