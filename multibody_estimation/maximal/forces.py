# SPDX-License-Identifier: Apache-2.0
"""Mass, gravity, gyroscopic and axis forces in maximal coordinates, with any trailing axes."""

from typing import NamedTuple

from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry import components as c
from multibody_estimation.maximal.constraints import axis_coordinates, axis_rows, constraint_values, lift
from multibody_estimation.maximal.model import Multibody, State
from multibody_estimation.maximal.rows import Rows, impulse, pick, speed

__all__ = ['Energies', 'energy', 'explicit_force', 'gravity', 'gyroscopic_impulse', 'gyroscopic_torque', 'inverse_mass', 'mass_matrix', 'momentum', 'motor_effort', 'per_mass',
           'times_mass']  # fmt: skip

Array = jax.Array


def _inertia(model: Multibody, axes: int) -> tuple:
    xx, yy, zz, xy, xz, yz = (lift(model.inertia[:, i], axes) for i in range(6))
    return ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))


def times_mass(model: Multibody, velocity: Array) -> Array:
    """M v: linear momentum (world) and angular momentum about the centre of mass (body); (nb, 6, *T)."""
    t = velocity.ndim - 2
    linear = lift(model.mass, t + 1) * velocity[:, :3]
    return jnp.concatenate(
        [linear, jnp.stack(c.apply(_inertia(model, t), [velocity[:, 3 + i] for i in range(3)]), axis=1)], axis=1
    )


def mass_matrix(model: Multibody) -> Array:
    """M, block diagonal and constant because angular velocities are in body axes; shape (6 nb, 6 nb)."""
    n = len(model.bodies)
    columns = jax.vmap(lambda e: times_mass(model, e.reshape(n, 6)).reshape(-1))(jnp.eye(6 * n))
    return columns.T


def inverse_mass(model: Multibody) -> tuple[Array, Array]:
    """1/m, shape (nb,), and J^-1 as (xx, yy, zz, xy, xz, yz), shape (nb, 6)."""
    xx, yy, zz, xy, xz, yz = (model.inertia[:, i] for i in range(6))
    a, b, d = yy * zz - yz * yz, xz * yz - xy * zz, xy * yz - xz * yy
    e, f, g = xx * zz - xz * xz, xy * xz - xx * yz, xx * yy - xy * xy
    return 1 / model.mass, jnp.stack([a, e, g, b, d, f], axis=1) / (xx * a + xy * b + xz * d)[:, None]


def per_mass(model: Multibody, impulse: Array) -> Array:
    """M^-1 p: velocity that an impulse gives; (nb, 6, *T)."""
    t = impulse.ndim - 2
    m, J = inverse_mass(model)
    xx, yy, zz, xy, xz, yz = (lift(J[:, i], t) for i in range(6))
    turn = c.apply(((xx, xy, xz), (xy, yy, yz), (xz, yz, zz)), [impulse[:, 3 + i] for i in range(3)])
    return jnp.concatenate([lift(m, t + 1) * impulse[:, :3], jnp.stack(turn, axis=1)], axis=1)


def gyroscopic_torque(model: Multibody, velocity: Array) -> Array:
    """-w x J w in body axes, N m; (nb, 6, *T) -> (nb, 3, *T)."""
    w = [velocity[:, 3 + i] for i in range(3)]
    return -jnp.stack(c.cross(w, c.apply(_inertia(model, velocity.ndim - 2), w)), axis=1)


def _turned(vector: tuple, rotation_vector: tuple) -> tuple:
    """Rotate a vector by a rotation vector."""
    w, *q = c.exp(rotation_vector)
    side = c.cross(q, vector)
    return c.add(vector, c.scale(2 * w, side), c.scale(2.0, c.cross(q, side)))


def gyroscopic_impulse(model: Multibody, velocity: Array, step: Array | float) -> Array:
    """Angular impulse J (w+ - w) of a free body over a step, body axes, N m s; (nb, 6, *T) -> (nb, 3, *T).

    w+ solves ``Exp(h w+/2) J w+ = Exp(-h w/2) J w``: velocities belong to the middle of their interval, where the world's angular
    momentum R J w is kept exactly. The rule is symmetric in time, so energy does not drift; -h w x J w to first order.
    """
    J = _inertia(model, velocity.ndim - 2)
    w = tuple(velocity[:, 3 + i] for i in range(3))
    start = c.apply(J, w)
    target = _turned(start, c.scale(-step / 2, w))
    momentum = c.subtract(start, c.scale(step, c.cross(w, start)))
    _, inverse = inverse_mass(model)
    xx, yy, zz, xy, xz, yz = (lift(inverse[:, i], velocity.ndim - 2) for i in range(6))
    K = ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))

    def newton(_, carry: Array) -> Array:
        momentum = tuple(carry)
        x = c.apply(K, momentum)
        miss = c.subtract(_turned(momentum, c.scale(step / 2, x)), target)
        # Newton in the momentum p: d(p + h/2 x cross p) = (1 + h/2 ([x] - [p] K)) dp, solved to second order in h.
        first = c.scale(-step / 2, c.subtract(c.cross(x, miss), c.cross(momentum, c.apply(K, miss))))
        second = c.scale(-step / 2, c.subtract(c.cross(x, first), c.cross(momentum, c.apply(K, first))))
        return jnp.stack(c.subtract(momentum, c.add(miss, first, second)))

    # A loop, not written out: XLA fuses rounds that are, and computes the inner ones again for every use of the outer ones.
    momentum = jax.lax.fori_loop(0, 3, newton, jnp.stack(momentum))
    return jnp.stack(c.subtract(tuple(momentum), start), axis=1)


def gravity(model: Multibody) -> Array:
    """Gravity with its tilt, Rx(tilt_x) Ry(tilt_y) g, as in `tree`; m/s^2; shape (3,)."""
    a, b = model.tilt[0], model.tilt[1]
    x, y, z = model.gravity
    x, z = jnp.cos(b) * x + jnp.sin(b) * z, -jnp.sin(b) * x + jnp.cos(b) * z
    y, z = jnp.cos(a) * y - jnp.sin(a) * z, jnp.sin(a) * y + jnp.cos(a) * z
    return jnp.stack([x, y, z])


def _away(model: Multibody, pose: Array) -> Array:
    """Coordinate of each axis less its rest, angles in (-pi, pi]; shape (na, *T)."""
    t = pose.ndim - 2
    if not model.axes:
        return jnp.zeros((0, *pose.shape[2:]))
    away = axis_coordinates(model, pose) - lift(model.rest, t)
    turning = lift(jnp.array([code[0] == 'r' for _, code in model.axes]), t)
    return jnp.where(turning, jnp.arctan2(jnp.sin(away), jnp.cos(away)), away)


def motor_effort(model: Multibody, pose: Array, inputs: Array) -> Array:
    """Explicit effort on every axis: gain * input + offset - stiffness * (coordinate - rest), N m or N; shape (na, *T).

    ``inputs`` has shape (nu, *T). Speed-dependent terms (viscous friction, back-EMF) are not in it: they act implicitly.
    """
    t = pose.ndim - 2
    like = jnp.zeros((len(model.axes), *pose.shape[2:]))
    effort = like + lift(model.offset, t)
    # A spring that is 0 must cost nothing and keep its derivative, so it is always in; angles wrap, hence the difference does.
    if model.axes:
        effort = effort - lift(model.stiffness, t) * _away(model, pose)
    if not model.actuated:
        return effort
    motors = lift(pick(model.gain, model.actuated), t) * inputs
    # Where each axis finds its motor; axes without one find the zero appended.
    place = [model.actuated.index(i) if i in model.actuated else len(model.actuated) for i in range(len(model.axes))]
    return effort + pick(jnp.concatenate([motors, jnp.zeros_like(motors[:1])]), place)


def explicit_force(model: Multibody, pose: Array, axes: Rows, inputs: Array, wrench: Array | None = None) -> Array:
    """Gravity, motors, springs and external wrench on every body, N and N m; shape (nb, 6, *T).

    ``wrench`` (nb, 6, *T): force in world, torque about the centre of mass in body components.
    """
    n, t = len(model.bodies), pose.ndim - 2
    weight = lift(model.mass[:, None] * gravity(model), t)
    force = jnp.concatenate([weight + 0.0 * pose[:, :3], jnp.zeros_like(pose[:, :3])], axis=1)
    if model.axes:
        force = force + impulse(axes, motor_effort(model, pose, inputs), n)
    return force if wrench is None else force + wrench


class Energies(NamedTuple):
    """Parts of the energy, J; shape (*T)."""

    kinetic: Array
    gravitational: Array
    """Zero where all centres of mass are at the world's origin."""
    springs: Array
    """Of the axes' springs."""
    constraints: Array
    """Stored in the compliance of the joints, g^2/(2 eps)."""

    @property
    def total(self) -> Array:
        """Sum of all parts."""
        return self.kinetic + self.gravitational + self.springs + self.constraints


def energy(model: Multibody, state: State) -> Energies:
    """Return the parts of the mechanism's energy."""
    t = state.pose.ndim - 2
    kinetic = 0.5 * jnp.sum(state.velocity * times_mass(model, state.velocity), axis=(0, 1))
    rotors = lift(model.armature, t) * speed(axis_rows(model, state.pose), state.velocity) ** 2
    kinetic = kinetic + 0.5 * jnp.sum(rotors, axis=0)
    weight = -jnp.sum(lift(model.mass[:, None] * gravity(model), t) * state.pose[:, :3], axis=(0, 1))
    springs = 0.5 * jnp.sum(lift(model.stiffness, t) * _away(model, state.pose) ** 2, axis=0)
    soft = lift(model.compliance, t)
    stored = jnp.where(soft > 0, constraint_values(model, state.pose) ** 2 / jnp.where(soft > 0, 2 * soft, 1.0), 0.0)
    return Energies(kinetic, weight, springs, jnp.sum(stored, axis=0))


def momentum(model: Multibody, state: State) -> Array:
    """Total linear [N s] and angular [N m s, about the world's origin] momentum in world components; shape (6, *T)."""
    p = times_mass(model, state.velocity)
    R = c.rotation([state.pose[:, 3 + i] for i in range(4)])
    spin = c.apply(R, [p[:, 3 + i] for i in range(3)])
    orbit = c.cross([state.pose[:, i] for i in range(3)], [p[:, i] for i in range(3)])
    return jnp.stack([p[:, i].sum(0) for i in range(3)] + [x.sum(0) for x in c.add(spin, orbit)])
