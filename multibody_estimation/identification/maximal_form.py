# SPDX-License-Identifier: Apache-2.0
"""The `maximal` form: poses of all bodies as states, joint forces as unknowns of each stage; for loops and physical compliance.

Rows of window k, from `maximal.window_residual` (three poses, joint forces f_k at the middle):

    impulse      P(q_{k-1}, q_k, q_{k+1}, f_k) / (M_ref h sigma_a)
    constraint   (eps f_k + g(q_k)) / sigma_g

Both are linear in f_k, and f_k appears in this window only: it is eliminated exactly within the stage by projection (Golub and
Pereyra's variable projection, Kaufman's Jacobian), so no 1/eps appears and the chain holds 6 unknowns per body. After each step the
poses are moved so that g equals its linear prediction (second-order correction); without it the form does not converge.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from multibody_estimation import maximal
from multibody_estimation._jax import jax, jnp
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.binding import Binding
from multibody_estimation.identification.grid import input_means
from multibody_estimation.identification.joint_space import pin_rows, prior_rows
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.least_squares import Arrow, Chain, assemble, block_size
from multibody_estimation.maximal.constraints import constraint_rows
from multibody_estimation.maximal.linear import solve_positive
from multibody_estimation.maximal.rows import dense

__all__ = ['SIGMA_G', 'MaximalForm', 'columns', 'correct', 'moved']

SIGMA_G = 1e-7
"""Allowed error of the constraint rows, m or rad: far below anything that matters."""


def columns(f: Any, size: int) -> jax.Array:
    """df/dx at x = 0, x (size,): (rows, size, T), one forward pass mapped over the unit vectors."""
    zero = jnp.zeros(size)
    return jnp.moveaxis(jax.vmap(lambda s: jax.jvp(f, (zero,), (s,))[1])(jnp.eye(size)), 0, 1)


def fold(a: Any, b: Any) -> jax.Array:
    """sum_r a[r, i, t] b[r, c, t], written as sums of products of vectors over time: faster than batched small products."""
    return sum((a[r][:, None] * b[r][None] for r in range(1, a.shape[0])), a[0][:, None] * b[0][None])


def weave(a: Any, b: Any) -> jax.Array:
    """sum_i a[r, i, t] b[i, c, t], likewise."""
    return sum((a[:, i, None] * b[i][None] for i in range(1, b.shape[0])), a[:, 0, None] * b[0][None])


def moved(pose: Any, d: Any) -> jax.Array:
    """Poses (nb, 7, T) moved by one tangent (6 nb,) for all times."""
    return maximal.advance(pose, jnp.broadcast_to(d.reshape(-1, 6, 1), (pose.shape[0], 6, pose.shape[2])), 1.0)


def correct(model: Any, pose: Any, target: Any, rounds: int = 2) -> jax.Array:
    """Poses moved by the smallest steps until g is ``target`` (m, T)."""
    n = pose.shape[0]
    for _ in range(rounds):
        g, rows = constraint_rows(model, pose)
        G = dense(rows, n)
        K = jnp.einsum('ikt,jkt->ijt', G, G)
        K = K + 1e-12 * jnp.einsum('iit->t', K) * jnp.eye(G.shape[0])[:, :, None]
        lam = solve_positive(K, (target - g)[:, None])[:, 0]
        pose = maximal.advance(pose, jnp.einsum('ikt,it->kt', G, lam).reshape(n, 6, -1), 1.0)
    return pose


@dataclass(frozen=True, eq=False)
class MaximalForm:
    """Residuals in maximal coordinates; all sensors must be encoders whose samples lie at stages."""

    binding: Binding
    turns: tuple[tuple[bool, ...], ...]

    width = 3

    @property
    def bodies(self) -> int:
        return len(self.binding.robot.model.bodies)

    @property
    def unknowns(self) -> int:
        """Per stage."""
        return 6 * self.bodies

    @property
    def block(self) -> int:
        return block_size(self.unknowns, self.width)

    @cached_property
    def chain(self) -> Chain:
        return Chain(self.linearise, self.retract)

    @cached_property
    def state_at(self) -> Any:
        """``state_at(coordinates (na, n), z)``: states in which the joints have these coordinates, compiled."""
        return jax.jit(lambda x, z: maximal.place(self.model(z)[0], x))

    @cached_property
    def coordinates(self) -> Any:
        """``coordinates(state, z)``: joint coordinates (na, n), compiled."""
        return jax.jit(lambda state, z: maximal.axis_coordinates(self.model(z)[0], self.poses(state)))

    @cached_property
    def readings(self) -> Any:
        """Whitened residuals of each sensor, compiled."""
        return jax.jit(lambda s, z, data: tuple(r for r, _ in self._sensor_rows(s, z, data, False)))

    @cached_property
    def parts(self) -> Any:
        """``parts(state, z, data)``: impulse residual (nb, 6, n-2) and joint forces (m, n-2) at the solution, compiled."""
        return jax.jit(self._parts)

    def poses(self, state: Any) -> jax.Array:
        """Poses (nb, 7, n) of a state."""
        return state

    def model(self, z: Any) -> tuple[Any, tuple, tuple]:
        """Mechanism, input numbers and sensor numbers for scaled parameters."""
        return self.binding.apply(self.binding.values(z))

    def efforts(self, model: Any, inputs: Any, rate: Any, data: dict, part: int = 0) -> tuple[Any, Any]:
        """Mechanism without its own dry friction, and the effort on every axis (na, T): inputs and smooth dry friction.

        The law of dry friction is that of the trees, so that all forms estimate the same numbers.
        """
        names = dynamics.joint_names(self.binding.robot.model)
        rows = [jnp.zeros_like(rate[0]) for _ in names]
        for source, numbers, table, means in zip(self.binding.robot.inputs, inputs, data['tables'], data['means']):
            known = not isinstance(numbers['delay'], jax.core.Tracer)
            u = means[part] if known else input_means(jnp, table, data['time'], data['step'], numbers['delay'])[part]
            j = names.index(source.joint)
            rows[j] = rows[j] + numbers['gain'] * u + numbers['offset'] - numbers['back_emf'] * rate[j]
        effort = jnp.stack(rows) * model.gain[:, None]
        if not model.loaded:  # a coefficient that starts at zero counts too
            effort = effort - model.coulomb[:, None] * jnp.tanh(rate / model.creep[:, None])
            model = replace(model, dry=())
        return replace(model, actuated=tuple(range(len(names))), gain=jnp.ones(len(names))), effort

    def _window(self, state: Any, d: Any, z: Any, forces: Any, data: dict) -> tuple[Any, Any, Any]:
        """Impulse (6 nb, T), constraint rows (m, T) and mass (6 nb) of all windows for tangents d (3 * 6 nb,)."""
        model, inputs, _ = self.model(z)
        k, h = self.unknowns, data['step']
        q = [moved(state[:, :, a:b], d[i * k : (i + 1) * k]) for i, (a, b) in enumerate(((0, -2), (1, -1), (2, None)))]
        turn = maximal.axis_coordinates(model, q[2]) - maximal.axis_coordinates(model, q[0])
        angular = jnp.array([code[0] == 'r' for _, code in model.axes])[:, None]
        turn = jnp.where(angular, turn - 2 * jnp.pi * jnp.round(turn / (2 * jnp.pi)), turn)
        plain, effort = self.efforts(model, inputs, turn / (2 * h), data)
        r = maximal.window_residual(plain, (q[0], q[1], q[2]), forces, effort, h)
        # The rows of the stepper itself (averages of g and its rate) are not linear along a step; g is, by the correction in `retract`.
        constraint = data['compliance'] * forces + maximal.constraint_values(model, q[1])
        mass = jnp.concatenate([jnp.repeat(model.mass[:, None], 3, 1), model.inertia[:, :3]], axis=1).reshape(-1)
        return r.impulse.reshape(k, -1), constraint, mass

    def _rows(self, state: Any, d: Any, z: Any, forces: Any, data: dict) -> jax.Array:
        """All whitened rows of the windows, (6 nb + m, T)."""
        impulse, constraint, mass = self._window(state, d, z, forces, data)
        reference = jnp.where(data['by_mass'] > 0, mass, data['reference'])
        scale = data['linked'] / (data['step'] * data['sigma_a'])
        return jnp.concatenate([impulse / reference[:, None] * scale, constraint * data['linked'] / SIGMA_G])

    def _eliminate(self, state: Any, z: Any, data: dict) -> tuple[Any, Any, Any]:
        """Best joint forces (m, T), their columns L (rows, m, T) and the solver of L'L."""
        m, T = len(self.binding.robot.model.rows), state.shape[2] - 2
        none = jnp.zeros(3 * self.unknowns)
        zero = jnp.zeros((m, T))
        r = self._rows(state, none, z, zero, data)
        L = columns(lambda f: self._rows(state, none, z, jnp.broadcast_to(f[:, None], (m, T)), data) - r, m)
        K = fold(L, L) + jnp.where(data['linked'] > 0, 0.0, 1.0) * jnp.eye(m)[:, :, None]
        forces = -solve_positive(K, jnp.einsum('rit,rt->it', L, r)[:, None])[:, 0]
        return forces, L, K

    def _parts(self, state: Any, z: Any, data: dict) -> tuple[Any, Any]:
        forces, _, _ = self._eliminate(state, z, data)
        impulse, _, _ = self._window(state, jnp.zeros(3 * self.unknowns), z, forces, data)
        return impulse.reshape(self.bodies, 6, -1), forces

    def _sensor_rows(self, state: Any, z: Any, data: dict, jacobian: bool) -> list[tuple[Any, Any]]:
        out, pose = [], self.poses(state)
        k, p = self.unknowns, len(self.binding.parameters)
        names = dynamics.joint_names(self.binding.robot.model)
        for i, (sensor, (y, w, _)) in enumerate(zip(self.binding.robot.sensors, data['samples'])):
            assert isinstance(sensor, Encoder)
            index = np.array([names.index(j) for j in sensor.joints])
            turn = jnp.asarray(np.array(self.turns[i], dtype=float))[:, None]

            def read(x, index=index, i=i):
                model, _, numbers = self.model(z + x[6 * self.bodies :])
                angle = maximal.axis_coordinates(model, moved(pose, x[: 6 * self.bodies]))[index]
                return angle + jnp.stack([jnp.asarray(o, dtype=float) for o in numbers[i]['offset']])[:, None]

            r = read(jnp.zeros(6 * self.bodies + p)) - y
            r = (r - turn * 2 * jnp.pi * jnp.round(r / (2 * jnp.pi))) * w
            J = None
            if jacobian:
                J = columns(read, 6 * self.bodies + p) * w[:, None]
                spare = jnp.zeros((J.shape[0], k - 6 * self.bodies, J.shape[2]))
                J = jnp.concatenate([J[:, : 6 * self.bodies], spare, J[:, 6 * self.bodies :]], axis=1)
            out.append((r, J))
        return out

    def _finish(self, arrow: Arrow, z: Any, data: dict) -> Arrow:
        """Priors, pins, and ones where there is no stage in use."""
        k = self.unknowns
        spare = jnp.zeros(arrow.D.shape[0] * self.block).at[: k * data['spare'].shape[0]].set(jnp.repeat(data['spare'], k))
        spare = spare.at[k * data['spare'].shape[0] :].set(1.0).reshape(-1, self.block)
        P = arrow.P + prior_rows(self.binding, z) + pin_rows(data['pin'], z)
        return Arrow(arrow.D + jax.vmap(jnp.diag)(spare), arrow.E, arrow.C, P)

    def linearise(self, state: Any, z: Any, data: dict) -> Arrow:
        """Normal equations of all rows with the joint forces projected out."""
        n, k, p = state.shape[2], self.unknowns, len(self.binding.parameters)
        size = {'unknowns': k, 'stages': n, 'block': self.block}
        forces, L, K = self._eliminate(state, z, data)
        r = self._rows(state, jnp.zeros(3 * k), z, forces, data)
        J = columns(lambda x: self._rows(state, x[: 3 * k], z + x[3 * k :], forces, data), 3 * k + p)
        # Without barriers XLA computes the Jacobian again wherever it is used.
        J, L = jax.lax.optimization_barrier((J, L))
        X = jax.lax.optimization_barrier(solve_positive(K, jax.lax.optimization_barrier(fold(L, J))))
        J = J - weave(L, X)
        arrow = assemble(J, r, width=3, **size)
        for r, J in self._sensor_rows(state, z, data, True):
            arrow = arrow + assemble(J, r, width=1, **size)
        # The ends of a recording have no window about them: their joints are held by g = 0.
        ends = data['ends']

        def violation(x):
            return maximal.constraint_values(self.model(z + x[k:])[0], moved(state, x[:k])) * ends / SIGMA_G

        arrow = arrow + assemble(columns(violation, k + p), violation(jnp.zeros(k + p)), width=1, **size)
        return self._finish(arrow, z, data)

    def retract(self, state: Any, step: Any, z: Any, dz: Any, data: dict) -> jax.Array:
        """Poses after a step, with g as the linear model predicts it."""
        n, k = state.shape[2], self.unknowns
        d = step.reshape(-1)[: n * k].reshape(n, k).T
        return move_with_prediction(self, state, d, z, dz)


def move_with_prediction(form: Any, pose: Any, d: Any, z: Any, dz: Any) -> jax.Array:
    """Poses moved by tangents d (6 nb, n) and then corrected so that g is what it was predicted to be."""
    before, after = form.model(z)[0], form.model(z + dz)[0]
    g, rows = constraint_rows(before, pose)
    along = jax.jvp(lambda x: maximal.constraint_values(form.model(x)[0], pose), (z,), (dz,))[1]
    target = g + jnp.einsum('ikt,kt->it', dense(rows, pose.shape[0]), d) + along
    return correct(after, maximal.advance(pose, d.reshape(pose.shape[0], 6, -1), 1.0), target)
