# SPDX-License-Identifier: Apache-2.0
"""The joint-space form: joint positions as the only states, inverse dynamics on windows of three stages.

Rows of window k (stages k-1, k, k+1; v and a are central differences):

    dynamics      e = W^-1 (ID(q_k, v, a - correction_k; chi) - tau_k) / sigma_a
    observation   (sensor(q, v, a; chi) - y) / sigma_y

W is a constant diagonal at first (impulse whitening), the mass matrix later: force residuals shrink with the inertias, so a constant W
lets soft weights pull all inertias to zero. For W = M(q, chi) the exact Jacobian needs no derivative of M^-1: with e frozen,
d(M^-1 F) = M^-1 d[ID(q, v, a - e) - tau].

Everything that comes from a recording is an argument of the compiled functions: window after window runs through one program.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.identification import deferred_correction, dynamics
from multibody_estimation.identification.binding import Binding
from multibody_estimation.identification.evaluation import SYMMETRIC, Evaluation
from multibody_estimation.identification.grid import Grid, input_means
from multibody_estimation.identification.sensor_rows import sensor_rows, tangents
from multibody_estimation.least_squares import Arrow, Chain, assemble, block_size

__all__ = ['JointForm', 'joint_form', 'recorded']


def recorded(binding: Binding, grid: Grid) -> dict:
    """The recordings as arrays: the arguments of the compiled functions that do not change during a solve."""
    h, inner = grid.step, grid.time[1:-1]
    numbers = binding.known_inputs()
    known = [input_means(np, _arrays(t), inner, h, n['delay']) for t, n in zip(grid.inputs, numbers)]
    return {
        'step': jnp.float64(h),
        'time': jnp.asarray(inner),
        'linked': jnp.asarray(grid.linked),
        'tables': [tuple(map(jnp.asarray, _arrays(t))) for t in grid.inputs],
        'means': [tuple(map(jnp.asarray, m)) for m in known],
        'samples': [tuple(map(jnp.asarray, (s.values, s.weight, s.lag))) for s in grid.samples],
        'spare': jnp.asarray((np.arange(len(grid)) >= grid.count).astype(float)),
    }


def _arrays(table: Any) -> tuple[np.ndarray, ...]:
    return table.time, table.value, table.first, table.second


@dataclass(frozen=True, eq=False)
class JointForm:
    """Residuals of one robot with one set of parameters; compiled once, solved for any recording of about the same length."""

    binding: Binding
    at_stage: tuple[bool, ...]
    """For each sensor: all samples lie exactly at stages."""
    turns: tuple[tuple[bool, ...], ...]
    """For each sensor: which columns are angles."""
    free: bool = True
    """False: the parameters are known, only states are estimated."""
    evaluation: Evaluation = SYMMETRIC

    width = 3

    @cached_property
    def nq(self) -> int:
        """Unknowns per stage."""
        return len(dynamics.joint_names(self.binding.robot.model))

    @property
    def block(self) -> int:
        """Unknowns per block of the normal equations."""
        return block_size(self.nq, 3)

    @property
    def columns(self) -> int:
        """Columns of the border."""
        return len(self.binding.parameters) if self.free else 0

    @cached_property
    def chain(self) -> Chain:
        """The compiled solver functions."""
        return Chain(self.linearise, self.retract)

    @cached_property
    def forces(self) -> Any:
        """``forces(q, z, data)``: force residual (nq, n-2) in N m and mass matrix (nq, nq, n-2), compiled."""
        return jax.jit(self._forces)

    @cached_property
    def defect(self) -> Any:
        """``defect(q, z, data)``: see `deferred_correction`, compiled."""
        return jax.jit(self._defect)

    @cached_property
    def rows(self) -> Any:
        """``rows(q, z, data)``: `dynamics_rows`, compiled."""
        return jax.jit(self.dynamics_rows)

    @cached_property
    def rollout(self) -> Any:
        """``rollout(x, v, force, z, step)``: see `_rollout`, compiled."""
        return jax.jit(self._rollout)

    @cached_property
    def readings(self) -> Any:
        """``readings(q, z, data)``: whitened residuals of each sensor, tuple of (k, n), compiled."""
        count = len(self.binding.robot.sensors)
        return jax.jit(lambda q, z, data: tuple(sensor_rows(self, k, q, z, data, jacobian=False)[0] for k in range(count)))

    def retract(self, q, step, parameters, parameter_step, data):
        """Positions after a step; q (nq, n)."""
        nq, n = q.shape
        return q + step.reshape(-1)[: n * nq].reshape(n, nq).T

    def applied(self, inputs, qd, data, part: int = 0, back_emf: bool = True):
        """Joint forces of the inputs at the inner stages, (nq, n-2); part 0: hat mean, 1: before, 2: after the stage."""
        robot, names = self.binding.robot, dynamics.joint_names(self.binding.robot.model)
        rows = [jnp.zeros_like(qd[0]) for _ in names]
        for source, numbers, table, means in zip(robot.inputs, inputs, data['tables'], data['means']):
            known = not isinstance(numbers['delay'], jax.core.Tracer)
            u = means[part] if known else input_means(jnp, table, data['time'], data['step'], numbers['delay'])[part]
            j = names.index(source.joint)
            rows[j] = rows[j] + numbers['gain'] * u + numbers['offset']
            if back_emf:
                rows[j] = rows[j] - numbers['back_emf'] * qd[j]
        return jnp.stack(rows)

    def motion(self, q, data):
        """Position, central velocity and acceleration at the inner stages, each (nq, n-2)."""
        h = data['step']
        return q[:, 1:-1], (q[:, 2:] - q[:, :-2]) / (2 * h), (q[:, 2:] - 2 * q[:, 1:-1] + q[:, :-2]) / h**2

    def _force(self, q, qd, qdd, drag, slide, z, data):
        model, inputs, _ = self.binding.apply(self.binding.values(z))
        part = 0 if self.evaluation is SYMMETRIC else 2
        widen = data['widen'] if self.evaluation.sharp else 1.0
        needed = dynamics.inverse_dynamics(model, q, qd, qdd, drag=drag, slide=slide, widen=widen)
        return needed - self.applied(inputs, drag, data, part)

    def _at(self, q, data, correction):
        """Arguments of the force residual, and what their rows are made of: weights of (v, a) in each."""
        position, v, a = self.motion(q, data)
        if self.evaluation is SYMMETRIC:
            return (position, v, a - correction, v, v), ()
        h = data['step']
        points = [v + shift * a for shift in self.evaluation.shifts(h)]
        return (position, points[0], a - correction, points[1], points[2]), self.evaluation.shifts(h)

    def _forces(self, q, z, data):
        at, _ = self._at(q, data, data['correction'])
        model, _, _ = self.binding.apply(self.binding.values(z))
        position, v, a, drag, slide = at
        return self._force(position, v, a, drag, slide, z, data), dynamics.mass_matrix(model, position, v)[0]

    def window_columns(self, Jq, Jv, Ja, Jp, h):
        """Columns for the three stages of a window and the parameters, from those for position, velocity, acceleration."""
        return jnp.concatenate([Ja / h**2 - Jv / (2 * h), Jq - 2 * Ja / h**2, Ja / h**2 + Jv / (2 * h), Jp], axis=1)

    def dynamics_rows(self, q, z, data):
        """Whitened residual (nq, n-2) and Jacobian (nq, 3 nq + p, n-2) of the dynamics."""
        nq, h = self.nq, data['step']
        (position, v, a, drag, slide), shifts = self._at(q, data, data['correction'])

        def force(q, qd, qdd, drag, slide, z):
            return self._force(q, qd, qdd, drag, slide, z, data)

        residual = force(position, v, a, drag, slide, z)
        M = tangents(lambda x: force(position, v, x, drag, slide, z), a)
        error = dynamics.solve_small(M, residual) * data['by_mass']
        ae = a - error
        if not shifts:  # all velocities are one
            J = tangents(lambda x, y, w: force(x, y, w, y, y, z), position, v, ae)
            Jq, Jv, Ja = J[:, :nq], J[:, nq : 2 * nq], J[:, 2 * nq :]
        else:
            J = tangents(lambda x, y, w, d, s: force(x, y, w, d, s, z), position, v, ae, drag, slide)
            Jq, Jg, Ja, Jd, Js = (J[:, i * nq : (i + 1) * nq] for i in range(5))
            Jv = Jg + Jd + Js
            Ja = Ja + shifts[0] * Jg + shifts[1] * Jd + shifts[2] * Js
        Jp = tangents(lambda y: force(position, v, ae, drag, slide, y), z) if self.columns else jnp.zeros((nq, 0, v.shape[1]))
        J = self.window_columns(Jq, Jv, Ja, Jp, h)
        scale = data['linked'] / data['sigma_a']
        white = 1 / data['reference']
        row = jnp.where(data['by_mass'] > 0, error, residual * white[:, None]) * scale
        J = jnp.where(data['by_mass'] > 0, dynamics.solve_small(M, J), J * white[:, None, None]) * scale
        return row, J

    def linearise(self, q, z, data) -> Arrow:
        """Normal equations of all rows at positions q (nq, n) and scaled parameters z (p,)."""
        size = {'unknowns': self.nq, 'stages': q.shape[1], 'block': self.block}
        row, J = self.dynamics_rows(q, z, data)
        arrow = assemble(J, row, width=3, **size)
        for k, sensor in enumerate(self.binding.robot.sensors):
            r, J, width = sensor_rows(self, k, q, z, data)
            extra: Any = 0.0
            huber = sensor.huber
            if huber:
                far = jnp.abs(r) > huber
                robust = jnp.where(far, jnp.sqrt(huber / jnp.where(far, jnp.abs(r), 1.0)), 1.0)
                # The weighted square is huber |r|; the loss itself is 2 huber |r| - huber^2.
                extra = jnp.where(far, huber * jnp.abs(r) - huber**2, 0.0).sum()
                r, J = r * robust, J * robust[:, None]
            arrow = arrow + assemble(J, r, width=width, **size)
            arrow = Arrow(arrow.D, arrow.E, arrow.C, arrow.P.at[-1, -1].add(extra))
        P = arrow.P + prior_rows(self.binding, z) if self.columns else arrow.P
        if self.columns:
            P = P + pin_rows(data['pin'], z)
        # Ones where there is no stage in use: at the end of the chain, and where the last block is longer than the chain.
        spare = jnp.zeros(arrow.D.shape[0] * self.block).at[: q.size].set(jnp.repeat(data['spare'], self.nq))
        spare = spare.at[q.size :].set(1.0).reshape(-1, self.block)
        return Arrow(arrow.D + jax.vmap(jnp.diag)(spare), arrow.E, arrow.C, P)

    def _loss(self, inputs):
        """Force lost in the motors per speed, (nq,)."""
        names = dynamics.joint_names(self.binding.robot.model)
        loss = jnp.zeros(len(names))
        for source, numbers in zip(self.binding.robot.inputs, inputs):
            loss = loss.at[names.index(source.joint)].add(numbers['back_emf'])
        return loss

    def _defect(self, q, z, data):
        position, v, _ = self.motion(q, data)
        model, inputs, _ = self.binding.apply(self.binding.values(z))
        parts = [self.applied(inputs, jnp.zeros_like(v), data, part, back_emf=False) for part in (0, 1, 2)]
        return deferred_correction.defect(model, position, v, parts, self._loss(inputs), data['step'])

    def _rollout(self, x, v, force, z, step, substeps: int = 4):
        """Simulate m stretches at once: x, v (nq, m) at their starts, force (w, nq, m) of the inputs; gives x, v as (w, nq, m)."""
        model, inputs, _ = self.binding.apply(self.binding.values(z))
        loss = self._loss(inputs)

        def one(state, u):
            def inner(s, _):
                x, v = s
                return deferred_correction.advance(model, x, v, u, loss, step / substeps), None

            return jax.lax.scan(inner, state, None, length=substeps)[0], state

        return jax.lax.scan(one, (x, v), force)[1]

    @cached_property
    def input_forces(self) -> Any:
        """``input_forces(z, data)``: forces of the inputs over the interval after each inner stage, (nq, n-2), compiled."""

        def forces(z, data):
            _, inputs, _ = self.binding.apply(self.binding.values(z))
            return self.applied(inputs, jnp.zeros((self.nq, data['time'].shape[0])), data, 2, back_emf=False)

        return jax.jit(forces)


def prior_rows(binding: Binding, z: Any) -> jax.Array:
    """What is known beforehand, as an addition to the parameter block (p+1, p+1)."""
    p = len(binding.parameters)
    P = jnp.zeros((p + 1, p + 1))
    for i, parameter in enumerate(binding.parameters):
        if parameter.prior is not None:
            mean, deviation = parameter.prior
            value, slope = jax.value_and_grad(lambda x, i=i: binding.values(z.at[i].set(x))[i])(z[i])
            r, d = (value - mean) / deviation, slope / deviation
            P = P.at[i, i].add(d * d).at[i, p].add(d * r).at[p, i].add(d * r).at[p, p].add(r * r)
    return P


def pin_rows(pin: Any, z: Any) -> jax.Array:
    """Directions that no row sees are held near the start, or rounding decides where they go; (p+1, p+1)."""
    K, origin = pin
    away = z - origin
    column = K @ away
    return jnp.block([[K, column[:, None]], [column[None, :], (away @ column)[None, None]]])


@lru_cache(maxsize=16)
def joint_form(key: Any, at_stage: tuple, turns: tuple, free: bool, evaluation: Evaluation) -> JointForm:
    """The form of a binding (wrapped in its `Key`); the same value for the same robot, so that nothing is compiled twice."""
    return JointForm(key.binding, at_stage, turns, free, evaluation)
