# SPDX-License-Identifier: Apache-2.0
"""The joint-space form for many joints: compiled Newton-Euler for the forces, the regressor for the inertial parameters.

The unrolled form of `joint_space` writes out every product, which is fastest for two joints and does not compile for seven. Here the
force residual comes from the tree's kernel; its derivatives by position and speed are central differences of it (to 1e-9, enough for
a Gauss-Newton step), that by acceleration is the mass matrix, and that by the inertial parameters is linear:

    d force / d z = Y(q, v, a) d(inertial parameters) / d z + d(friction, rotor, inputs) / d z.
"""

from functools import lru_cache
from typing import Any

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.binding import Binding
from multibody_estimation.identification.evaluation import SYMMETRIC
from multibody_estimation.identification.joint_space import JointForm

__all__ = ['MANY', 'ArmForm', 'arm_form', 'suits']

MANY = 4
"""Joints from which on this form serves."""
STEP = 1e-6
"""Of the central differences, rad and rad/s."""


def suits(robot: Any) -> bool:
    """Whether a robot is for this form."""
    return isinstance(robot.model, tree.Model) and len(robot.model.joint_names) >= MANY and not robot.model.floating


class ArmForm(JointForm):
    """Residuals of a robot with many joints; see `JointForm` for the fields."""

    def joint_force(self, model: tree.Model, inputs: Any, q: Any, v: Any, a: Any, data: dict) -> Any:
        """Friction, springs and rotors less the inputs: what every joint feels by itself; (nq, n)."""
        col = lambda x: jnp.asarray(x)[:, None]  # noqa: E731
        limit = col(model.coulomb) + col(model.stribeck) * jnp.exp(-((v / col(model.stribeck_velocity)) ** 2))
        lost = col(model.damping) * v + limit * jnp.tanh(v / col(model.friction_velocity))
        sprung = col(model.stiffness) * (q - col(model.spring_rest))
        return lost + sprung + col(model.armature) * a - self.applied(inputs, v, data)

    def rigid_force(self, model: tree.Model, q: Any, v: Any, a: Any) -> Any:
        """Newton-Euler without rotors; (nq, n)."""
        bare = model.replace(armature=jnp.zeros(len(model.joint_names)))
        return jax.vmap(lambda x, y, w: tree.inverse_dynamics(bare, x, y, w), in_axes=-1, out_axes=-1)(q, v, a)

    def _parts(self, z: Any) -> tuple[tree.Model, Any]:
        model, inputs, _ = self.binding.apply(self.binding.values(z))
        return dynamics.as_tree(model), inputs

    def total(self, q: Any, v: Any, a: Any, z: Any, data: dict) -> Any:
        """Force residual, (nq, n)."""
        model, inputs = self._parts(z)
        return self.rigid_force(model, q, v, a) + self.joint_force(model, inputs, q, v, a, data)

    def _forces(self, q, z, data):
        position, v, a = self.motion(q, data)
        a = a - data['correction']
        model, _ = self._parts(z)
        M = jax.vmap(lambda x: tree.mass_matrix(model, x), in_axes=-1, out_axes=-1)(position)
        return self.total(position, v, a, z, data), M

    def dynamics_rows(self, q, z, data):
        """Whitened residual (nq, n-2) and Jacobian (nq, 3 nq + p, n-2) of the dynamics."""
        nq, h = self.nq, data['step']
        position, v, a = self.motion(q, data)
        a = a - data['correction']
        model, inputs = self._parts(z)
        residual = self.rigid_force(model, position, v, a) + self.joint_force(model, inputs, position, v, a, data)
        Ja = jax.vmap(lambda x: tree.mass_matrix(model, x), in_axes=-1, out_axes=-1)(position)

        def column(seed):
            dq, dv = seed[:nq, None] * STEP, seed[nq:, None] * STEP
            ahead = self.rigid_force(model, position + dq, v + dv, a) + self.joint_force(
                model, inputs, position + dq, v + dv, a, data
            )
            back = self.rigid_force(model, position - dq, v - dv, a) + self.joint_force(
                model, inputs, position - dq, v - dv, a, data
            )
            return (ahead - back) / (2 * STEP)

        J = jnp.swapaxes(jax.lax.map(column, jnp.eye(2 * nq)), 0, 1)
        Jp = self._parameter_columns(position, v, a, z, data) if self.columns else jnp.zeros((nq, 0, v.shape[1]))
        J = self.window_columns(J[:, :nq], J[:, nq:], Ja, Jp, h)
        scale = data['linked'] / (data['reference'] * data['sigma_a'])  # (nq, n-2)
        return residual * scale, J * scale[:, None]

    def _parameter_columns(self, q, v, a, z, data):
        model, _ = self._parts(z)
        slope = jax.jacfwd(lambda y: jnp.asarray(tree.inertial_parameters(self._parts(y)[0])).reshape(-1))(z)
        felt = jax.jacfwd(lambda y: self.joint_force(*self._parts(y), q, v, a, data))(z)

        # Sample by sample, so that the regressor never stands in memory as a whole.
        def one(sample):
            return tree.joint_torque_regressor(model, *sample) @ slope

        rigid = jax.lax.map(one, (q.T, v.T, a.T), batch_size=256)
        return jnp.moveaxis(rigid, 0, -1) + jnp.moveaxis(felt, -1, 1)

    def _defect(self, q, z, data):
        return jnp.zeros((self.nq, q.shape[1] - 2))


def check_parameters(binding: Binding) -> None:
    """Geometry is not linear: what this form cannot estimate is named."""
    for p in binding.parameters:
        tail = p.target.partition('.')[2]
        if p.assign is not None or tail.startswith(('placement', 'axis')) or p.target.startswith('gravity'):
            raise EstimationError(
                f'{p.name}: with {MANY} joints or more, lengths, axes and gravity are taken from the URDF. Remove it from estimate.'
            )


@lru_cache(maxsize=8)
def arm_form(key: Any, at_stage: tuple, turns: tuple, free: bool) -> ArmForm:
    """The form of a binding (wrapped in its `Key`); the same value for the same robot."""
    check_parameters(key.binding)
    return ArmForm(key.binding, at_stage, turns, free, SYMMETRIC)
