# SPDX-License-Identifier: Apache-2.0
"""The equations themselves: D d + bD = 0 and y = Y d + bY, as functions of the dynamic variables d and the state (q, dq, w).

d = (a, fx, f, ddq): for each link its classical proper acceleration and external wrench, for each link but the base the wrench its
joint transmits to it, for each joint its acceleration (design page, 1c and 2b with the corrected bias). The sweep never forms these
matrices; they serve the state estimate, the observability report, and the tests.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels.wrench_sweep_twin import get, place, put
from multibody_estimation.kernels.wrench_tables import Layout
from multibody_estimation.wrench.program import Program

__all__ = ['Dynamics', 'Residuals', 'flatten', 'matrices', 'residuals', 'unflatten']


class Dynamics(NamedTuple):
    """The variables d of one sample; nl links, n joints."""

    acceleration: Any
    """Classical proper acceleration of each link (linear, angular), in its frame; (nl, 6) [m/s^2, rad/s^2]."""
    external: Any
    """External wrench on each link, about its origin; (nl, 6) [N, N m]."""
    transmitted: Any
    """Wrench on each link from its parent, seen from the base; zero for the base; (nl, 6) [N, N m]."""
    joint: Any
    """Joint accelerations; (n,) [rad/s^2 or m/s^2]."""


class Residuals(NamedTuple):
    """What is left of the equations at given d and state."""

    equation: Any
    """Newton-Euler equation of each link; (nl, 6) [N, N m]."""
    motion: Any
    """Acceleration equation of each link, zero for the base; (nl, 6) [m/s^2, rad/s^2]."""
    measurement: Any
    """Predicted measurements, offset included; (ny,)."""


class _Rows(NamedTuple):
    """Measurement equations row by row."""

    target: np.ndarray
    node: np.ndarray
    Y: np.ndarray
    B: np.ndarray
    offset: np.ndarray


class _Tables(NamedTuple):
    """Constants of the equations as a pytree, so that programs of the same layout share compiled code."""

    nodes: dict[str, Any]
    rows: _Rows
    inner: Any
    """1 for the inner part of a split link; (nodes,)."""


class Shape(NamedTuple):
    """Structure of the equations (hashable)."""

    layout: Layout
    of_link: tuple[int, ...]
    joint_of_link: tuple[int, ...]
    of_joint: tuple[int, ...]
    link: tuple[int, ...]
    """Link of each node."""
    outer: tuple[int, ...]
    """Nodes that are the outer part of a split link."""

    @property
    def base(self) -> int:
        """The base link."""
        return self.link[0]


TARGETS = ('acceleration', 'transmitted', 'external', 'joint', 'velocity')


@lru_cache(maxsize=32)
def shape(program: Program) -> Shape:
    """Structure of a program's equations."""
    nodes = program.nodes
    outer = tuple(i for i, n in enumerate(nodes.nodes) if n.outer)
    return Shape(program.layout, nodes.of_link, nodes.joint_of_link, nodes.of_joint, tuple(n.link for n in nodes.nodes), outer)


@lru_cache(maxsize=32)
def tables(program: Program) -> _Tables:
    """Numbers of a program's equations."""
    size = program.setup.size
    rows = _Rows(np.zeros(size, int), np.zeros(size, int), np.zeros((size, 6)), np.zeros((size, 6)), np.zeros(size))
    for x in program.terms:
        at = slice(x.row, x.row + x.sensor.size)
        rows.target[at], rows.node[at], rows.offset[at] = TARGETS.index(x.target), x.node, x.sensor.bias()
        rows.Y[at, : x.Y.shape[1]] = x.Y
        rows.B[at] = x.B
    names = ('R0', 'p0', 'c', 'axis', 'S', 'I')
    inner = np.array([float(n.inner) for n in program.nodes.nodes])
    with jax.ensure_compile_time_eval():  # on the device once, not at every call
        return jax.tree.map(jnp.asarray, _Tables({f: program.arrays[f] for f in names}, rows, inner))


def kinematics(shape: Shape, t: _Tables, position: Any, velocity: Any, base_velocity: Any) -> tuple[Any, Any, Any, Any]:
    """Rotation (m, 3, 3) and position (m, 3) of each node on its parent, bias (m, 6), angular velocity (m, 3); m nodes."""
    layout, m = shape.layout, len(shape.layout.parent)
    kind = np.array(layout.kind)
    none = jnp.zeros(1)
    dof = np.where(np.array(layout.dof) < 0, layout.joints, np.array(layout.dof))
    q, dq = jnp.concatenate([position, none])[dof], jnp.concatenate([velocity, none])[dof]
    geometry = {f: jnp.asarray(t.nodes[f])[1:, ..., None] for f in ('R0', 'p0', 'c', 'axis', 'S')}
    geometry |= {'turns': jnp.asarray(kind[1:] == 1, float)[:, None], 'slides': jnp.asarray(kind[1:] == 2, float)[:, None]}

    def step(oms, x):
        i, g, qi, dqi, parent = x
        R, p, bias, om = place(g, qi[None], dqi[None], get(oms, parent)[:, None])
        return put(oms, om[:, 0], i), (R[..., 0], p[..., 0], bias[..., 0])

    start = jnp.zeros((m, 3)).at[0].set(base_velocity)
    parent = jnp.asarray(np.array(layout.parent[1:], int))
    oms, (R, p, bias) = jax.lax.scan(step, start, (jnp.arange(1, m), geometry, q[1:], dq[1:], parent))
    return (
        jnp.concatenate([jnp.eye(3)[None], R]), jnp.concatenate([jnp.zeros((1, 3)), p]), jnp.concatenate([jnp.zeros((1, 6)), bias]), oms,
    )  # fmt: skip


def _residuals(shape: Shape, t: _Tables, d: Dynamics, position: Any, velocity: Any, base_velocity: Any) -> Residuals:
    m = len(shape.link)
    R, p, bias, om = kinematics(shape, t, position, velocity, base_velocity)
    link, parent = np.array(shape.link), np.array(shape.layout.parent)
    a, I = d.acceleration[link], jnp.asarray(t.nodes['I'])
    h = (I[:, :, 3:] * om[:, None]).sum(-1)
    gyroscopic = jnp.concatenate([jnp.cross(om, h[:, :3]), jnp.cross(om, h[:, 3:])], -1)
    inertial = (I * a[:, None]).sum(-1) + gyroscopic
    f = jnp.where((np.array(shape.joint_of_link)[link] == np.arange(m))[:, None], d.transmitted[link], 0.0).at[0].set(0.0)
    for i in shape.outer:  # what the inner part does not take passes on
        f = f.at[i].set(f[parent[i]] - inertial[parent[i]])
    fx = jnp.where((np.array(shape.of_link)[link] == np.arange(m))[:, None], d.external[link], 0.0)
    force = (R * f[:, None, :3]).sum(-1)
    moment = (R * f[:, None, 3:]).sum(-1) + jnp.cross(p, force)
    carried = jax.ops.segment_sum(jnp.concatenate([force, moment], -1)[1:], parent[1:], m)
    equation = inertial - fx - f + carried
    up = a[parent]
    linear = up[:, :3] + jnp.cross(up[:, 3:], p)
    moved = jnp.concatenate([(R * linear[..., None]).sum(1), (R * up[:, 3:, None]).sum(1)], -1)
    ddq = jnp.concatenate([d.joint, jnp.zeros(1)])[
        np.where(np.array(shape.layout.dof) < 0, len(d.joint), np.array(shape.layout.dof))
    ]
    motion = -a + moved + jnp.asarray(t.nodes['S']) * ddq[:, None] + bias
    pad = jnp.zeros((m, 5))
    quantities = jnp.stack([a, f, fx, jnp.concatenate([ddq[:, None], pad], -1), jnp.concatenate([om, pad[:, :3]], -1)])
    rows = t.rows
    x, y, z = om[:, 0], om[:, 1], om[:, 2]
    mono = jnp.stack([x * x, y * y, z * z, x * y, x * z, y * z], -1)
    predicted = (rows.Y * quantities[rows.target, rows.node]).sum(-1) + (rows.B * mono[rows.node]).sum(-1) + rows.offset
    of_joint = np.array(shape.joint_of_link)
    return Residuals(equation[np.array(shape.of_link)], motion[of_joint].at[shape.base].set(0.0), predicted)


def residuals(program: Program, d: Dynamics, position: Any, velocity: Any, base_velocity: Any) -> Residuals:
    """Evaluate the equations for one sample: joint positions and velocities (n,), angular velocity of the base in its frame (3,)."""
    return _residuals(shape(program), tables(program), d, position, velocity, base_velocity)


def flatten(shape: Shape, d: Dynamics) -> Any:
    """One vector: accelerations, external wrenches, transmitted wrenches without the base's, joint accelerations."""
    keep = np.array([i for i in range(len(shape.of_link)) if i != shape.base], int)
    return jnp.concatenate([d.acceleration.ravel(), d.external.ravel(), d.transmitted[keep].ravel(), d.joint])


def unflatten(shape: Shape, x: Any) -> Dynamics:
    """Undo `flatten`."""
    nl = len(shape.of_link)
    keep = np.array([i for i in range(nl) if i != shape.base], int)
    a, fx, f, ddq = jnp.split(x, np.cumsum([6 * nl, 6 * nl, 6 * (nl - 1)]))
    return Dynamics(a.reshape(nl, 6), fx.reshape(nl, 6), jnp.zeros((nl, 6)).at[keep].set(f.reshape(nl - 1, 6)), ddq)


@partial(jax.jit, static_argnums=0)
def _matrices(shape: Shape, t: _Tables, position: Any, velocity: Any, base_velocity: Any) -> tuple[Any, Any, Any, Any]:
    nl, n = len(shape.of_link), shape.layout.joints
    keep = np.array([i for i in range(nl) if i != shape.base], int)

    def evaluate(x):
        r = _residuals(shape, t, unflatten(shape, x), position, velocity, base_velocity)
        return jnp.concatenate([r.equation.ravel(), r.motion[keep].ravel()]), r.measurement

    zero = jnp.zeros(18 * nl - 6 + n)
    bD, bY = evaluate(zero)
    D, Y = jax.jacfwd(evaluate)(zero)
    return D, bD, Y, bY


def matrices(
    program: Program, position: Any, velocity: Any, base_velocity: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """D, bD, Y, bY of one sample as dense matrices over the vector of `flatten`; equations by link, then motions without the base's."""
    x = (jnp.asarray(v, dtype=float) for v in (position, velocity, base_velocity))
    return tuple(np.asarray(m) for m in _matrices(shape(program), tables(program), *x))  # type: ignore[return-value]
