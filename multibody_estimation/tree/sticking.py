# SPDX-License-Identifier: Apache-2.0
"""Dry friction that holds: which joints stick, which slide and which way, and the motion that follows.

For a mass matrix M, a drive b and friction limits c, find x and the friction f with M x = b + f, where

    x_i = 0 and |f_i| <= c_i          (joint i sticks), or
    f_i = -c_i s_i and s_i x_i >= 0   (joint i slides the way s_i).

x is an acceleration of joints at rest, or the velocity at the end of a step with impulses for b and f. For M positive definite there is
exactly one solution; it is found by releasing joints that are held too hard and holding those that would slide backwards, a few
rounds in practice (Lotstedt 1982 writes it as a linear complementarity problem).
"""

from typing import Any

from multibody_estimation._jax import jax, jnp

__all__ = ['stick_or_slide']

ROUNDS = 50
"""Rounds after which the last state is taken: never reached in the tests."""


def stick_or_slide(mass: Any, drive: Any, limits: Any, candidates: Any, slides: Any) -> tuple[Any, Any, Any]:
    """Return x, which joints stick, and the direction of sliding of the others; (n,) each.

    ``candidates``: joints that may stick, the others slide the way ``slides`` (-1, 0, 1) says.
    """

    def solve(held: Any, way: Any) -> tuple[Any, Any]:
        b = drive - limits * jnp.where(held, 0.0, way)
        free = ~held
        M = jnp.where(free[:, None] & free[None, :], mass, 0.0) + jnp.diag(held.astype(float))
        x = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(M), jnp.where(free, b, 0.0))
        x = jnp.where(free, x, 0.0)
        return x, mass @ x - b  # the second is the friction on a joint that is held

    def step(state: tuple) -> tuple:
        held, way, _, rounds = state
        x, f = solve(held, way)
        slip = held & (jnp.abs(f) > limits)
        back = candidates & ~held & (x * way < 0)
        way = jnp.where(slip, -jnp.sign(f), way)
        return (held & ~slip) | back, way, jnp.any(slip | back), rounds + 1

    held = candidates
    way = jnp.where(candidates, 0.0, slides)
    held, way, _, _ = jax.lax.while_loop(lambda s: s[2] & (s[3] < ROUNDS), step, (held, way, jnp.any(candidates), 0))
    return solve(held, way)[0], held, jnp.where(held, 0.0, way)
