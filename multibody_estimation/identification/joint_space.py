# SPDX-License-Identifier: Apache-2.0
"""The joint-space form: joint positions as the only states, inverse dynamics on windows of three stages, time-symmetric.

Rows of window k (stages k-1, k, k+1; v and a are central differences):

    dynamics      e = W^-1 (ID(q_k, v, a - correction_k; chi) - tau_k) / sigma_a
    observation   (sensor(q, v, a; chi) - y) / sigma_y

W is a constant diagonal at first (impulse whitening), the mass matrix later: force residuals shrink with the inertias, so a constant W
lets soft weights pull all inertias to zero. For W = M(q, chi) the exact Jacobian needs no derivative of M^-1: with e frozen,
d(M^-1 F) = M^-1 d[ID(q, v, a - e) - tau].
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.binding import Binding
from multibody_estimation.identification.grid import Grid, input_means
from multibody_estimation.identification.observations import Custom, Encoder, JointTorque
from multibody_estimation.least_squares import Arrow, Chain, assemble, block_size

__all__ = ['JointSpace']


@dataclass(frozen=True)
class JointSpace:
    """The residuals of one identification and its compiled functions."""

    binding: Binding
    grid: Grid

    def __post_init__(self) -> None:
        nq = len(dynamics.joint_names(self.binding.robot.model))
        block = block_size(nq, 3)
        n = len(self.grid)
        metric = np.zeros(-(-n * nq // block) * block)
        strongest = max(float(s.weight.max()) for s in self.grid.samples)
        metric[: n * nq] = strongest**2
        object.__setattr__(self, 'metric', jnp.asarray(metric.reshape(-1, block)))
        object.__setattr__(self, 'nq', nq)
        object.__setattr__(self, 'count', len(self.binding.parameters))
        object.__setattr__(self, 'chain', Chain(self.linearise, self.retract, self.metric))  # type: ignore[attr-defined]
        object.__setattr__(self, 'defect', jax.jit(self._defect))
        object.__setattr__(self, 'forces', jax.jit(self._forces))

    # What changes between solves is data, so that nothing is compiled twice.
    def data(
        self, sigma_a: float, reference: np.ndarray, *, by_mass: bool = False, correction: Any = None, pin: Any = None
    ) -> dict:
        """Arguments of a solve: allowed acceleration error (rad/s^2), constant whitening (nq,), correction (nq, n-2)."""
        m = len(self.grid) - 2
        return {
            'sigma_a': jnp.float64(sigma_a),
            'reference': jnp.asarray(reference),
            'by_mass': jnp.float64(by_mass),
            'correction': jnp.zeros((self.nq, m)) if correction is None else correction,  # type: ignore[attr-defined]
            'samples': [(s.values, s.weight, s.lag) for s in self.grid.samples],
            'linked': jnp.asarray(self.grid.linked),
            'pin': (jnp.zeros((self.count, self.count)), jnp.zeros(self.count)) if pin is None else pin,  # type: ignore[attr-defined]
        }

    def retract(self, q, step, parameters, parameter_step):
        """Positions after a step; q (nq, n)."""
        nq, n = q.shape
        return q + step.reshape(-1)[: n * nq].reshape(n, nq).T

    def applied(self, inputs, qd, part: int = 0):
        """Joint forces of the inputs at the inner stages, (nq, n-2); part 0: hat mean, 1: before, 2: after the stage."""
        robot, names = self.binding.robot, dynamics.joint_names(self.binding.robot.model)
        rows = [jnp.zeros_like(qd[0]) for _ in names]
        for source, numbers, table in zip(robot.inputs, inputs, self.grid.inputs):
            if isinstance(numbers['delay'], jax.core.Tracer):
                u = input_means(table, self.grid.time[1:-1], self.grid.step, numbers['delay'])[part]
            else:  # a known delay: the means are numbers, computed once while compiling
                with jax.ensure_compile_time_eval():
                    u = input_means(table, self.grid.time[1:-1], self.grid.step, numbers['delay'])[part]
            j = names.index(source.joint)
            rows[j] = rows[j] + numbers['gain'] * u + numbers['offset'] - numbers['back_emf'] * qd[j]
        return jnp.stack(rows)

    def _motion(self, q):
        h = self.grid.step
        return q[:, 1:-1], (q[:, 2:] - q[:, :-2]) / (2 * h), (q[:, 2:] - 2 * q[:, 1:-1] + q[:, :-2]) / h**2

    def _force(self, q, qd, qdd, z):
        model, inputs, _ = self.binding.apply(self.binding.values(z))
        return dynamics.inverse_dynamics(model, q, qd, qdd) - self.applied(inputs, qd)

    def _forces(self, q, z):
        """Force residual (nq, n-2), N m: what an external force must have given; and the mass matrix (nq, nq, n-2)."""
        position, speed, acceleration = self._motion(q)
        model, _, _ = self.binding.apply(self.binding.values(z))
        return self._force(position, speed, acceleration, z), dynamics.mass_matrix(model, position, speed)[0]

    def linearise(self, q, z, data) -> Arrow:
        """Normal equations of all rows at positions q (nq, n) and scaled parameters z (p,)."""
        nq, n, h, p = self.nq, q.shape[1], self.grid.step, len(self.binding.parameters)  # type: ignore[attr-defined]
        position, speed, acceleration = self._motion(q)
        size = {'unknowns': nq, 'stages': n, 'block': block_size(nq, 3)}

        # Rows of the dynamics.
        def tangents(f, *at):
            """Columns df/d(each entry of each argument), one forward pass each: (rows, columns, m)."""
            columns = []
            for a, x in enumerate(at):
                for i in range(x.shape[0]):
                    seed = jnp.zeros_like(x).at[i].set(1.0)
                    columns.append(jax.jvp(lambda y, a=a: f(*at[:a], y, *at[a + 1 :]), (x,), (seed,))[1])
            return jnp.stack(columns, axis=1)

        # The correction is an acceleration, not a force: a force would seem to tell the scale of all inertias.
        measured, acceleration = acceleration, acceleration - data['correction']
        residual = self._force(position, speed, acceleration, z)
        M = tangents(lambda a: self._force(position, speed, a, z), acceleration)
        error = dynamics.solve_small(M, residual) * data['by_mass']
        J = tangents(self._force, position, speed, acceleration - error, z)
        Jq, Jv, Ja, Jp = J[:, :nq], J[:, nq : 2 * nq], J[:, 2 * nq : 3 * nq], J[:, 3 * nq :]
        J = jnp.concatenate([Ja / h**2 - Jv / (2 * h), Jq - 2 * Ja / h**2, Ja / h**2 + Jv / (2 * h), Jp], axis=1)
        white = 1 / data['reference']
        scale = data['linked'] / data['sigma_a']
        row = jnp.where(data['by_mass'] > 0, error, residual * white[:, None]) * scale
        J = jnp.where(data['by_mass'] > 0, dynamics.solve_small(M, J), J * white[:, None, None]) * scale
        arrow = assemble(J, row, width=3, **size)
        acceleration = measured

        # Rows of the sensors.
        for k, (samples, (y, w, lag)) in enumerate(zip(self.grid.samples, data['samples'])):
            sensor = samples.sensor
            at_stage = isinstance(sensor, Encoder) and not samples.lag.any()
            if at_stage:
                index = np.asarray(samples.index)

                def predict(z, index=index, k=k):
                    return jnp.stack(self.binding.apply(self.binding.values(z))[2][k]['offset'] + [jnp.float64(0)])[:-1]

                offset = predict(z)
                r = q[index] + offset[:, None] - y
                if p:
                    Jz = jax.jacfwd(predict)(z)
                rows = jnp.zeros((len(index), nq + p, n)).at[np.arange(len(index)), index].set(1.0)
                if p:
                    rows = rows.at[:, nq:].set(Jz[:, :, None])
                width = 1
            else:

                def predict(position, speed, acceleration, z, sensor=sensor, samples=samples, k=k, lag=lag):
                    return self._sensor(sensor, samples, k, position, speed, acceleration, z, lag[1:-1])

                r = predict(position, speed, acceleration, z) - y[:, 1:-1]
                rows = tangents(predict, position, speed, acceleration, z)
                Jq, Jv, Ja = rows[:, :nq], rows[:, nq : 2 * nq], rows[:, 2 * nq : 3 * nq]
                rows = jnp.concatenate(
                    [Ja / h**2 - Jv / (2 * h), Jq - 2 * Ja / h**2, Ja / h**2 + Jv / (2 * h), rows[:, 3 * nq :]], axis=1
                )
                w, width = w[:, 1:-1] * data['linked'], 3
            if sensor.angular:
                r = r - 2 * jnp.pi * jnp.round(r / (2 * jnp.pi))
            r = r * w
            robust = jnp.sqrt(jnp.minimum(1.0, sensor.huber / jnp.maximum(jnp.abs(r), 1e-300))) if sensor.huber else 1.0
            arrow = arrow + assemble(rows * (w * robust)[:, None], r * robust, width=width, **size)

        # Priors, and ones where the last block is longer than the chain.
        for i, parameter in enumerate(self.binding.parameters):
            if parameter.prior is not None:
                mean, deviation = parameter.prior
                value, slope = jax.value_and_grad(lambda x, i=i: self.binding.values(z.at[i].set(x))[i])(z[i])
                r, d = (value - mean) / deviation, slope / deviation
                P = arrow.P.at[i, i].add(d * d).at[i, p].add(d * r).at[p, i].add(d * r).at[p, p].add(r * r)
                arrow = Arrow(arrow.D, arrow.E, arrow.C, P)
        # Directions that no row sees are held near the start, or rounding decides where they go.
        K, origin = data['pin']
        away = z - origin
        P = arrow.P.at[:p, :p].add(K).at[:p, p].add(K @ away).at[p, :p].add(K @ away).at[p, p].add(away @ K @ away)
        arrow = Arrow(arrow.D, arrow.E, arrow.C, P)
        spare = jnp.where(self.metric == 0, 1.0, 0.0)  # type: ignore[attr-defined]
        return Arrow(arrow.D + jax.vmap(jnp.diag)(spare), arrow.E, arrow.C, arrow.P)

    def _sensor(self, sensor, samples, k, position, speed, acceleration, z, lag):
        model, inputs, numbers = self.binding.apply(self.binding.values(z))
        if isinstance(sensor, Encoder):
            q = position + lag * speed + 0.5 * lag**2 * acceleration
            return jnp.stack([q[i] + numbers[k]['offset'][j] for j, i in enumerate(samples.index)])
        if isinstance(sensor, JointTorque):
            names = dynamics.joint_names(self.binding.robot.model)
            force = dynamics.inverse_dynamics(model, position, speed, acceleration)
            return jnp.stack([force[names.index(j)] for j in sensor.joints])
        if isinstance(sensor, Custom):
            return sensor.function(model, position, speed, acceleration)
        raise NotImplementedError(type(sensor).__name__)

    def _defect(self, q, z, substeps: int = 4):
        """Acceleration error that the scheme shows on an accurate local solution (deferred correction), (nq, n-2).

        From each inner stage the motion is integrated to both neighbours by Runge-Kutta 4; the speed is adjusted until the accurate
        solution has the observed central difference, then the scheme is evaluated on it.
        """
        h = self.grid.step
        position, speed, _ = self._motion(q)
        model, inputs, _ = self.binding.apply(self.binding.values(z))
        zero = jnp.zeros_like(speed)
        before, after, hat = (self.applied([{**i, 'back_emf': 0.0} for i in inputs], zero, part) for part in (1, 2, 0))
        names = dynamics.joint_names(self.binding.robot.model)
        loss = jnp.zeros(len(names))
        for source, numbers in zip(self.binding.robot.inputs, inputs):
            loss = loss.at[names.index(source.joint)].add(numbers['back_emf'])

        def rates(x, v, u):
            return v, dynamics.accelerations(model, x, v, u - loss[:, None] * v)

        def shoot(v, both, u):
            dt = both * h / substeps

            def advance(state, _):
                x, v = state
                k1 = rates(x, v, u)
                k2 = rates(x + dt / 2 * k1[0], v + dt / 2 * k1[1], u)
                k3 = rates(x + dt / 2 * k2[0], v + dt / 2 * k2[1], u)
                k4 = rates(x + dt * k3[0], v + dt * k3[1], u)
                x = x + dt / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
                return (x, v + dt / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])), None

            return jax.lax.scan(advance, (jnp.concatenate([position] * 2, 1), v), None, length=substeps)[0][0]

        m = position.shape[1]
        sign = jnp.concatenate([jnp.ones(m), -jnp.ones(m)])
        u = jnp.concatenate([after, before], 1)

        def improve(v, _):
            ends = shoot(jnp.concatenate([v, v], 1), sign, u)
            return v + speed - (ends[:, :m] - ends[:, m:]) / (2 * h), None

        v = jax.lax.scan(improve, speed, None, length=2)[0]
        ends = shoot(jnp.concatenate([v, v], 1), sign, u)
        forward, backward = ends[:, :m], ends[:, m:]
        vc, ac = (forward - backward) / (2 * h), (forward - 2 * position + backward) / h**2
        force = dynamics.inverse_dynamics(model, position, vc, ac) - hat + loss[:, None] * vc
        error = dynamics.solve_small(dynamics.mass_matrix(model, position, vc)[0], force)
        return jnp.where(jnp.isfinite(error), error, 0.0)
