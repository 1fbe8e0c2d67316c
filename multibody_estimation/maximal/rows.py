# SPDX-License-Identifier: Apache-2.0
"""Rows of the system: what a joint, a friction axis or a contact sees of the bodies' velocities.

Each row joins two bodies (either may be the world) and reads ``L.(v_b - v_a) + Wa.w_a + Wb.w_b`` with L in world, Wa and Wb in
body components. Everything is kept as components over (row, time): products with G and its transpose cost a few
multiplications per row and no matrix is formed; `dense` forms it where the forward step needs it.
"""

from collections.abc import Sequence

import numpy as np

from multibody_estimation._jax import jax, jnp, static, value
from multibody_estimation.geometry import components as c

__all__ = ['Rows', 'dense', 'impulse', 'join', 'pick', 'speed']

Array = jax.Array


@value
class Rows:
    """m rows; every component has shape (m, *T)."""

    first: tuple[int, ...] = static()
    second: tuple[int, ...] = static()
    linear: tuple[Array, ...]
    angular_first: tuple[Array, ...]
    angular_second: tuple[Array, ...]

    def take(self, index: Sequence[int]) -> 'Rows':
        """Return some of the rows."""
        some = [tuple(pick(x, index) for x in part) for part in (self.linear, self.angular_first, self.angular_second)]
        return Rows(tuple(self.first[i] for i in index), tuple(self.second[i] for i in index), *some)


def _runs(index: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Split an index into runs (start, step >= 0, length)."""
    runs: list[tuple[int, int, int]] = []
    for i in index:
        start, step, size = runs[-1] if runs else (0, 0, 0)
        if size == 1 and i >= start:
            runs[-1] = (start, i - start, 2)
        elif size > 1 and i == start + step * size:
            runs[-1] = (start, step, size + 1)
        else:
            runs.append((i, 0, 1))
    return runs


def pick(x: Array, index: Sequence[int]) -> Array:
    """Rows of x by a static index, as a few slices where that is possible: XLA fuses those, and not a gather."""
    index = tuple(int(i) for i in index)
    if index == tuple(range(x.shape[0])):
        return x
    runs = _runs(index)
    if not runs:
        return x[:0]
    if len(runs) > 8:
        return x[np.asarray(index)]
    parts = []
    for start, step, size in runs:
        if step == 0:
            parts.append(jnp.broadcast_to(x[start : start + 1], (size, *x.shape[1:])))
        else:
            parts.append(jax.lax.slice_in_dim(x, start, start + step * (size - 1) + 1, step))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def padded(x: Array) -> Array:
    """Append the world, which stands still, to arrays over bodies (nb, ...)."""
    return jnp.concatenate([x, jnp.zeros_like(x[:1])])


def join(*parts: Rows) -> Rows:
    """Stack rows."""
    some = tuple(p for p in parts if p.first)
    if len(some) < 2:
        return some[0] if some else parts[0]
    parts = some
    stacked = [
        tuple(jnp.concatenate([getattr(p, name)[i] for p in parts]) for i in range(3))
        for name in ('linear', 'angular_first', 'angular_second')
    ]
    return Rows(sum((p.first for p in parts), ()), sum((p.second for p in parts), ()), *stacked)


def speed(rows: Rows, velocity: Array) -> Array:
    """G V: the rate each row sees; velocity (nb, 6, *T) -> (m, *T)."""
    both = padded(velocity)
    a = [pick(both[:, i], rows.first) for i in range(6)]
    b = [pick(both[:, i], rows.second) for i in range(6)]
    return c.dot(rows.linear, c.subtract(b[:3], a[:3])) + c.dot(rows.angular_first, a[3:]) + c.dot(rows.angular_second, b[3:])


def impulse(rows: Rows, multiplier: Array, bodies: int) -> Array:
    """G^T lambda: impulse on each body, linear in world and angular in body components; (m, *T) -> (nb, 6, *T)."""
    linear = [multiplier * x for x in rows.linear]
    parts_a = [-x for x in linear] + [multiplier * x for x in rows.angular_first]
    parts_b = linear + [multiplier * x for x in rows.angular_second]
    index = np.array(rows.first + rows.second)
    if len(index) > 48:
        both = [jnp.concatenate([a, b]) for a, b in zip(parts_a, parts_b)]
        return jnp.stack([jax.ops.segment_sum(x, index, bodies + 1)[:bodies] for x in both], axis=1)
    zero = jnp.zeros_like(multiplier[0]) if rows.first else jnp.zeros(multiplier.shape[1:])
    out = []
    for body in range(bodies):
        mine_a = [i for i, k in enumerate(rows.first) if k == body]
        mine_b = [i for i, k in enumerate(rows.second) if k == body]
        out.append(jnp.stack([sum([a[i] for i in mine_a] + [b[i] for i in mine_b], zero) for a, b in zip(parts_a, parts_b)]))
    return jnp.stack(out)


def dense(rows: Rows, bodies: int) -> Array:
    """G as a matrix; shape (m, 6 nb, *T)."""
    # One-hot products instead of a scatter: they fuse, and a batch costs no index arithmetic.
    m, t = len(rows.first), rows.linear[0].ndim - 1

    def mark(index: tuple[int, ...]) -> np.ndarray:
        return np.eye(bodies + 1)[list(index)][:, :bodies].reshape((m, bodies) + (1,) * t)

    a, b = mark(rows.first), mark(rows.second)
    columns = [x[:, None] * (b - a) for x in rows.linear]
    columns += [x[:, None] * a + y[:, None] * b for x, y in zip(rows.angular_first, rows.angular_second)]
    return jnp.stack(columns, axis=2).reshape(m, 6 * bodies, *rows.linear[0].shape[1:])
