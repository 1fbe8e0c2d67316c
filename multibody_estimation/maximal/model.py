# SPDX-License-Identifier: Apache-2.0
"""`Multibody`: rigid bodies and joints as data, in maximal coordinates.

State of each body: position of its centre of mass (world, m), orientation (unit quaternion body -> world, scalar first) and
velocity ``[linear in world; angular in body]``. Every physical number is a leaf of the pytree; names, kinds and who is joined
to whom are structure. Array arguments of all functions of this room may carry any trailing axes (time): ``(nb, 7, *T)``.
"""

import numpy as np

from multibody_estimation._jax import jax, jnp, static, value
from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['KINDS', 'Multibody', 'State']

Array = jax.Array

# The six elementary rows of a joint: displacement of the second anchor along x, y, z of the first frame, and the turn of the
# second frame about x, y, z of the first. A kind is the set of rows it locks and the axes it leaves free.
KINDS: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    'hinge': ((0, 1, 2, 3, 4), ('rz',)),
    'slider': ((0, 1, 3, 4, 5), ('tz',)),
    'ball': ((0, 1, 2), ('rx', 'ry', 'rz')),
    'fixed': ((0, 1, 2, 3, 4, 5), ()),
    'universal': ((0, 1, 2, 5), ('rx', 'ry')),
    'cylindrical': ((0, 1, 3, 4), ('tz', 'rz')),
    'planar': ((2, 3, 4), ('tx', 'ty', 'rz')),
    'distance': ((6,), ()),
    'rolling': ((7,), ('tx', 'ty')),
}


@value
class State:
    """State of all bodies at one instant, or at many (trailing axes)."""

    pose: Array
    """Position of the centre of mass [m, world] and quaternion (w, x, y, z); shape (nb, 7, *T)."""
    velocity: Array
    """Linear [m/s, world] and angular [rad/s, body] velocity; shape (nb, 6, *T)."""


@value
class Multibody:
    """Bodies, joints and contacts. Build it with `multibody`; make variants with ``dataclasses.replace``."""

    bodies: tuple[str, ...] = static()
    joints: tuple[str, ...] = static()
    kinds: tuple[str, ...] = static()
    first: tuple[int, ...] = static()
    """Index of each joint's first body; the number of bodies stands for the world."""
    second: tuple[int, ...] = static()
    axes: tuple[tuple[int, str], ...] = static()
    """Free axes with friction, motor or limits: joint index and code such as ``rz`` (turn about z of the first frame)."""
    actuated: tuple[int, ...] = static()
    """Axes that take an input, in the order of the inputs."""
    dry: tuple[int, ...] = static()
    """Axes with dry friction."""
    loaded: tuple[int, ...] = static()
    """Those of ``dry`` whose limit grows with the joint's normal load."""
    limited: tuple[int, ...] = static()
    contacts: tuple[str, ...] = static()
    contact_first: tuple[int, ...] = static()
    contact_second: tuple[int, ...] = static()
    contact_kinds: tuple[str, ...] = static()

    mass: Array
    """kg; shape (nb,)."""
    center_of_mass: Array
    """In the body frame, m; shape (nb, 3)."""
    inertia: Array
    """About the centre of mass, body axes, kg m^2: (xx, yy, zz, xy, xz, yz); shape (nb, 6)."""
    point_first: Array
    """Joint anchor in the first body's frame (origin of the frame, not centre of mass), m; shape (nj, 3)."""
    point_second: Array
    frame_first: Array
    """Joint frame in the first body's frame, quaternion; shape (nj, 4)."""
    frame_second: Array
    length: Array
    """Length of distance joints, radius of rolling ones, m; shape (nj,)."""
    compliance: Array
    """Of each elementary row (1/stiffness): m/N for displacements, rad/(N m) for turns; shape (m,)."""
    damping: Array
    """Relaxation time tau of each elementary row, s; damping coefficient is tau/compliance; shape (m,)."""
    viscous: Array
    """Viscous friction of each axis, N m s/rad or N s/m; shape (na,)."""
    armature: Array
    """Inertia of a rotor that turns with the axis, kg m^2 or kg; shape (na,)."""
    coulomb: Array
    """Constant part of the dry friction limit, N m or N; shape (na,)."""
    load_radius: Array
    """Friction coefficient times bearing radius (2.23), m (turns) or 1 (slides): limit per N of normal load; shape (na,)."""
    creep: Array
    """Speed at which a sticking axis reaches its limit, rad/s or m/s; shape (na,)."""
    gain: Array
    """Motor effort per unit of input; shape (na,)."""
    back_emf: Array
    """Effort lost per unit of speed by the motor, N m s/rad or N s/m; shape (na,)."""
    stiffness: Array
    """Spring of each axis, N m/rad or N/m; shape (na,)."""
    rest: Array
    """Coordinate at which the spring is slack; shape (na,)."""
    offset: Array
    """Constant effort on each axis, N m or N; shape (na,)."""
    lower: Array
    upper: Array
    limit_compliance: Array
    """Compliance and relaxation time of limits: shape (2,)."""
    contact_point: Array
    """Centre of the sphere (radius 0: a point) in the first body's frame, m; shape (nc, 3)."""
    contact_radius: Array
    contact_plane: Array
    """Point of the plane, or centre of the second sphere, in the second body's frame, m; shape (nc, 3)."""
    contact_normal: Array
    """Outward normal of the plane in the second body's frame; shape (nc, 3)."""
    contact_radius_second: Array
    contact_friction: Array
    """Coulomb coefficient; shape (nc,)."""
    contact_compliance: Array
    contact_damping: Array
    contact_creep: Array
    """Tangential creep per normal impulse is creep speed over impulse; m/s; shape (nc,)."""
    gravity: Array
    """m/s^2, world; shape (3,)."""
    tilt: Array
    """Rotation of gravity about world x and y, rad; shape (2,)."""
    reference: Array
    """Poses in which the mechanism was drawn; shape (nb, 7)."""

    @property
    def rows(self) -> tuple[tuple[int, int], ...]:
        """Joint and elementary row of each constraint, in order; length m."""
        return tuple((j, row) for j, kind in enumerate(self.kinds) for row in KINDS[kind][0])

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Name of each axis: the joint's, with the code where the joint has several."""
        count = [sum(j == k for k, _ in self.axes) for j, _ in self.axes]
        return tuple(self.joints[j] if n == 1 else f'{self.joints[j]}.{code}' for (j, code), n in zip(self.axes, count))

    def body(self, name: str) -> int:
        """Index of a body by name."""
        if name not in self.bodies:
            raise EstimationError(f"There is no body '{name}'.{did_you_mean(name, self.bodies)}")
        return self.bodies.index(name)

    def axis(self, name: str) -> int:
        """Index of an axis by name."""
        if name not in self.axis_names:
            raise EstimationError(f"There is no joint axis '{name}'.{did_you_mean(name, self.axis_names)}")
        return self.axis_names.index(name)

    def rest_state(self) -> State:
        """Return the reference poses, at rest."""
        return State(self.reference, jnp.zeros((len(self.bodies), 6)))

    def state(self, pose: Array, velocity: Array) -> State:
        """Return a checked state; shapes (nb, 7, *T) and (nb, 6, *T)."""
        n = len(self.bodies)
        for name, x, size in (('pose', pose, 7), ('velocity', velocity, 6)):
            number = np.asarray(x, dtype=float)
            if number.shape[:2] != (n, size):
                raise EstimationError(f'The {name} has shape {number.shape}; this mechanism needs ({n}, {size}, ...).')
            bad = np.argwhere(~np.isfinite(number))
            if len(bad):
                raise EstimationError(f"The {name} of body '{self.bodies[bad[0][0]]}' is not finite (component {bad[0][1]}).")
        length = np.linalg.norm(np.asarray(pose)[:, 3:], axis=1)
        if np.abs(length - 1).max() > 1e-6:
            worst = int(np.argmax(np.abs(length - 1).reshape(n, -1).max(axis=1)))
            raise EstimationError(f"The quaternion of body '{self.bodies[worst]}' has not unit length; normalise it.")
        return State(jnp.asarray(pose, dtype=float), jnp.asarray(velocity, dtype=float))
