# SPDX-License-Identifier: Apache-2.0
"""Maximum a posteriori centroidal trajectory by differential dynamic programming with a free first state.

Minimised over x_0 and the increments w_k of the dynamics x+ = A x + B w + b, with residuals r = g(x) - y:

    J = 1/2 |x_0 - xbar_0|^2_{P0^-1} + sum_k 1/2 |g(x_k) - y_k|^2_{R_k^-1} + sum_k 1/2 |w_k|^2_{Q_k^-1}

(eq. 11 of Bailly et al., ICRA 2021, in the convention with 1/2). With linear dynamics the Gauss-Newton variant is the iterated
extended Kalman smoother, written as a Riccati sweep; the second-order variant adds the curvature of g.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from multibody_estimation._jax import jax, jnp, value
from multibody_estimation.centroidal.model import BLOCKS, chain, jacobian, predict, second_order
from multibody_estimation.centroidal.problem import Problem
from multibody_estimation.kernels.ddp_sweep import Gains, backward, covariance, forward

__all__ = ['CONVERGED', 'Settings', 'Trajectory', 'cost', 'derivatives', 'residual', 'solve']

RUNNING, CONVERGED, STALLED, LIMIT = 0, 1, 2, 3


@dataclass(frozen=True)
class Settings:
    """Knobs of the solver."""

    second_order: bool = False
    """Add the curvature of the sensors to the Hessian (full DDP). Same optimum; pays only where residuals are large."""
    tolerance: float = 1e-7
    """Stop when the whole step is shorter than this many posterior standard deviations (the Newton decrement)."""
    iterations: int = 50
    armijo: float = 1e-4
    """Share of the decrease promised by the slope that a step must bring."""


DEFAULT = Settings()


@value
class Trajectory:
    """Result of the solver."""

    states: jax.Array
    """Shape (n+1, nx)."""
    inputs: jax.Array
    """Increments w; shape (n, nw)."""
    covariance: jax.Array
    """Posterior covariance of each state; shape (n+1, nx, nx)."""
    cost: Any
    decrement: Any
    """Length of the last step not taken, in posterior standard deviations."""
    iterations: Any
    """Steps taken."""
    status: Any
    """1 converged, 2 no step lowers the cost, 3 iteration limit."""


def residual(problem: Problem, block: str, states: jax.Array) -> jax.Array:
    """Return g(x) - y of a block; shape (n+1, d). Rows without a sample have no information and so no say."""
    x = (problem.layout, block, states, problem.anchor, problem.mass, problem.gravity)
    return predict(*x) - problem.values[block]


def cost(problem: Problem, states: jax.Array, inputs: jax.Array) -> jax.Array:
    """Return J."""
    start = states[0] - problem.prior_mean
    total = start @ problem.prior_information @ start / 2 + jnp.sum(problem.noise_information * inputs**2) / 2
    for block, info in problem.information.items():
        r = residual(problem, block, states)
        total += jnp.sum(problem.loss.cost(jnp.einsum('ki,kij,kj->k', r, info, r), BLOCKS[block]))
    return total


def derivatives(
    problem: Problem, states: jax.Array, curvature: bool, about: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return gradient (n+1, nx) and Hessian (n+1, nx, nx) of the sensors' cost at each stage.

    ``about`` linearises the sensors at other states than those the residuals are taken at.
    """
    lx, lxx = jnp.zeros_like(states), jnp.zeros((*states.shape, states.shape[1]))
    for block, info in problem.information.items():
        if about is None:
            h = jacobian(problem.layout, block, states, problem.anchor, problem.mass, problem.gravity)
            r = residual(problem, block, states)
        else:
            h = jacobian(problem.layout, block, about, problem.anchor, problem.mass, problem.gravity)
            r = residual(problem, block, about) + jnp.einsum('kij,kj->ki', h, states - about)
        weight = problem.loss.weight(jnp.einsum('ki,kij,kj->k', r, info, r), BLOCKS[block])
        info = weight[:, None, None] * info
        pull = jnp.einsum('kij,kj->ki', info, r)
        lx += jnp.einsum('kij,ki->kj', h, pull)
        lxx += jnp.einsum('kia,kib->kab', h, info @ h)
        if curvature:
            extra = second_order(problem.layout, block, states, problem.anchor, pull)
            lxx += 0 if extra is None else extra
    return lx, lxx


def _sweep(problem: Problem, states: jax.Array, inputs: jax.Array, lx: jax.Array, lxx: jax.Array, mu: jax.Array):
    """Backward pass, then the arrival stage: return gains, step of the first state, its covariance, slope, success."""
    gains = backward(chain(problem.layout), problem.entries, lx, lxx, inputs, problem.noise_information, mu)
    prior = problem.prior_information
    m = jnp.linalg.cholesky(gains.hessian + (1 + mu) * prior)
    first = jax.scipy.linalg.cho_solve((m, True), jnp.eye(len(m)))
    gradient = gains.gradient + prior @ (states[0] - problem.prior_mean)
    step = -first @ gradient
    return gains, step, first, -gains.decrement + gradient @ step, (gains.good > 0) & jnp.isfinite(m).all()


def _roll(problem: Problem, states, inputs, gains: Gains, alpha, start):
    return forward(chain(problem.layout), problem.entries, problem.offsets, states, inputs, gains, alpha, start)


def _first_guess(problem: Problem) -> tuple[jax.Array, jax.Array]:
    """One linear pass with the sensors linearised at the problem's guess: no long blind roll-out from the prior."""
    n, nw = problem.noise_information.shape
    nx = problem.layout.size
    still = Gains(jnp.zeros((n, nw)), jnp.zeros((n, nw, nx)), *[jnp.zeros(())] * 5)
    states, inputs = _roll(problem, jnp.zeros((n + 1, nx)), jnp.zeros((n, nw)), still, 0.0, problem.prior_mean)
    lx, lxx = derivatives(problem, states, False, about=problem.guess)
    gains, step, *_ = _sweep(problem, states, inputs, lx, lxx, jnp.zeros(()))
    return _roll(problem, states, inputs, gains, 1.0, states[0] + step)


@partial(jax.jit, static_argnames=('settings',))
def solve(problem: Problem, settings: Settings = DEFAULT, start: tuple[jax.Array, jax.Array] | None = None) -> Trajectory:
    """Minimise J; ``start`` is a trajectory (states, inputs) to begin from, where there is one.

    A stage whose Qww is not positive definite, or a step that no shortening saves, raises the regularisation tenfold; a good
    step lowers it. The covariance is that of the last quadratic model: P_0 = (Vxx + P0^-1)^-1, carried forward by the gains.
    """
    eps = jnp.finfo(jnp.float64).eps
    states, inputs = _first_guess(problem) if start is None else start

    def search(states, inputs, now, gains, step, slope):
        """Armijo back-tracking; return the trial accepted, its cost, and whether there is one."""

        def trial(alpha):
            xs, ws = _roll(problem, states, inputs, gains, alpha, states[0] + alpha * step)
            return xs, ws, cost(problem, xs, ws)

        def short(carry):
            alpha, (_, _, after) = carry
            # The slack is rounding in the two sums: near the optimum a good step may not lower the cost any more.
            wanted = now + settings.armijo * alpha * slope + 50 * eps * jnp.abs(now)
            return ~(after <= wanted) & (alpha > 2.0**-20)

        alpha, (xs, ws, after) = jax.lax.while_loop(short, lambda c: (c[0] / 2, trial(c[0] / 2)), (1.0, trial(1.0)))
        return xs, ws, after, alpha > 2.0**-20

    def body(carry):
        states, inputs, now, mu, count, _, gains, first, _ = carry
        lx, lxx = derivatives(problem, states, settings.second_order)
        gains, step, first, slope, good = _sweep(problem, states, inputs, lx, lxx, mu)
        length = jnp.sqrt(jnp.maximum(-slope, 0.0))
        done = good & (mu == 0) & (length <= settings.tolerance)

        def move():
            xs, ws, after, found = search(states, inputs, now, gains, step, slope)
            better = found & jnp.isfinite(after)
            lower = jnp.where(mu > 1e-5, mu / 10, 0.0)
            return (
                jnp.where(better, xs, states),
                jnp.where(better, ws, inputs),
                jnp.where(better, after, now),
                jnp.where(better, lower, jnp.maximum(10 * mu, 1e-5)),
            )

        def stay():
            return states, inputs, now, jnp.where(done, mu, jnp.maximum(10 * mu, 1e-5))

        states, inputs, now, mu = jax.lax.cond(good & ~done, move, stay)
        status = jnp.where(done, CONVERGED, jnp.where(mu > 1e10, STALLED, RUNNING))
        return states, inputs, now, mu, count + ~done, status, gains, first, jnp.where(good, length, jnp.inf)

    n, nw = problem.noise_information.shape
    nx = problem.layout.size
    shapes = [(n, nw), (n, nw, nx), (n, nw, nw), (nx,), (nx, nx), (), ()]
    nothing = Gains(*[jnp.zeros(s) for s in shapes])
    carry = (states, inputs, cost(problem, states, inputs), jnp.zeros(()), 0, RUNNING, nothing, jnp.eye(nx), jnp.inf)
    # One pass more than steps: the last pass only confirms, and its model gives the covariance.
    carry = jax.lax.while_loop(lambda c: (c[5] == RUNNING) & (c[4] <= settings.iterations), body, carry)
    states, inputs, now, _, count, status, gains, first, length = carry
    return Trajectory(
        states=states,
        inputs=inputs,
        covariance=covariance(chain(problem.layout), problem.entries, gains, first),
        cost=now,
        decrement=length,
        iterations=count,
        status=jnp.where(status == RUNNING, LIMIT, status),
    )
