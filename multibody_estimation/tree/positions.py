# SPDX-License-Identifier: Apache-2.0
"""The space of positions: joints that turn or slide are numbers, the others carry unit quaternions.

`advance` moves along a constant velocity, exactly: a floating joint along a screw (its velocity is constant in its own frame), a
spherical joint about a fixed axis. `difference` is its inverse.
"""

from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.geometry import quaternion
from multibody_estimation.geometry.spatial import cross
from multibody_estimation.tree.model import DEGREES, POSITIONS, Model, check

__all__ = ['advance', 'difference', 'neutral_position', 'normalised']

# Below this squared angle the coefficients of the screw are taken from their series, which are exact there in float64.
SMALL = 1e-4


def _pieces(model: Model) -> list[tuple[str, int, int]]:
    """Kind and first place in the position and velocity vector, of the base if it floats and of every joint."""
    kinds = ('floating',) * model.floating + tuple(model.joint_types)
    pieces, iq, iv = [], 0, 0
    for kind in kinds:
        pieces.append((kind, iq, iv))
        iq, iv = iq + POSITIONS[kind], iv + DEGREES[kind]
    return pieces


def neutral_position(model: Model) -> np.ndarray:
    """Zero positions, identity quaternions; (nq,)."""
    q = np.zeros(model.nq)
    for kind, iq, _ in _pieces(model):
        if kind in ('spherical', 'floating'):
            q[iq + 3 * (kind == 'floating')] = 1.0
    return q


def normalised(model: Model, position: Any) -> Any:
    """The position with its quaternions at unit length; (nq,)."""
    q = jnp.asarray(position, dtype=float)
    for kind, iq, _ in _pieces(model):
        if kind in ('spherical', 'floating'):
            at = slice(iq + 3 * (kind == 'floating'), iq + POSITIONS[kind])
            q = q.at[at].set(quaternion.normalise(q[at]))
    return q


def _coefficients(square: Any) -> tuple[Any, Any]:
    """(1 - cos t)/t^2 and (t - sin t)/t^3 for t^2, smooth at zero."""
    small = square < SMALL
    t = jnp.sqrt(jnp.where(small, 1.0, square))
    one = jnp.where(small, 0.5 - square / 24 * (1 - square / 30), (1 - jnp.cos(t)) / (t * t))
    two = jnp.where(small, 1 / 6 - square / 120 * (1 - square / 42), (t - jnp.sin(t)) / (t * t * t))
    return one, two


def advance(model: Model, position: Any, step: Any) -> Any:
    """Position (nq,) after moving by ``step`` (nv,) = velocity times time."""
    check(model, position, step)
    q, s, parts = jnp.asarray(position, dtype=float), jnp.asarray(step, dtype=float), []
    for kind, iq, iv in _pieces(model):
        if kind in ('revolute', 'prismatic'):
            parts.append(q[iq : iq + 1] + s[iv : iv + 1])
        elif kind == 'spherical':
            parts.append(quaternion.multiply(q[iq : iq + 4], quaternion.exp(s[iv : iv + 3])))
        else:
            e, linear, w = q[iq + 3 : iq + 7], s[iv : iv + 3], s[iv + 3 : iv + 6]
            one, two = _coefficients(w @ w)
            along = linear + one * cross(w, linear) + two * cross(w, cross(w, linear))
            parts += [q[iq : iq + 3] + quaternion.rotate(e, along), quaternion.multiply(e, quaternion.exp(w))]
    return jnp.concatenate(parts) if parts else q


def difference(model: Model, start: Any, end: Any) -> Any:
    """Step (nv,) that takes ``start`` to ``end`` by `advance`, the shorter way round for quaternions."""
    check(model, start)
    check(model, end)
    a, b, parts = jnp.asarray(start, dtype=float), jnp.asarray(end, dtype=float), []
    for kind, iq, _ in _pieces(model):
        if kind in ('revolute', 'prismatic'):
            parts.append(b[iq : iq + 1] - a[iq : iq + 1])
        elif kind == 'spherical':
            parts.append(quaternion.log(quaternion.multiply(quaternion.conjugate(a[iq : iq + 4]), b[iq : iq + 4])))
        else:
            e = quaternion.conjugate(a[iq + 3 : iq + 7])
            w = quaternion.log(quaternion.multiply(e, b[iq + 3 : iq + 7]))
            along = quaternion.rotate(e, b[iq : iq + 3] - a[iq : iq + 3])
            one, two = _coefficients(w @ w)
            # Inverse of 1 + one [w]x + two [w]x[w]x: 1 - [w]x/2 + k [w]x[w]x.
            square = w @ w
            small = square < SMALL
            k = jnp.where(small, 1 / 12 + square / 720, (1 - (1 - square * two) / (2 * one)) / jnp.where(small, 1.0, square))
            parts += [along - cross(w, along) / 2 + k * cross(w, cross(w, along)), w]
    return jnp.concatenate(parts) if parts else jnp.zeros(0)
