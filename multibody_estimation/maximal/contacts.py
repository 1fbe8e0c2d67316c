# SPDX-License-Identifier: Apache-2.0
"""Unilateral rows: contacts of spheres and points with planes and spheres, and joint limits."""

from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry import components as c
from multibody_estimation.maximal.constraints import axis_coordinates, axis_rows, lift, with_world
from multibody_estimation.maximal.model import Multibody
from multibody_estimation.maximal.rows import Rows, pick

__all__ = ['contact_rows', 'limit_rows']

Array = jax.Array


def contact_rows(model: Multibody, pose: Array) -> tuple[Array, Rows, Rows]:
    """Gap of each contact [m], shape (nc,), its normal rows (nc) and tangential rows (2 nc: first all t1, then all t2).

    The contact point lies on the plane below the sphere's centre; rows give the velocity of the first body relative to the
    second there, along the normal (opening positive) and the tangents. pose (nb, 7, *T); every result has trailing axes T.
    """
    q, t = with_world(pose), pose.ndim - 2
    com = jnp.concatenate([model.center_of_mass, jnp.zeros((1, 3))])

    def place(index: tuple[int, ...], point: Array) -> tuple:
        R = c.rotation([pick(x, index) for x in q[3:]])
        r = tuple(pick(x, index) for x in q[:3])
        arm = tuple(lift(point[:, i] - pick(com[:, i], index), t) for i in range(3))
        return R, r, c.add(r, c.apply(R, arm))

    Ra, ra, pa = place(model.contact_first, model.contact_point)
    Rb, rb, pb = place(model.contact_second, model.contact_plane)
    d = c.subtract(pa, pb)
    square = c.dot(d, d)
    size = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    sphere = lift(jnp.array([k == 'sphere' for k in model.contact_kinds]), t)
    radius, radius_second = lift(model.contact_radius, t), lift(model.contact_radius_second, t)
    face = c.apply(Rb, tuple(lift(model.contact_normal[:, i], t) for i in range(3)))
    n = tuple(jnp.where(sphere, x / size, y) for x, y in zip(d, face))
    gap = jnp.where(sphere, size - radius_second, c.dot(face, d)) - radius
    at = c.subtract(pa, c.scale(radius, n))
    la, lb = c.subtract(at, ra), c.subtract(at, rb)
    # Tangents from the world axis least along n; the choice is constant almost everywhere.
    least = jnp.argmin(jnp.abs(jnp.stack(n)), axis=0)
    e = tuple((least == i).astype(float) for i in range(3))
    t1 = c.cross(n, e)
    t1 = c.scale(1 / jnp.sqrt(c.dot(t1, t1)), t1)
    t2 = c.cross(n, t1)

    def rows(u: tuple) -> Rows:
        # Written as second minus first, hence the bodies change places.
        return Rows(
            model.contact_second,
            model.contact_first,
            u,
            c.apply_transposed(Rb, c.scale(-1.0, c.cross(lb, u))),
            c.apply_transposed(Ra, c.cross(la, u)),
        )

    a, b = rows(t1), rows(t2)
    both = [
        tuple(jnp.concatenate([x, y]) for x, y in zip(getattr(a, k), getattr(b, k)))
        for k in ('linear', 'angular_first', 'angular_second')
    ]
    return gap, rows(n), Rows(a.first * 2, a.second * 2, *both)


def limit_rows(model: Multibody, pose: Array) -> tuple[Array, Rows]:
    """Distance to the lower and then the upper limit of each limited axis [rad or m], and rows with its rate; (2 nl, *T)."""
    index = model.limited
    x, t = pick(axis_coordinates(model, pose), index), pose.ndim - 2
    rows = axis_rows(model, pose).take(index)
    gap = jnp.concatenate([x - lift(pick(model.lower, index), t), lift(pick(model.upper, index), t) - x])
    parts = [tuple(jnp.concatenate([u, -u]) for u in getattr(rows, k)) for k in ('linear', 'angular_first', 'angular_second')]
    return gap, Rows(rows.first * 2, rows.second * 2, *parts)
