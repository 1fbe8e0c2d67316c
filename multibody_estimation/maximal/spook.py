# SPDX-License-Identifier: Apache-2.0
"""One step of Spook: regularised joints, implicit viscous friction, dry friction, limits and contacts, all in one system.

With the rows A of joints and axes and the rows B that are bounded (contacts, limits, dry friction), (2.24)-(2.28) read

    M v+ - A^T la - B^T lb = M v + h (f + f_g)
    A v+ + S_A la + a      = 0
    B v+ + S_B lb + b      = w,     lb and w complementary

v+ and then la are eliminated (Schur complements, Cholesky), the complementarity problem in lb is solved by Lemke's algorithm, and
la and v+ follow by back substitution; q+ = q (+) h v+. Contacts have a friction box with limit mu times the normal impulse:
impulses p, q along and against each tangent and the slip speed s. Dry friction of an axis has the limit F, with |lambda_n| (2.23)
found by a few rounds of fixed point: z = F + impulse and the slip speed y.
"""

from typing import NamedTuple

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.maximal.constraints import axis_rows, constraint_rows, lift
from multibody_estimation.maximal.contacts import contact_rows, limit_rows
from multibody_estimation.maximal.forces import explicit_force, gyroscopic_impulse, per_mass
from multibody_estimation.maximal.inverse_dynamics import advance
from multibody_estimation.maximal.laws import contact_creep, friction_limit, positive, regularisation, unilateral_offset
from multibody_estimation.maximal.lcp import SOLVED, solve_lcp
from multibody_estimation.maximal.linear import solve_positive
from multibody_estimation.maximal.model import Multibody, State
from multibody_estimation.maximal.rows import Rows, dense, impulse, join, pick, speed

__all__ = ['Outcome', 'step']

Array = jax.Array
LOAD_ROUNDS = 8
"""Rounds of fixed point for load-dependent friction; each gains a factor of about (friction coefficient x bearing radius / lever)."""


class Outcome(NamedTuple):
    """What a step gives besides the new state."""

    state: State
    joint: Array
    """Impulse of each elementary constraint (order of ``model.rows``), N s or N m s; shape (m, *T)."""
    axis: Array
    """Impulse of viscous and dry friction, back-EMF and rotor inertia on each axis, N m s or N s; shape (na, *T)."""
    normal: Array
    """Normal impulse of each contact, N s; shape (nc, *T)."""
    tangential: Array
    """Friction impulses of each contact, N s; shape (nc, 2, *T)."""
    limit: Array
    """Impulses of the lower, then the upper limits, N m s or N s; shape (2 nl, *T)."""
    status: Array
    """`lcp.SOLVED`, or why the complementarity problem was not solved; shape (*T)."""


class _Bounds(NamedTuple):
    """Numbers of the bounded rows, in the order normal (nc), tangential (2 nc), limit (2 nl), dry (nd)."""

    regular: Array
    """S_B of each row; (nB, *T)."""
    offset: Array
    """b of each row; (nB, *T)."""


def _lcp(model: Multibody, W: Array, c: Array, bounds: _Bounds, F: Array) -> tuple[Array, Array]:
    """Impulses of the bounded rows, whose speeds are W lambda + c; F (nd, *T) limits the dry ones. Returns (nB, *T) and status."""
    nc, nl, nd, t = len(model.contacts), 2 * len(model.limited), len(model.dry), c.ndim - 1
    if nc + nl + nd == 0:
        return c, jnp.full(c.shape[1:], SOLVED)
    tangents = range(nc, 3 * nc)
    dry = range(3 * nc + nl, 3 * nc + nl + nd)
    # Speed variables: every row once, each tangent a second time against its direction; then slips of tangents and of dry axes.
    order = [*range(3 * nc + nl + nd), *tangents]
    sign = lift(jnp.array([1.0] * (3 * nc + nl + nd) + [-1.0] * (2 * nc)), t)
    ns, nu = len(order), 2 * nc + nd
    shift = jnp.concatenate([jnp.zeros((3 * nc + nl, *F.shape[1:])), -F])  # lambda of dry rows is z - F
    free = c + jnp.sum(W * shift[None], axis=1) + bounds.regular * shift + bounds.offset
    A = sign[:, None] * sign[None] * pick(jnp.moveaxis(pick(W, order), 1, 0), order).swapaxes(0, 1)
    A = A + lift(jnp.eye(ns), t) * pick(bounds.regular, order)[:, None]
    b = sign * pick(free, order)
    # Unit diagonal: z = d z', w' = d w, and the slips the other way round, so that couplings stay 1.
    d = 1 / jnp.sqrt(A[jnp.arange(ns), jnp.arange(ns)])
    A, b = A * d[:, None] * d[None], b * d
    couple = np.zeros((ns, nu))
    for k, i in enumerate(tangents):
        couple[i, k] = couple[3 * nc + nl + nd + k, k] = 1.0
    for k, i in enumerate(dry):
        couple[i, 2 * nc + k] = 1.0
    slip_of = [*tangents, *dry]
    across = lift(jnp.asarray(couple), t) + jnp.zeros((ns, nu, *F.shape[1:]))
    below = -across.swapaxes(0, 1)
    if nc:
        # Slip rows of contacts: mu n - p - q >= 0.
        load = jnp.asarray(np.concatenate([np.eye(nc)] * 2))
        mu = lift(jnp.tile(model.contact_friction, 2)[:, None] * load, t) * d[None, :nc] / pick(d, list(tangents))[:, None]
        below = below.at[: 2 * nc, :nc].add(mu)
    # A whisper of compliance in the slips of contacts makes them unique where the normal impulse vanishes.
    corner = lift(jnp.diag(jnp.array([1e-10] * (2 * nc) + [0.0] * nd)), t) + jnp.zeros((nu, nu, *F.shape[1:]))
    room = jnp.concatenate([jnp.zeros((2 * nc, *F.shape[1:])), 2 * F]) / pick(d, slip_of)
    matrix = jnp.concatenate([jnp.concatenate([A, across], 1), jnp.concatenate([below, corner], 1)])
    solution = solve_lcp(matrix, jnp.concatenate([b, room]))
    z = solution.z[:ns] * d
    once = z[: 3 * nc + nl + nd]
    if nc:
        once = once.at[nc : 3 * nc].add(-z[3 * nc + nl + nd :])
    return once + shift, solution.status


def step(model: Multibody, state: State, inputs: Array, step: Array | float, *, wrench: Array | None = None) -> Outcome:
    """Advance the state by ``step`` seconds.

    ``inputs`` (nu, *T) are held over the step; ``wrench`` (nb, 6, *T): external force in world, torque about the centre of mass
    in body components, N and N m. Trailing axes T are a batch of states of one model; batch models with `jax.vmap`.
    """
    h, v, pose = step, state.velocity, state.pose
    n, t = len(model.bodies), pose.ndim - 2
    m, na, nc, nl = len(model.rows), len(model.axes), len(model.contacts), 2 * len(model.limited)

    # Rows, and the speeds they would have if nothing held them.
    g, G = constraint_rows(model, pose)
    axes = axis_rows(model, pose)
    parts = [G, axes]
    regular, offset = [], []
    if nc:
        gap, normal, tangent = contact_rows(model, pose)
        sigma, ups = (lift(x, t) for x in regularisation(model.contact_compliance, model.contact_damping, h))
        parts += [normal, tangent]
        creep = lift(jnp.tile(contact_creep(model, h), 2), t) + jnp.zeros((2 * nc, *gap.shape[1:]))
        regular += [sigma + jnp.zeros_like(gap), creep]
        offset += [unilateral_offset(gap, speed(normal, v), ups, h), jnp.zeros_like(creep)]
    if nl:
        gap, limit = limit_rows(model, pose)
        sigma, ups = regularisation(model.limit_compliance[0], model.limit_compliance[1], h)
        parts.append(limit)
        regular.append(sigma + jnp.zeros_like(gap))
        offset.append(unilateral_offset(gap, speed(limit, v), ups, h))
    gyro = gyroscopic_impulse(model, v, h)
    push = h * explicit_force(model, pose, axes, inputs, wrench) + jnp.concatenate([jnp.zeros_like(gyro), gyro], axis=1)
    free = v + per_mass(model, push)
    none = jnp.zeros((0, *pose.shape[2:]))
    rows = join(*parts)
    if not rows.first:
        after = State(advance(pose, free, h), free)
        return Outcome(after, none, none, none, none[:, None], none, jnp.full(pose.shape[2:], SOLVED))
    r, k = len(rows.first), m + na
    K, u = _gram(model, rows), speed(rows, free)

    # Eliminate joints and viscous friction: u_B = W lambda_B + c.
    sigma, ups = (lift(x, t) for x in regularisation(model.compliance, model.damping, h))
    # Drag d and rotor inertia i act on an axis as -h d u+ - i (u+ - u): one row u+ + lambda/(h d + i) = i/(h d + i) u.
    drag = 1 / positive(h * (model.viscous + model.back_emf) + model.armature, 1e-15)
    carry = lift(model.armature * drag, t) * speed(axes, v)
    drag = lift(drag, t)
    a = jnp.concatenate([ups * (4 / h * g - speed(G, v)), -carry])
    bounded = [*range(k, r), *(m + i for i in model.dry)]
    nB = len(bounded)
    W = pick(jnp.moveaxis(pick(K, bounded), 1, 0), bounded).swapaxes(0, 1)
    c = pick(u, bounded)
    if k:  # not with zero rows: XLA's product over an empty axis hangs in derivatives
        # Rigid joints (compliance 0) keep a trace of softness, so that redundant rows leave the matrix positive.
        least = 1e-12 * K[jnp.arange(m), jnp.arange(m)]
        S = K[:k, :k] + lift(jnp.eye(k), t) * jnp.concatenate([jnp.maximum(sigma, least), drag + jnp.zeros_like(carry)])[:, None]
        cross = jnp.moveaxis(pick(jnp.moveaxis(K[:k], 1, 0), bounded), 0, 1)
        X = solve_positive(S, jnp.concatenate([cross, (a + u[:k])[:, None]], axis=1))
        if nB:
            W = W - jnp.einsum('ki...,kj...->ij...', cross, X[:, :nB])
            c = c - jnp.einsum('ki...,k...->i...', cross, X[:, nB])

    def solve(F: Array) -> tuple[Array, Array, Array]:
        stick = lift(pick(model.creep, model.dry), t) / positive(F, 1e-15)
        numbers = _Bounds(jnp.concatenate([*regular, stick]), jnp.concatenate([*offset, jnp.zeros_like(F)]))
        bound, status = _lcp(model, W, c, numbers, F)
        held = none
        if k:
            held = -(X[:, nB] + jnp.einsum('kj...,j...->k...', X[:, :nB], bound)) if nB else -X[:, 0]
        return held, bound, status

    F = h * lift(pick(model.coulomb, model.dry), t) + jnp.zeros((len(model.dry), *pose.shape[2:]))
    held, bound, status = solve(F)
    if model.loaded:

        def again(held: Array, _) -> tuple[Array, None]:
            return solve(friction_limit(model, held[:m], h))[0], None

        held, _ = jax.lax.scan(again, held, None, length=LOAD_ROUNDS)
        held, bound, status = solve(friction_limit(model, held[:m], h))

    # Back substitution.
    friction = held[m:]
    if model.dry:
        friction = friction.at[np.array(model.dry)].add(bound[nB - len(model.dry) :])
    multipliers = jnp.concatenate([held[:m], friction, bound[: r - k]])
    V = free + per_mass(model, impulse(rows, multipliers, n))
    tangential = jnp.moveaxis(bound[nc : 3 * nc].reshape(2, nc, *bound.shape[1:]), 0, 1)
    return Outcome(State(advance(pose, V, h), V), held[:m], friction, bound[:nc], tangential, bound[3 * nc : 3 * nc + nl], status)


def _gram(model: Multibody, rows: Rows) -> Array:
    """R M^-1 R^T of all rows; (r, r, *T). Two rows meet only where they touch the same body."""
    r, n = len(rows.first), len(model.bodies)
    R = dense(rows, n)
    by_body = jnp.moveaxis(R.reshape(r, n, 6, *R.shape[2:]), 0, 2)  # (nb, 6, r, *T)
    if r <= 48:
        N = jnp.moveaxis(per_mass(model, by_body), 2, 0).reshape(R.shape)
        return R @ N.T if R.ndim == 2 else jnp.sum(R[:, None] * N[None], axis=2)
    touch = [[i for i in range(r) if b in (rows.first[i], rows.second[i])] for b in range(n)]
    width = max(map(len, touch))
    index = np.array([t + [r] * (width - len(t)) for t in touch])  # r: a row of zeros
    padded = jnp.concatenate([by_body, jnp.zeros_like(by_body[:, :, :1])], axis=2)
    mine = jnp.take_along_axis(padded, index.reshape((n, 1, width) + (1,) * (R.ndim - 2)), axis=2)  # (nb, 6, width, *T)
    pairs = jnp.sum(mine[:, :, :, None] * per_mass(model, mine)[:, :, None], axis=1)
    K = jnp.zeros((r + 1, r + 1, *R.shape[2:])).at[index[:, :, None], index[:, None, :]].add(pairs)
    return K[:r, :r]
