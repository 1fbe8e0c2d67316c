# SPDX-License-Identifier: Apache-2.0
"""The `paper` form: poses and velocities as states, multipliers eliminated by 1/compliance, two impulse residuals per step.

As in Marklund, Servin, Larson (doi 10.1007/s11044-025-10107-8), equations (3.6), (3.7), (3.14), (3.15), with their signs put right; the
stepper's own evaluation points. Kept to reproduce its studies: it works about compliance 1e-4, loses all digits when joints are much
stiffer, and its parameters are those of the stepper, biased at first order in the time step.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from multibody_estimation import maximal
from multibody_estimation._jax import jax, jnp
from multibody_estimation.identification.maximal_form import MaximalForm, columns, move_with_prediction, moved
from multibody_estimation.least_squares import Arrow, assemble, block_size
from multibody_estimation.maximal.constraints import constraint_rows
from multibody_estimation.maximal.forces import times_mass
from multibody_estimation.maximal.laws import regularisation
from multibody_estimation.maximal.linear import solve_positive
from multibody_estimation.maximal.rows import dense

__all__ = ['PaperForm']


@dataclass(frozen=True, eq=False)
class PaperForm(MaximalForm):
    """State: (nb, 13, n), pose and velocity of each body; one recording at a time."""

    width = 2

    @property
    def unknowns(self) -> int:
        """Per stage: tangents of pose and velocity."""
        return 12 * self.bodies

    @property
    def block(self) -> int:
        return block_size(self.unknowns, 2)

    @cached_property
    def state_at(self) -> Any:
        def build(x, z, step):
            pose = maximal.place(self.model(z)[0], x)
            # The velocity that led to a pose, as the stepper has it; the first one as the second.
            v = maximal.difference(pose[:, :, 1:], pose[:, :, :-1]) / step
            return jnp.concatenate([pose, jnp.concatenate([v[:, :, :1], v], axis=2)], axis=1)

        return jax.jit(build)

    def poses(self, state: Any) -> jax.Array:
        return state[:, :7]

    def _moved(self, state: Any, d: Any) -> maximal.State:
        half = 6 * self.bodies
        return maximal.State(moved(state[:, :7], d[:half]), state[:, 7:] + d[half:].reshape(self.bodies, 6, 1))

    def _mechanism(self, z: Any, velocity: Any, pose: Any, data: dict) -> tuple[Any, Any]:
        from multibody_estimation.maximal.constraints import axis_rows
        from multibody_estimation.maximal.rows import speed

        model, inputs, _ = self.model(z)
        rate = speed(axis_rows(model, pose), velocity)
        plain, effort = self.efforts(model, inputs, rate, data, part=2)
        compliance, tau = (jnp.zeros_like(plain.compliance) + data[k] for k in ('compliance', 'tau'))
        return replace(plain, compliance=compliance, damping=tau), effort

    def _pair(self, state: Any, d: Any, z: Any, data: dict) -> jax.Array:
        """Both residuals of every step, whitened: (12 nb, n-1)."""
        k = self.unknowns
        here, after = self._moved(state[:, :, :-1], d[:k]), self._moved(state[:, :, 1:], d[k:])
        # Friction is implicit in the stepper: it sees the velocity after the step.
        model, effort = self._mechanism(z, after.velocity, here.pose, data)
        u, q = maximal.impulse_residuals(model, here, after, effort, data['step'])
        own = self.model(z)[0]
        mass = jnp.concatenate([jnp.repeat(own.mass[:, None], 3, 1), own.inertia[:, :3]], axis=1).reshape(-1, 1)
        reference = jnp.where(data['by_mass'] > 0, mass, data['reference'][:, None])
        both = jnp.concatenate([x.reshape(6 * self.bodies, -1) / reference for x in (u, q)])
        return both * data['paired'] / (data['step'] * data['sigma_a'])

    def _first(self, state: Any, d: Any, z: Any, data: dict) -> jax.Array:
        """Residual of the first state, (3.14) and (3.15) by the projection that exists: G+ = G' (G G' + rho)^-1; (12 nb, 1)."""
        start = self._moved(state[:, :, :1], d)
        model, _ = self._mechanism(
            z, start.velocity, start.pose, {**data, 'means': [tuple(m[:1] for m in x) for x in data['means']]}
        )
        g, rows = constraint_rows(model, start.pose)
        G = dense(rows, self.bodies)
        K = jnp.einsum('ikt,jkt->ijt', G, G)
        K = K + 1e-10 * jnp.einsum('iit->t', K) / K.shape[0] * jnp.eye(K.shape[0])[:, :, None]
        v = start.velocity.reshape(-1, 1)
        sigma, _ = regularisation(model.compliance, model.damping, data['step'])
        out = []
        for wrong, scale in ((g, 1 / data['step']), (jnp.einsum('ikt,kt->it', G, v), 1.0)):
            move = -jnp.einsum('ikt,it->kt', G, solve_positive(K, wrong[:, None])[:, 0])
            stiff = jnp.einsum('ikt,it->kt', G, jnp.einsum('ikt,kt->it', G, move) / sigma[:, None])
            out.append((times_mass(model, move.reshape(self.bodies, 6, 1)).reshape(-1, 1) + stiff) * scale)
        both = jnp.concatenate([x / data['reference'][:, None] for x in out])
        return both / (data['step'] * data['sigma_a'])

    def _parts(self, state: Any, z: Any, data: dict) -> tuple[Any, Any]:
        here = maximal.State(state[:, :7, :-1], state[:, 7:, :-1])
        model, effort = self._mechanism(z, state[:, 7:, 1:], here.pose, data)
        r = maximal.impulse_residual(model, here, state[:, 7:, 1:], effort, data['step'], evaluation='spook')
        return r.impulse, r.multipliers / data['step']

    def linearise(self, state: Any, z: Any, data: dict) -> Arrow:
        """Normal equations of all rows."""
        n, k, p = state.shape[2], self.unknowns, len(self.binding.parameters)
        size = {'unknowns': k, 'stages': n, 'block': self.block}
        none = jnp.zeros(2 * k)
        J = columns(lambda x: self._pair(state, x[: 2 * k], z + x[2 * k :], data), 2 * k + p)
        arrow = assemble(J, self._pair(state, none, z, data), width=2, **size)
        for r, J in self._sensor_rows(state, z, data, True):
            arrow = arrow + assemble(J, r, width=1, **size)
        J = columns(lambda x: self._first(state, x[:k], z + x[k:], data), k + p)
        arrow = arrow + assemble(J, self._first(state, none[:k], z, data), width=1, **size)
        return self._finish(arrow, z, data)

    def retract(self, state: Any, step: Any, z: Any, dz: Any, data: dict) -> jax.Array:
        """State after a step; the velocity keeps its distance from the difference quotient of the corrected poses."""
        n, k, half = state.shape[2], self.unknowns, 6 * self.bodies
        d = step.reshape(-1)[: n * k].reshape(n, k).T
        old = state[:, :7]
        plain = maximal.advance(old, d[:half].reshape(self.bodies, 6, -1), 1.0)
        pose = move_with_prediction(self, old, d[:half], z, dz)
        extra = (
            maximal.difference(pose[:, :, 1:], pose[:, :, :-1]) - maximal.difference(plain[:, :, 1:], plain[:, :, :-1])
        ) / data['step']
        velocity = state[:, 7:] + d[half:].reshape(self.bodies, 6, -1)
        return jnp.concatenate([pose, velocity.at[:, :, 1:].add(extra)], axis=1)
