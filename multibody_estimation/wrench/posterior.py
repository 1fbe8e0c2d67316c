# SPDX-License-Identifier: Apache-2.0
"""Posterior of the dynamic variables given the measurements (problem 1): mean, covariances of chosen blocks, residuals, log evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.kernels.wrench_sweep import KINDS, Layout, Sweep, sweep, sweep_twin
from multibody_estimation.wrench import equations
from multibody_estimation.wrench.program import Program
from multibody_estimation.wrench.sensor_terms import force_matrix

__all__ = ['Block', 'Posterior', 'block', 'log_evidence', 'measured', 'solve']


class Block(NamedTuple):
    """A part of the answer whose covariance is wanted, e.g. ``Block('external_wrench', 'l_hand')``."""

    quantity: str
    """``external_wrench``, ``acceleration``, ``joint_wrench`` (by link), ``joint_acceleration``, ``joint_torque`` (by joint)."""
    of: str


QUANTITIES = ('external_wrench', 'acceleration', 'joint_wrench', 'joint_acceleration', 'joint_torque')


def block(program: Program, chosen: Block | tuple[str, str]) -> tuple[int, int]:
    """Node and kind of a block, as the sweep takes them."""
    quantity, of = chosen
    if quantity not in QUANTITIES:
        raise EstimationError(f"There is no quantity '{quantity}'.{did_you_mean(quantity, QUANTITIES)}")
    if quantity in ('joint_acceleration', 'joint_torque'):
        node = program.nodes.of_joint[program.model.joint_index(of)]
        return node, KINDS['joint_acceleration' if quantity == 'joint_acceleration' else 'joint_wrench']
    k = program.frame(of)[0]
    if quantity == 'joint_wrench':
        return program.nodes.joint_of_link[k], KINDS[quantity]
    return program.nodes.of_link[k], KINDS[quantity]


@lru_cache(maxsize=64)
def compiled(layout: Layout, select: tuple[tuple[int, int], ...], multipliers: bool, twin: bool) -> Any:
    """The sweep as one compiled function of (table, position, velocity, base velocity, measurements, weights, extra)."""
    run = partial(sweep_twin if twin else sweep, layout, select=select, multipliers=multipliers)
    return jax.jit(lambda table, q, dq, om, y, weights, extra: run(table, q, dq, om, y, weights, extra))


class Tables(NamedTuple):
    """Constants for residuals and evidence."""

    equations: Any
    where: Any
    """Rows of each sensor in the measurement vector, padded by one row past the end; (ns, 6)."""
    precision: Any
    """(ns, 6, 6), zero beyond the sensor's size."""
    constant: Any
    """k log 2 pi + log |covariance| of each sensor; (ns,)."""
    node: dict[str, Any]


@lru_cache(maxsize=32)
def tables(program: Program) -> Tables:
    """Constants of a program."""
    ns, ny = len(program.terms), program.setup.size
    where, precision, constant = np.full((ns, 6), ny), np.zeros((ns, 6, 6)), np.zeros(ns)
    for s, x in enumerate(program.terms):
        k, C = x.sensor.size, x.sensor.covariance()
        where[s, :k] = x.row + np.arange(k)
        precision[s, :k, :k] = np.linalg.inv(C)
        constant[s] = k * np.log(2 * np.pi) + np.linalg.slogdet(C)[1]
    names = ('Sne', 'Sa', 'Cx', 'pqp', 'Jp', 'jp', 'Lp', 'lp', 'S')
    with jax.ensure_compile_time_eval():
        rest = jax.tree.map(jnp.asarray, (where, precision, constant, {f: program.arrays[f] for f in names}))
    return Tables(equations.tables(program), *rest)


@partial(jax.jit, static_argnums=0)
def _residuals(shape: equations.Shape, t: Tables, out: Sweep, q: Any, dq: Any, om: Any, y: Any) -> Any:
    """y - Y d - bY - offset of every row; (N, ny)."""

    def one(a, f, x, ddq, q, dq, om, y):
        w = equations.kinematics(shape, t.equations, q, dq, om)[3]
        rows, m = t.equations.rows, len(shape.link)
        pad = jnp.zeros((m, 5))
        quantities = jnp.stack([a, f, x, jnp.concatenate([ddq[:, None], pad], -1), jnp.concatenate([w, pad[:, :3]], -1)])
        p0, p1, p2 = w[:, 0], w[:, 1], w[:, 2]
        mono = jnp.stack([p0 * p0, p1 * p1, p2 * p2, p0 * p1, p0 * p2, p1 * p2], -1)
        return y - (rows.Y * quantities[rows.target, rows.node]).sum(-1) - (rows.B * mono[rows.node]).sum(-1) - rows.offset

    return jax.vmap(one)(out.accelerations, out.transmitted, out.external, out.joint, q, dq, om, y)


@partial(jax.jit, static_argnums=0)
def _objective(shape: equations.Shape, t: Tables, out: Sweep, residual: Any, weights: Any) -> Any:
    """Minimum of the quadratic form, less constants of the priors, and the constants of the sensors that are there; (N,) each."""
    rows, m = t.equations.rows, len(shape.link)

    def one(a, f, multipliers, r, w):
        r = jnp.concatenate([jnp.where(jnp.isfinite(r), r, 0.0), jnp.zeros(1)])[t.where]
        pr = w[:, None] * (t.precision * r[:, None]).sum(-1)  # (ns, 6)
        flat = jnp.zeros(len(rows.target) + 1).at[t.where].add(pr)[:-1]
        told = rows.Y * flat[:, None]
        pull = jax.ops.segment_sum(told, rows.target * m + rows.node, 5 * m).reshape(5, m, 6)
        l, e = multipliers[:, :6], multipliers[:, 6:]
        u = ((pull[2] - l)[:, None] * jnp.swapaxes(t.node['Cx'], 1, 2)).sum(
            -1
        )  # C'u: quadratic form of the external wrench's prior
        v = pull[3][:, 0] + (t.node['S'] * e).sum(-1)

        def form(matrix, x):
            return (x * (matrix * x[:, None]).sum(-1)).sum()

        total = form(t.node['Sne'], l) + form(t.node['Sa'], e) + (u * u).sum() + (t.node['pqp'] * v * v).sum()
        total = (
            total + form(t.node['Jp'], a) - 2 * (t.node['jp'] * a).sum() + form(t.node['Lp'], f) - 2 * (t.node['lp'] * f).sum()
        )
        return total + (r * pr).sum(), (w * t.constant).sum()

    return jax.vmap(one)(out.accelerations, out.transmitted, out.multipliers, residual, weights)


@dataclass(frozen=True, eq=False)
class Posterior:
    """Answer for N samples; links as in ``program.link_names``, joints as in ``program.joint_names``."""

    program: Program
    sweep: Sweep
    blocks: tuple[Block, ...]
    inputs: tuple[Any, ...]
    """Joint positions, velocities, base angular velocity, measurements (NaN where missing), weights."""

    def __len__(self) -> int:
        return len(self.sweep.log_determinant)

    @cached_property
    def accelerations(self) -> np.ndarray:
        """Proper acceleration (linear, angular) of each link in its frame; (N, nl, 6) [m/s^2, rad/s^2]."""
        return np.asarray(self.sweep.accelerations)[:, list(self.program.nodes.of_link)]

    @cached_property
    def external_wrenches(self) -> np.ndarray:
        """Force and moment about the origin of each link, from the world, in its frame; (N, nl, 6) [N, N m]."""
        return np.asarray(self.sweep.external)[:, list(self.program.nodes.of_link)]

    @cached_property
    def joint_wrenches(self) -> np.ndarray:
        """Wrench on each link from its parent, seen from the base; (N, nl, 6) [N, N m]."""
        return np.asarray(self.sweep.transmitted)[:, list(self.program.nodes.joint_of_link)]

    @cached_property
    def joint_accelerations(self) -> np.ndarray:
        """(N, n) [rad/s^2 or m/s^2]."""
        return np.asarray(self.sweep.joint)[:, list(self.program.nodes.of_joint)]

    @cached_property
    def joint_torques(self) -> np.ndarray:
        """S'f: what each joint transmits, without friction and rotor inertia; (N, n) [N m or N]."""
        of = list(self.program.nodes.of_joint)
        return (np.asarray(self.sweep.transmitted)[:, of] * self.program.arrays['S'][of]).sum(-1)

    def wrench(self, link: str) -> np.ndarray:
        """External wrench on a link, about its origin and in its frame; that of its body where it is a mere frame; (N, 6)."""
        k, R, p = self.program.frame(link)
        return self.external_wrenches[:, k] @ force_matrix(R, p).T

    def covariance(self, quantity: str, of: str) -> np.ndarray:
        """Marginal covariance of a block that was asked for; (N, 6, 6), or (N, 1, 1) for a joint."""
        wanted = Block(quantity, of)
        if wanted not in self.blocks:
            raise EstimationError(
                f'The covariance of {quantity} of {of} was not asked for. Known: {", ".join(f"{q} of {x}" for q, x in self.blocks) or "none"}.'
            )
        C = np.asarray(self.sweep.covariances)[:, self.blocks.index(wanted)]
        if quantity == 'joint_acceleration':
            return C[:, :1, :1]
        if quantity == 'joint_torque':
            S = self.program.arrays['S'][block(self.program, wanted)[0]]
            return np.einsum('a,nab,b->n', S, C, S)[:, None, None]
        if quantity == 'external_wrench':
            _, R, p = self.program.frame(of)
            X = force_matrix(R, p)
            return X @ C @ X.T
        return C

    def deviation(self, quantity: str, of: str) -> np.ndarray:
        """Standard deviations of such a block; (N, 6) or (N, 1)."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance(quantity, of), axis1=1, axis2=2), 0.0))

    @cached_property
    def residuals(self) -> np.ndarray:
        """Measured less predicted, NaN where missing; (N, ny)."""
        q, dq, om, y, weights = self.inputs
        r = np.array(_residuals(equations.shape(self.program), tables(self.program), self.sweep, q, dq, om, y))
        if weights is not None:
            sizes = [x.sensor.size for x in self.program.terms]
            r[np.repeat(np.asarray(weights) == 0, sizes, axis=1)] = np.nan
        return r


def measured(program: Program, values: Any, weights: Any = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Check measurements (N, ny): a sensor with a number that is not finite counts as missing in that sample."""
    y = np.array(values, dtype=float)
    if y.ndim != 2 or y.shape[1] != program.setup.size:
        raise EstimationError(
            f'The measurements have shape {y.shape}; (samples, {program.setup.size}) is needed: {_listed(program)}.'
        )
    starts = [x.row for x in program.terms]
    there = np.logical_and.reduceat(np.isfinite(y), starts, axis=1) if starts else np.ones((len(y), 0), bool)
    if weights is None:
        return y, None if there.all() else there.astype(float)
    w = np.asarray(weights, dtype=float)
    if w.shape != (len(y), len(program.terms)) or not np.isfinite(w).all() or (w < 0).any():
        raise EstimationError(
            f'The weights must be finite, not negative, of shape {(len(y), len(program.terms))}: one per sensor and sample.'
        )
    w = np.where(there, w, 0.0)
    return y, None if (w == 1).all() else w


def _listed(program: Program) -> str:
    names = [f'{x.sensor.name} ({x.sensor.size})' for x in program.terms]
    return ', '.join(names[:6]) + (', ...' if len(names) > 6 else '')


def checked_state(program: Program, position: Any, velocity: Any, base_velocity: Any) -> tuple[Any, Any, Any]:
    """Refuse states of the wrong shape or with numbers that are not finite, naming the joint and the sample."""
    n = len(program.joint_names)
    out = []
    for what, x, width, names in (
        ('position', position, n, program.joint_names),
        ('velocity', velocity, n, program.joint_names),
        ('angular velocity of the base', base_velocity, 3, ('x', 'y', 'z')),
    ):
        x = np.asarray(x, dtype=float)
        if x.ndim != 2 or x.shape[1] != width:
            raise EstimationError(
                f'The {what} has shape {x.shape}; (samples, {width}) is needed: {", ".join(names[:6])}{", ..." if len(names) > 6 else ""}.'
            )
        bad = np.argwhere(~np.isfinite(x))
        if len(bad):
            raise EstimationError(
                f"The {what} of '{names[bad[0][1]]}' is {x[tuple(bad[0])]} in sample {bad[0][0]}. Leave that sample out, or fill it in: without it nothing can be told."
            )
        out.append(x)
    if len({len(x) for x in out}) > 1:
        raise EstimationError(
            f'{len(out[0])} positions, {len(out[1])} velocities and {len(out[2])} base velocities do not fit together.'
        )
    return out[0], out[1], out[2]


def solve(
    program: Program, position: Any, velocity: Any, base_velocity: Any, measurements: Any, weights: Any = None,
    blocks: Sequence[Block | tuple[str, str]] = (), twin: bool = False, multipliers: bool = False, more: tuple = (),
) -> Posterior:  # fmt: skip
    """Solve N samples.

    Args:
        program: from `compile_wrench`.
        position: of the joints, (N, n) [rad or m]; ``velocity`` likewise.
        velocity: (N, n).
        base_velocity: angular velocity of the base in its frame, (N, 3) [rad/s]; zero where it is fixed.
        measurements: (N, ny); NaN where a sensor is missing.
        weights: (N, sensors), 0 where a sensor is to be left out.
        blocks: whose covariances are wanted.
        twin: use the pure-JAX form.
        multipliers: keep the multipliers of the equations.
        more: further pairs (node, kind) for the sweep, after those of ``blocks``.
    """
    q, dq, om = checked_state(program, position, velocity, base_velocity)
    y, w = measured(program, measurements, weights)
    if len(y) != len(q):
        raise EstimationError(f'{len(y)} measurements for {len(q)} states.')
    chosen = tuple(Block(*b) for b in blocks)
    select = tuple(block(program, b) for b in chosen) + tuple(more)
    out = compiled(program.layout, select, multipliers, twin)(program.table, q, dq, om, y, w, None)
    if not np.isfinite(np.asarray(out.log_determinant)).all():
        bad = int(np.flatnonzero(~np.isfinite(np.asarray(out.log_determinant)))[0])
        raise EstimationError(
            f'Sample {bad}: priors and sensors do not determine the dynamics (an information matrix is not positive). Give contact-free links or the equations some noise.'
        )
    return Posterior(program, out, chosen, (q, dq, om, y, w))


def log_evidence(
    program: Program, position: Any, velocity: Any, base_velocity: Any, measurements: Any, weights: Any = None, twin: bool = False
) -> np.ndarray:
    """log p(y) of each sample (design page, section 5), by one sweep with and one without the measurements; (N,)."""
    found = solve(program, position, velocity, base_velocity, measurements, weights, twin=twin, multipliers=True)
    return evidence_of(found, twin)


def evidence_of(found: Posterior, twin: bool = False) -> np.ndarray:
    """log p(y) of each sample of a posterior that kept its multipliers; (N,)."""
    program = found.program
    q, dq, om, y, w = found.inputs
    ns = len(program.terms)
    some = np.ones((len(y), ns)) if w is None else w
    none = np.zeros((len(y), ns))
    before = compiled(program.layout, (), True, twin)(program.table, q, dq, om, np.zeros_like(y), none, None)
    shape, t = equations.shape(program), tables(program)
    residual = np.nan_to_num(found.residuals)
    with_y, constant = _objective(shape, t, found.sweep, residual, some)
    without, _ = _objective(shape, t, before, np.zeros_like(residual), none)
    determinants = np.asarray(found.sweep.log_determinant) - np.asarray(before.log_determinant)
    return -0.5 * (np.asarray(constant) + determinants + np.asarray(with_y) - np.asarray(without))
