# SPDX-License-Identifier: Apache-2.0
"""The three passes of differential dynamic programming over a chain of affine stages, compiled and in plain JAX.

The dynamics of stage k are ``x+ = A_k x + B_k w + b_k`` with ``B_k = (A_k + 1) S/2``, where ``A_k`` is the identity plus a few
entries and ``S`` picks the states that noise drives: half of an increment is there at the beginning of the step, half comes at
its end, so that a ramp of the driven states is integrated by the trapezoidal rule. The notation is that of D. Mayne, "A second-order gradient method for determining optimal trajectories
of non-linear discrete-time systems" (1966): Q is the cost to go before the input is chosen, V after it.
"""

from typing import NamedTuple

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels import available

__all__ = ['Chain', 'Gains', 'backward', 'backward_twin', 'covariance', 'covariance_twin', 'forward', 'forward_twin']


class Chain(NamedTuple):
    """Where the dynamics differ from the identity (structure, hashable)."""

    rows: tuple[int, ...]
    cols: tuple[int, ...]
    inputs: tuple[int, ...]
    """States that the process noise drives, one per input."""

    def attributes(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(getattr(self, name), dtype=np.int32) for name in self._fields}

    def dense(self, entries: jax.Array, size: int) -> jax.Array:
        """Return the matrices A; shape (n, size, size)."""
        start = jnp.broadcast_to(jnp.eye(size), (len(entries), size, size))
        return start.at[:, np.array(self.rows), np.array(self.cols)].add(entries)

    def drive(self, dense: jax.Array) -> jax.Array:
        """Return the matrices B = (A + 1) S/2 for the matrices A; shape (n, size, nw)."""
        return (dense + jnp.eye(dense.shape[-1]))[..., np.array(self.inputs)] / 2


class Gains(NamedTuple):
    """What the backward pass leaves: w = w_old + k + K (x - x_old) is the best answer to a change of state."""

    feedforward: jax.Array
    """k; shape (n, nw)."""
    feedback: jax.Array
    """K; shape (n, nw, nx)."""
    inverse: jax.Array
    """Qww^-1, the covariance of each input given the state; shape (n, nw, nw)."""
    gradient: jax.Array
    """Vx of the first stage; shape (nx,)."""
    hessian: jax.Array
    """Vxx of the first stage; shape (nx, nx)."""
    decrement: jax.Array
    """Sum of Qw' Qww^-1 Qw: twice the decrease of cost that the quadratic model promises."""
    good: jax.Array
    """1 where every Qww was positive definite, else 0."""


def backward(
    chain: Chain, entries: jax.Array, lx: jax.Array, lxx: jax.Array, inputs: jax.Array, information: jax.Array, mu: jax.Array
) -> Gains:
    """Riccati recursion from the last stage to the first.

    ``entries`` (n, nz) are the entries of A beside the identity, ``lx`` (n+1, nx) and ``lxx`` (n+1, nx, nx) the derivatives of
    the stage cost, ``inputs`` (n, nw) with diagonal ``information`` (n, nw); ``mu`` scales up that information (regularisation).
    """
    if not available('ddp_backward'):
        return backward_twin(chain, entries, lx, lxx, inputs, information, mu)
    n, nw = inputs.shape
    nx = lx.shape[1]
    shapes = [(n, nw), (n, nw, nx), (n, nw, nw), (nx,), (nx, nx), (), ()]
    call = jax.ffi.ffi_call(
        'multibody_ddp_backward', [jax.ShapeDtypeStruct(s, lx.dtype) for s in shapes], vmap_method='sequential'
    )
    return Gains(*call(entries, lx, lxx, inputs, information, jnp.asarray(mu, lx.dtype), **chain.attributes()))


def forward(
    chain: Chain,
    entries: jax.Array,
    offsets: jax.Array,
    states: jax.Array,
    inputs: jax.Array,
    gains: Gains,
    alpha: jax.Array,
    start: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Roll the chain out from ``start`` with the improved inputs; return states (n+1, nx) and inputs (n, nw)."""
    if not available('ddp_forward'):
        return forward_twin(chain, entries, offsets, states, inputs, gains, alpha, start)
    shapes = [jax.ShapeDtypeStruct(states.shape, states.dtype), jax.ShapeDtypeStruct(inputs.shape, states.dtype)]
    call = jax.ffi.ffi_call('multibody_ddp_forward', shapes, vmap_method='sequential')
    more = (gains.feedforward, gains.feedback, jnp.asarray(alpha, states.dtype), start)
    xs, ws = call(entries, offsets, states, inputs, *more, **chain.attributes())
    return xs, ws


def covariance(chain: Chain, entries: jax.Array, gains: Gains, first: jax.Array) -> jax.Array:
    """Carry the covariance of the first state through P+ = F P F' + B Qww^-1 B', F = A + B K; shape (n+1, nx, nx)."""
    if not available('ddp_covariance'):
        return covariance_twin(chain, entries, gains, first)
    shape = jax.ShapeDtypeStruct((len(entries) + 1, *first.shape), first.dtype)
    call = jax.ffi.ffi_call('multibody_ddp_covariance', shape, vmap_method='sequential')
    return call(entries, gains.feedback, gains.inverse, first, **chain.attributes())


def backward_twin(
    chain: Chain, entries: jax.Array, lx: jax.Array, lxx: jax.Array, inputs: jax.Array, information: jax.Array, mu: jax.Array
) -> Gains:
    """`backward` in plain JAX."""
    nx, nw = lx.shape[1], inputs.shape[1]

    def stage(carry, item):
        vx, vxx, decrement, good = carry
        a, b, lx, lxx, w, info = item
        va = vxx @ a
        qx, qxx = lx + a.T @ vx, lxx + a.T @ va
        qw, qwx = info * w + b.T @ vx, b.T @ va
        qww = jnp.diag(info * (1 + mu)) + b.T @ vxx @ b
        # Elimination without pivoting on [Qww, Qwx, Qw, 1]: exact for positive definite Qww, and a few fused row operations
        # where XLA would call LAPACK for a 6 x 6 matrix.
        table = jnp.concatenate([qww, qwx, qw[:, None], jnp.eye(nw)], axis=1)
        for i in range(nw):
            good = good & (table[i, i] > 0)
            row = table[i] / table[i, i]
            table = (table - table[:, i : i + 1] * row).at[i].set(row)
        gain, k, inverse = -table[:, nw : nw + nx], -table[:, nw + nx], table[:, nw + nx + 1 :]
        hessian = qxx + qwx.T @ gain
        carry = qx + qwx.T @ k, (hessian + hessian.T) / 2, decrement - qw @ k, good
        return carry, (k, gain, inverse)

    dense = chain.dense(entries, nx)
    items = (dense, chain.drive(dense), lx[:-1], lxx[:-1], inputs, information)
    (vx, vxx, decrement, good), (k, gain, inverse) = jax.lax.scan(
        stage, (lx[-1], lxx[-1], jnp.zeros(()), jnp.array(True)), items, reverse=True
    )
    return Gains(k, gain, inverse, vx, vxx, decrement, good.astype(lx.dtype))


def forward_twin(
    chain: Chain,
    entries: jax.Array,
    offsets: jax.Array,
    states: jax.Array,
    inputs: jax.Array,
    gains: Gains,
    alpha: jax.Array,
    start: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """`forward` in plain JAX."""
    dense = chain.dense(entries, states.shape[1])

    def stage(x, item):
        a, drive, b, old, w, gain = item
        w = w + gain @ (x - old)
        return a @ x + drive @ w + b, (x, w)

    items = (dense, chain.drive(dense), offsets, states[:-1], inputs + alpha * gains.feedforward, gains.feedback)
    last, (xs, ws) = jax.lax.scan(stage, start, items)
    return jnp.concatenate([xs, last[None]]), ws


def covariance_twin(chain: Chain, entries: jax.Array, gains: Gains, first: jax.Array) -> jax.Array:
    """`covariance` in plain JAX."""
    dense = chain.dense(entries, len(first))
    drive = chain.drive(dense)

    def stage(p, item):
        f, b, inverse = item
        after = f @ p @ f.T + b @ inverse @ b.T
        return (after + after.T) / 2, p

    last, before = jax.lax.scan(stage, first, (dense + drive @ gains.feedback, drive, gains.inverse))
    return jnp.concatenate([before, last[None]])
