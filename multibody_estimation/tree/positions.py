# SPDX-License-Identifier: Apache-2.0
"""The space of positions: joints that turn or slide are numbers, the others carry unit quaternions.

`advance` moves along a constant velocity, exactly: a floating joint along a screw (its velocity is constant in its own frame), a
spherical joint about a fixed axis. `difference` is its inverse.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.geometry import quaternion
from multibody_estimation.geometry.spatial import cross
from multibody_estimation.tree.model import DEGREES, POSITIONS, Model, Structure, check

__all__ = ['advance', 'difference', 'neutral_position', 'normalised']

# Below this squared angle the coefficients of the screw are taken from their series, which are exact there in float64.
SMALL = 1e-4


class Places(NamedTuple):
    """Where joints stand in the position and velocity vectors."""

    single: tuple[np.ndarray, np.ndarray]
    """Places of the joints that turn or slide."""
    turning: tuple[tuple[str, int, int], ...]
    """Kind and first places of the others, a floating base first."""


@lru_cache(maxsize=256)
def places(structure: Structure) -> Places:
    """Sort the joints, and a floating base, by kind."""
    single, turning, iq, iv = [], [], 0, 0
    for kind in ('floating',) * structure.floating + structure.joint_types:
        if DEGREES[kind] == 1:
            single.append((iq, iv))
        else:
            turning.append((kind, iq, iv))
        iq, iv = iq + POSITIONS[kind], iv + DEGREES[kind]
    at = np.array(single, int).reshape(-1, 2)
    return Places((at[:, 0], at[:, 1]), tuple(turning))


def neutral_position(model: Model) -> np.ndarray:
    """Zero positions, identity quaternions; (nq,)."""
    q = np.zeros(model.nq)
    for kind, iq, _ in places(model.structure).turning:
        q[iq + 3 * (kind == 'floating')] = 1.0
    return q


def normalised(model: Model, position: Any) -> Any:
    """The position with its quaternions at unit length; (nq,)."""
    q = jnp.asarray(position, dtype=float)
    for kind, iq, _ in places(model.structure).turning:
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
    q, s = jnp.asarray(position, dtype=float), jnp.asarray(step, dtype=float)
    (at, of), turning = places(model.structure)
    if not turning:
        return q + s
    out = q.at[at].add(s[of])
    for kind, iq, iv in turning:
        if kind == 'spherical':
            out = out.at[iq : iq + 4].set(quaternion.multiply(q[iq : iq + 4], quaternion.exp(s[iv : iv + 3])))
            continue
        e, linear, w = q[iq + 3 : iq + 7], s[iv : iv + 3], s[iv + 3 : iv + 6]
        one, two = _coefficients(w @ w)
        along = linear + one * cross(w, linear) + two * cross(w, cross(w, linear))
        moved = jnp.concatenate([q[iq : iq + 3] + quaternion.rotate(e, along), quaternion.multiply(e, quaternion.exp(w))])
        out = out.at[iq : iq + 7].set(moved)
    return out


def difference(model: Model, start: Any, end: Any) -> Any:
    """Step (nv,) that takes ``start`` to ``end`` by `advance`, the shorter way round for quaternions."""
    check(model, start)
    check(model, end)
    a, b = jnp.asarray(start, dtype=float), jnp.asarray(end, dtype=float)
    (at, of), turning = places(model.structure)
    if not turning:
        return b - a
    out = jnp.zeros(model.nv).at[of].set(b[at] - a[at])
    for kind, iq, iv in turning:
        if kind == 'spherical':
            out = out.at[iv : iv + 3].set(
                quaternion.log(quaternion.multiply(quaternion.conjugate(a[iq : iq + 4]), b[iq : iq + 4]))
            )
            continue
        e = quaternion.conjugate(a[iq + 3 : iq + 7])
        w = quaternion.log(quaternion.multiply(e, b[iq + 3 : iq + 7]))
        along = quaternion.rotate(e, b[iq : iq + 3] - a[iq : iq + 3])
        square = w @ w
        one, two = _coefficients(square)
        # Inverse of 1 + one [w]x + two [w]x[w]x: 1 - [w]x/2 + k [w]x[w]x.
        small = square < SMALL
        k = jnp.where(small, 1 / 12 + square / 720, (1 - (1 - square * two) / (2 * one)) / jnp.where(small, 1.0, square))
        out = out.at[iv : iv + 6].set(jnp.concatenate([along - cross(w, along) / 2 + k * cross(w, cross(w, along)), w]))
    return out
