# SPDX-License-Identifier: Apache-2.0
"""Joint constraints g(q), their Jacobian rows, and the free axes of joints with their coordinates.

Elementary rows of a joint with first frame (x, y, z) at p_a and second frame (x', y', z') at p_b, d = p_b - p_a:
``g0..g2 = x.d, y.d, z.d``;  ``g3 = -y.z'``, ``g4 = x.z'``, ``g5 = -x.y'`` (turns about x, y, z to first order);
``g6 = |d| - length`` (distance);  ``g7 = z.d - length`` (rolling: the second anchor is the sphere's centre).
"""

from collections.abc import Callable
from typing import NamedTuple

from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry import components as c
from multibody_estimation.maximal.model import Multibody
from multibody_estimation.maximal.rows import Rows, dense, pick

__all__ = ['axis_coordinates', 'axis_rows', 'constraint_jacobian', 'constraint_rows', 'constraint_values', 'joint_frames']

Array = jax.Array


class Frames(NamedTuple):
    """World geometry of all joints; components of shape (nj, *T)."""

    d: tuple
    """p_b - p_a."""
    first: tuple
    """Axes x, y, z of the first frame, each a vector."""
    second: tuple
    lever_first: tuple
    """p_a - centre of mass of the first body (for the world: p_a)."""
    lever_second: tuple
    turn_first: tuple
    """Rotation first body -> world."""
    turn_second: tuple


def lift(leaf: Array, axes: int) -> Array:
    """Append ``axes`` trailing axes to a leaf, to broadcast against (m, *T)."""
    return leaf.reshape(leaf.shape + (1,) * axes)


def with_world(pose: Array) -> list[Array]:
    """Seven components over bodies and the world, which sits at the origin; each (nb + 1, *T)."""
    rest = jnp.zeros_like(pose[:1]).at[:, 3].set(1.0)
    both = jnp.concatenate([pose, rest])
    return [both[:, i] for i in range(7)]


def joint_frames(model: Multibody, pose: Array) -> Frames:
    """Place the joint frames of both bodies in the world; pose (nb, 7, *T)."""
    t = pose.ndim - 2
    q = with_world(pose)
    com = jnp.concatenate([model.center_of_mass, jnp.zeros((1, 3))])

    def side(index: tuple[int, ...], point: Array, frame: Array) -> tuple:
        R = c.rotation([pick(x, index) for x in q[3:]])
        arm = tuple(lift(point[:, i] - pick(com[:, i], index), t) for i in range(3))
        lever = c.apply(R, arm)
        F = c.rotation([lift(frame[:, i], t) for i in range(4)])
        axes = tuple(c.apply(R, c.column(F, i)) for i in range(3))
        return c.add([pick(x, index) for x in q[:3]], lever), lever, axes, R

    pa, la, fa, Ra = side(model.first, model.point_first, model.frame_first)
    pb, lb, fb, Rb = side(model.second, model.point_second, model.frame_second)
    return Frames(c.subtract(pb, pa), fa, fb, la, lb, Ra, Rb)


def _row(f: Frames, code: int, length: Array) -> tuple:
    """Value and (L, Wa, Wb in world components) of one elementary row, for all joints at once."""
    zero = (jnp.zeros_like(f.d[0]),) * 3
    if code in (0, 1, 2, 7):
        u = f.first[2 if code == 7 else code]
        return (
            c.dot(u, f.d) - (length if code == 7 else 0.0),
            u,
            c.cross(u, c.add(f.lever_first, f.d)),
            c.cross(f.lever_second, u),
        )
    if code == 6:
        square = c.dot(f.d, f.d)
        size = jnp.sqrt(jnp.where(square > 0, square, 1.0))
        n = c.scale(1 / size, f.d)
        return size - length, n, c.cross(n, f.lever_first), c.cross(f.lever_second, n)
    alpha, beta, sign = {3: (1, 2, -1.0), 4: (0, 2, 1.0), 5: (0, 1, -1.0)}[code]
    w = c.scale(sign, c.cross(f.second[beta], f.first[alpha]))
    return sign * c.dot(f.first[alpha], f.second[beta]), zero, c.scale(-1.0, w), w


def _nothing(pose: Array) -> Array:
    return jnp.zeros((0, *pose.shape[2:]))


def no_rows(pose: Array) -> Rows:
    """Return zero rows, for mechanisms that have none of a sort."""
    return Rows((), (), *((_nothing(pose),) * 3 for _ in range(3)))


def constraint_rows(model: Multibody, pose: Array) -> tuple[Array, Rows]:
    """Constraint values g, shape (m, *T), [m] or [rad], and the rows of their Jacobian G; pose (nb, 7, *T)."""
    rows = model.rows
    if not rows:
        return _nothing(pose), no_rows(pose)
    f = joint_frames(model, pose)
    codes = sorted({code for _, code in rows})
    length = lift(model.length, pose.ndim - 2)
    table = {code: _row(f, code, length) for code in codes}
    # Evaluate each code for all joints, then keep the (joint, code) pairs that exist, in joint order.
    where = [codes.index(code) * len(model.joints) + j for j, code in rows]

    def flat(get) -> Array:
        return pick(jnp.concatenate([get(table[code]) for code in codes]), where)

    joint = [j for j, _ in rows]
    Ra = tuple(tuple(pick(x, joint) for x in row) for row in f.turn_first)
    Rb = tuple(tuple(pick(x, joint) for x in row) for row in f.turn_second)
    g = flat(lambda r: r[0])
    L = tuple(flat(lambda r, i=i: r[1][i]) for i in range(3))
    Wa = c.apply_transposed(Ra, tuple(flat(lambda r, i=i: r[2][i]) for i in range(3)))
    Wb = c.apply_transposed(Rb, tuple(flat(lambda r, i=i: r[3][i]) for i in range(3)))
    return g, Rows(tuple(model.first[j] for j in joint), tuple(model.second[j] for j in joint), L, Wa, Wb)


def constraint_values(model: Multibody, pose: Array) -> Array:
    """g(q): violation of every elementary constraint, [m] or [rad]; shape (m, *T)."""
    return constraint_rows(model, pose)[0]


def constraint_jacobian(model: Multibody, pose: Array) -> Array:
    """G(q) with dg/dt = G v, v = (linear world, angular body) per body; shape (m, 6 nb); pose (nb, 7)."""
    return dense(constraint_rows(model, pose)[1], len(model.bodies))


def _axis_code(model: Multibody, axis: tuple[int, str]) -> str:
    """Code of an axis, marked where the kind of its joint changes its meaning: u(niversal), b(all), s(phere that rolls)."""
    j, code = axis
    mark = {'universal': 'u' if code == 'ry' else '', 'ball': 'b', 'rolling': 's'}
    return mark.get(model.kinds[j], '') + code


def _by_code(model: Multibody, evaluate: Callable[[str], tuple]) -> tuple[Array, ...]:
    """Evaluate each code of the axes for all joints at once, then keep the (joint, code) pairs that exist, in order."""
    code = [_axis_code(model, a) for a in model.axes]
    codes = sorted(set(code))
    tables = [evaluate(x) for x in codes]
    where = [codes.index(x) * len(model.joints) + j for x, (j, _) in zip(code, model.axes)]
    return tuple(pick(jnp.concatenate(column), where) for column in zip(*tables))


def axis_rows(model: Multibody, pose: Array) -> Rows:
    """Rows whose speed is the rate of each free axis (second relative to first body), [m/s] or [rad/s]; (na, *T)."""
    if not model.axes:
        return no_rows(pose)
    f = joint_frames(model, pose)
    joint = [j for j, _ in model.axes]
    zero = (jnp.zeros_like(f.d[0]),) * 3

    def evaluate(code: str) -> tuple:
        i = 'xyz'.index(code[-1])
        u = f.second[1] if code == 'ury' else f.first[i]
        if code[-2] == 'r':
            return (*zero, *c.scale(-1.0, u), *u)
        if code[0] == 's':
            # Material velocity at the contact point, which lies one radius below the sphere's centre.
            drop = c.scale(-lift(model.length, pose.ndim - 2), f.first[2])
            return (*u, *c.cross(u, c.add(f.lever_first, f.d, drop)), *c.cross(c.add(f.lever_second, drop), u))
        return (*u, *c.cross(u, c.add(f.lever_first, f.d)), *c.cross(f.lever_second, u))

    parts = _by_code(model, evaluate)
    Ra = tuple(tuple(pick(x, joint) for x in row) for row in f.turn_first)
    Rb = tuple(tuple(pick(x, joint) for x in row) for row in f.turn_second)
    first, second = tuple(model.first[j] for j in joint), tuple(model.second[j] for j in joint)
    return Rows(first, second, parts[:3], c.apply_transposed(Ra, parts[3:6]), c.apply_transposed(Rb, parts[6:]))


def _turns(model: Multibody, pose: Array) -> tuple:
    """Rotation vector of the second frame of every joint in its first one."""
    q, t = with_world(pose), pose.ndim - 2

    def frame(index: tuple[int, ...], leaf: Array) -> tuple:
        return c.multiply([pick(x, index) for x in q[3:]], [lift(leaf[:, i], t) for i in range(4)])

    return c.log(c.multiply(c.conjugate(frame(model.first, model.frame_first)), frame(model.second, model.frame_second)))


def axis_coordinates(model: Multibody, pose: Array) -> Array:
    """Coordinate of each free axis: displacement [m] or angle in (-pi, pi] [rad]; shape (na, *T).

    For ball joints the three are the rotation vector of the second frame in the first, of length at most pi; for universal
    joints the turn about x of the first, then about y of the second frame.
    """
    if not model.axes:
        return _nothing(pose)
    f = joint_frames(model, pose)
    (x, y, z), (x2, y2, _) = f.first, f.second

    def evaluate(code: str) -> tuple:
        i = 'xyz'.index(code[-1])
        if code[-2] == 't':
            return (c.dot(f.first[i], f.d),)
        if code[0] == 'b':
            return (_turns(model, pose)[i],)
        if i == 2:
            return (jnp.arctan2(c.dot(x2, y), c.dot(x2, x)),)
        if i == 0:
            return (jnp.arctan2(c.dot(y2, z), c.dot(y2, y)),)
        return (jnp.arctan2(-c.dot(x2, c.cross(x, y2)), c.dot(x2, x)),)

    return _by_code(model, evaluate)[0]
