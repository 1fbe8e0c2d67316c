# SPDX-License-Identifier: Apache-2.0
"""Problem 2: joint positions and velocities, and the base's angular velocity, estimated together with the dynamics.

Unknown is z = (d, x), x = (q, dq, w of a floating base). Around x the equations are F(d, x) ~ [D; Y] d + Jx (x - xb) + b, where Jx holds
the derivative of D(x) d and Y(x) d too. For given x the sweep is the exact minimum over d, so Gauss-Newton runs on x alone: with l, e
the multipliers and r the residuals of the sweep, the gradient is g = -Jx'(l, e, Sig_y^-1 r), and its derivative along x, got from one
sweep per column of Jx, is the Schur complement S of the whole system. The marginal covariance of x is (S + Sig_x^-1)^-1, that of d is
A^-1 + T cov(x) T', T = dd/dx: never the conditional ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.kernels.wrench_sweep import sweep
from multibody_estimation.wrench import equations, posterior
from multibody_estimation.wrench.posterior import Block, Posterior
from multibody_estimation.wrench.program import Program
from multibody_estimation.wrench.sensor_terms import force_matrix

__all__ = ['StateEstimate', 'estimate_state', 'state_size']


def state_size(program: Program) -> int:
    """Length of x: positions, velocities, and 3 for the angular velocity of a floating base."""
    return 2 * len(program.joint_names) + 3 * program.floating


def split_state(program: Program, x: Any) -> tuple[Any, Any, Any]:
    """Positions (n,), velocities (n,), base angular velocity (3,), zero where the base is fixed."""
    n = len(program.joint_names)
    return x[:n], x[n : 2 * n], x[2 * n :] if program.floating else np.zeros(3)


class Linearised(NamedTuple):
    """The problem around a state; nx = `state_size`, nodes m."""

    gradient: Any
    """Of half the objective of the dynamics with respect to x; (nx,)."""
    curvature: Any
    """Schur complement S; (nx, nx)."""
    response: Any
    """dd/dx by node: acceleration, external, transmitted, joint acceleration; (nx, m, 19)."""
    rates: Any
    """Covariance of the rates (ddq, angular acceleration of a floating base) for known x; (nu, nu)."""


@lru_cache(maxsize=16)
def _linearise(shape: equations.Shape) -> Any:
    """Compiled function of (tables, packed table, x, d at x, multipliers, residuals, measurements, weights)."""
    layout, m = shape.layout, len(shape.link)
    n, floating = layout.joints, not layout.known
    nx, nu = 2 * n + 3 * floating, n + 3 * floating
    of_link, joint_of_link, of_joint = (np.array(x) for x in (shape.of_link, shape.joint_of_link, shape.of_joint))

    def run(t: posterior.Tables, table, x, nodes_d, y, weights, pq):
        def residual(x):
            om = x[2 * n :] if floating else jnp.zeros(3)
            a, fx, f, ddq = nodes_d
            d = equations.Dynamics(a[of_link], fx[of_link], f[joint_of_link], ddq[of_joint])
            r = equations._residuals(shape, t.equations, d, x[:n], x[n : 2 * n], om)
            return jnp.concatenate([r.equation.ravel(), r.motion.ravel(), r.measurement])

        J = jax.jacfwd(residual)(x)
        nl = len(of_link)
        Je, Jm, Jy = J[: 6 * nl].reshape(nl, 6, nx), J[6 * nl : 12 * nl].reshape(nl, 6, nx), J[12 * nl :]
        # Columns of Jx as changes of the biases, then unit changes of the rates, then none.
        extra = jnp.zeros((nx + nu + 1, m, 19))
        extra = extra.at[:nx, of_link, :6].set(jnp.moveaxis(Je, -1, 0))
        extra = extra.at[:nx, joint_of_link, 6:12].add(jnp.moveaxis(Jm, -1, 0))
        extra = extra.at[nx + np.arange(n), of_joint, 18].set(1.0)
        if floating:
            extra = extra.at[nx + n + np.arange(3), 0, 15 + np.arange(3)].set(1.0)
        count = nx + nu + 1
        ys = jnp.broadcast_to(y, (count, len(y))).at[:nx].add(-Jy.T)
        om = x[2 * n :] if floating else jnp.zeros(3)
        same = [jnp.broadcast_to(v, (count, len(v))) for v in (x[:n], x[n : 2 * n], om)]
        w = jnp.broadcast_to(weights, (count, len(weights)))
        out = sweep(layout, table, same[0], same[1], same[2], ys, w, extra, multipliers=True)
        rows = t.equations.rows

        def told(a, f, fx, ddq, y):  # Sig_y^-1 (y - Y d), without the biases, which cancel below
            pad = jnp.zeros((m, 5))
            q = jnp.stack([a, f, fx, jnp.concatenate([ddq[:, None], pad], -1), jnp.zeros((m, 6))])
            r = y - (rows.Y * q[rows.target, rows.node]).sum(-1)
            r = jnp.concatenate([r, jnp.zeros(1)])[t.where]
            pr = weights[:, None] * (t.precision * r[:, None]).sum(-1)
            return jnp.zeros(len(y) + 1).at[t.where].add(pr)[:-1]

        forces = jax.vmap(told)(out.accelerations, out.transmitted, out.external, out.joint, ys)
        everything = jnp.concatenate(
            [
                out.multipliers[:, of_link, :6].reshape(count, -1),
                out.multipliers[:, joint_of_link, 6:].reshape(count, -1),
                forces,
            ],
            1,
        )
        change = everything[:-1] - everything[-1]
        S = -(change[:nx] @ J)
        d = jnp.concatenate([out.accelerations, out.external, out.transmitted, out.joint[..., None]], -1)
        move = d[:-1] - d[-1]
        rates = move[nx:, of_joint, 18]
        if floating:
            rates = jnp.concatenate([rates, move[nx:, 0, 3:6]], 1)
        # A unit change of the mean is one of the information vector by 1 / variance.
        scale = jnp.concatenate([pq[of_joint], jnp.ones(nu - n)])
        rates = scale[:, None] * rates
        return J, Linearised(jnp.zeros(nx), 0.5 * (S + S.T), move[:nx], 0.5 * (rates + rates.T))

    return jax.jit(run)


@dataclass(frozen=True, eq=False)
class StateEstimate:
    """State and dynamics of one sample with marginal covariances."""

    program: Program
    state: np.ndarray
    """x = (q, dq, w of a floating base)."""
    covariance: np.ndarray
    """Of x; (nx, nx)."""
    posterior: Posterior
    """Dynamics at the estimated state; its covariances are those for known state: use `dynamics_covariance`."""
    linearised: Linearised
    objective: float
    iterations: int
    converged: bool

    @property
    def position(self) -> np.ndarray:
        return split_state(self.program, self.state)[0]

    @property
    def velocity(self) -> np.ndarray:
        return split_state(self.program, self.state)[1]

    @property
    def base_velocity(self) -> np.ndarray:
        return split_state(self.program, self.state)[2]

    def dynamics_covariance(self, quantity: str, of: str) -> np.ndarray:
        """Marginal covariance of a block of d, the uncertainty of the state included; (6, 6) or (1, 1)."""
        node = posterior.block(self.program, (quantity, of))[0]
        T = np.asarray(self.linearised.response)[:, node].T  # (19, nx)
        parts = {'acceleration': T[:6], 'external_wrench': T[6:12], 'joint_wrench': T[12:18], 'joint_acceleration': T[18:]}
        if quantity == 'joint_torque':
            T = self.program.arrays['S'][node][None] @ T[12:18]
        else:
            T = parts[quantity]
        if quantity == 'external_wrench':
            _, R, p = self.program.frame(of)
            T = force_matrix(R, p) @ T
        return self.posterior.covariance(quantity, of)[0] + T @ self.covariance @ T.T

    @property
    def rates(self) -> np.ndarray:
        """Joint accelerations, then the angular acceleration of a floating base; (nu,)."""
        ddq = self.posterior.joint_accelerations[0]
        if not self.program.floating:
            return ddq
        return np.concatenate([ddq, np.asarray(self.posterior.sweep.accelerations)[0, 0, 3:6]])

    def rates_covariance(self) -> tuple[np.ndarray, np.ndarray]:
        """Covariance of the rates (nu, nu), and of state and rates (nx, nu)."""
        T = np.asarray(self.linearised.response)
        of = list(self.program.nodes.of_joint)
        Tu = np.concatenate([T[:, of, 18], T[:, 0, 3:6]], 1) if self.program.floating else T[:, of, 18]
        cross = self.covariance @ Tu
        return np.asarray(self.linearised.rates) + Tu.T @ cross, cross


def estimate_state(
    program: Program, mean: Any, covariance: Any, measurements: Any, blocks: Sequence[Block | tuple[str, str]] = (),
    iterations: int = 20, tolerance: float = 1e-9, check: bool = True,
) -> StateEstimate:  # fmt: skip
    """Gauss-Newton from a prior x ~ N(mean, covariance), e.g. encoders or a prediction; ``measurements`` (ny,), NaN where missing.

    Stops when a step is below ``tolerance`` of a standard deviation of the prior in every direction.
    """
    nx = state_size(program)
    x0, P = np.asarray(mean, dtype=float), np.asarray(covariance, dtype=float)
    if x0.shape != (nx,) or P.shape != (nx, nx):
        raise EstimationError(
            f'The state has {nx} numbers (positions, velocities{", base angular velocity" if program.floating else ""}); got a mean of shape {x0.shape} and a covariance of shape {P.shape}.'
        )
    if not np.isfinite(x0).all() or not np.isfinite(P).all():
        raise EstimationError('The prior of the state must be finite.')
    try:
        root = np.linalg.cholesky(P)
    except np.linalg.LinAlgError:
        raise EstimationError('The covariance of the prior of the state must be positive definite.') from None
    W = np.linalg.inv(root)
    information = W.T @ W
    y = np.asarray(measurements, dtype=float)[None]
    shape, t = equations.shape(program), posterior.tables(program)
    weights = np.ones(len(program.terms))
    _, w = posterior.measured(program, y)
    if w is not None:
        weights = w[0]
    linearise = _linearise(shape)

    def at(x: np.ndarray) -> tuple[Posterior, float, np.ndarray]:
        q, dq, om = split_state(program, x)
        found = posterior.solve(program, q[None], dq[None], om[None], y, weights[None], blocks=blocks, multipliers=True)
        r = np.nan_to_num(found.residuals)
        inside, _ = posterior._objective(shape, t, found.sweep, r, weights[None])
        return found, 0.5 * float(inside[0]) + 0.5 * float(((W @ (x - x0)) ** 2).sum()), r[0]

    x, converged, count = x0.copy(), False, 0
    found, objective, r = at(x)
    clean = np.nan_to_num(y[0])
    pq = _joint_variance(program, weights)
    for _ in range(iterations):
        count += 1
        o = found.sweep
        J, lin = linearise(
            t, program.table, x, (o.accelerations[0], o.external[0], o.transmitted[0], o.joint[0]), clean, weights, pq
        )
        g = _gradient(program, t, np.asarray(J), o, r, weights)
        H = np.asarray(lin.curvature) + information
        step = -np.linalg.solve(H, g + information @ (x - x0))
        lin = lin._replace(gradient=g)
        size = np.abs(W @ step).max()
        share = 1.0
        while True:
            new, value, residual = at(x + share * step)
            if value <= objective + 1e-12 * abs(objective) or share < 1e-4:
                break
            share /= 2
        if value <= objective + 1e-12 * abs(objective):
            x, found, objective, r = x + share * step, new, value, residual
        if size < tolerance or share < 1e-4:
            converged = True
            break
    if not converged and check and size > 1e-3:
        raise EstimationError(
            f'The state estimate did not settle in {iterations} iterations (last step {size:.2g} standard deviations of the prior): check units, or the prior of the state.'
        )
    cov = np.linalg.inv(H)
    return StateEstimate(program, x, 0.5 * (cov + cov.T), found, lin, objective, count, converged)


def _joint_variance(program: Program, weights: np.ndarray) -> np.ndarray:
    """Variance of each node's joint acceleration by prior and its own sensors that are there; (m,)."""
    information = np.zeros(len(program.nodes.nodes))
    for s, x in enumerate(program.terms):
        if x.target == 'joint':
            information[x.node] += weights[s] / x.sensor.covariance()[0, 0]
    p = program.arrays['pqp']
    return p / (1 + p * information)


def _gradient(program: Program, t: posterior.Tables, J: np.ndarray, out: Any, r: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """-Jx'(l, e, Sig_y^-1 r); (nx,)."""
    l = np.asarray(out.multipliers[0])
    padded = np.append(r, 0.0)[np.asarray(t.where)]
    pull = np.zeros(len(r) + 1)
    np.add.at(pull, np.asarray(t.where), weights[:, None] * np.einsum('sij,sj->si', np.asarray(t.precision), padded))
    told = np.concatenate(
        [l[list(program.nodes.of_link), :6].ravel(), l[list(program.nodes.joint_of_link), 6:].ravel(), pull[:-1]]
    )
    return -(told @ J)
