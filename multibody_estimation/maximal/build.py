# SPDX-License-Identifier: Apache-2.0
"""Draw a mechanism in a few lines: bodies where they are, joints where they sit, all in world coordinates.

model = multibody(
    [Body('rod', mass=0.3, inertia=(4e-3, 4e-3, 1e-5), position=(0, 0, -0.2))],
    [Joint('pivot', 'hinge', 'world', 'rod', at=(0, 0, 0), axis=(1, 0, 0), viscous=1e-4)],
)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.geometry import quaternion
from multibody_estimation.maximal.model import KINDS, Multibody

__all__ = ['Body', 'Contact', 'Joint', 'multibody']

Vector = Sequence[float]


@dataclass(frozen=True)
class Body:
    """A rigid body; its frame is given by ``position`` and ``orientation`` in the drawing."""

    name: str
    mass: float
    """kg."""
    inertia: Sequence[float]
    """About the centre of mass in body axes, kg m^2: 3 (diagonal), 6 (xx, yy, zz, xy, xz, yz) or 3x3."""
    position: Vector = (0.0, 0.0, 0.0)
    """Origin of the body frame, m."""
    orientation: Vector = (1.0, 0.0, 0.0, 0.0)
    """Quaternion body -> world, scalar first."""
    center_of_mass: Vector = (0.0, 0.0, 0.0)
    """In the body frame, m."""


@dataclass(frozen=True)
class Joint:
    """A joint; numbers per axis may be scalars (all axes) or sequences."""

    name: str
    kind: str
    first: str
    second: str
    at: Vector = (0.0, 0.0, 0.0)
    """Anchor in world coordinates, m; for ``distance`` and ``rolling`` the anchor on the first body."""
    axis: Vector = (0.0, 0.0, 1.0)
    """Axis (z of the joint frame) in world coordinates: hinge and slider axis, plane normal."""
    across: Vector | None = None
    """x of the joint frame; any direction if not given."""
    at_second: Vector | None = None
    """Anchor on the second body (``distance``) or centre of the sphere (``rolling``)."""
    compliance: float | Sequence[float] = 1e-8
    """Of each elementary constraint, m/N or rad/(N m)."""
    damping: float | Sequence[float] = 2e-3
    """Relaxation time of each elementary constraint, s."""
    viscous: float | Sequence[float] = 0.0
    """Viscous friction, N m s/rad or N s/m; acts implicitly, stable at any value: 1e5 on a ``rolling`` joint forbids slip."""
    armature: float | Sequence[float] = 0.0
    """Inertia of a rotor that turns with the axis, kg m^2 or kg."""
    coulomb: float | Sequence[float] = 0.0
    """Constant part of the dry friction limit, N m or N."""
    load_radius: float | Sequence[float] = 0.0
    """Friction coefficient times bearing radius: dry friction per N of the joint's load, m (turns) or 1 (slides)."""
    creep: float | Sequence[float] = 1e-3
    """Speed at which a sticking axis reaches its limit, rad/s or m/s."""
    gain: float | Sequence[float] | None = None
    """Motor effort per unit input; giving it makes the axis actuated. Torque motor: 1; DC motor on a voltage: k/R."""
    back_emf: float | Sequence[float] = 0.0
    """Effort lost per speed: k^2/R of a DC motor. With gain = back_emf = k the input is a speed that is held with gain k."""
    stiffness: float | Sequence[float] = 0.0
    """Spring of the axis, N m/rad or N/m, slack at ``rest`` (rad or m)."""
    rest: float | Sequence[float] = 0.0
    offset: float | Sequence[float] = 0.0
    """Constant effort, N m or N."""
    lower: float = -np.inf
    """Limits of every axis of the joint, rad (within +-pi) or m."""
    upper: float = np.inf
    dry: bool | None = None
    """Keep the dry friction term even where its numbers start at zero; None: where a number is positive."""


@dataclass(frozen=True)
class Contact:
    """A sphere (radius 0: a point) of the first body against a plane, or a sphere, of the second, in world coordinates."""

    name: str
    first: str
    second: str
    at: Vector
    radius: float = 0.0
    plane: Vector = (0.0, 0.0, 0.0)
    """Point of the plane, or centre of the second sphere, m."""
    normal: Vector = (0.0, 0.0, 1.0)
    radius_second: float | None = None
    """Radius of the second sphere; None: a plane."""
    friction: float = 0.5
    compliance: float = 1e-7
    damping: float = 4e-3
    creep: float = 1e-4


def _inertia(body: Body) -> np.ndarray:
    J = np.asarray(body.inertia, dtype=float)
    if J.shape == (3,):
        J = np.diag(J)
    elif J.shape == (6,):
        xx, yy, zz, xy, xz, yz = J
        J = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    if J.shape != (3, 3) or not np.isfinite(J).all() or not np.allclose(J, J.T):
        raise EstimationError(f"Body '{body.name}': the inertia must be 3, 6 or symmetric 3x3 finite numbers.")
    e = np.linalg.eigvalsh(J)
    if not e[0] > 0:
        raise EstimationError(f"Body '{body.name}': the inertia is not positive definite (smallest principal moment {e[0]:.3g}).")
    if e[2] > (e[0] + e[1]) * (1 + 1e-9):
        raise EstimationError(
            f"Body '{body.name}': principal moments {e[0]:.4g}, {e[1]:.4g}, {e[2]:.4g} kg m^2 break the triangle inequality; "
            'the largest may not exceed the sum of the others. Is the inertia about the centre of mass?'
        )
    return J


def _frame(joint: Joint) -> np.ndarray:
    z = np.asarray(joint.axis, dtype=float)
    if z.shape != (3,) or not np.linalg.norm(z) > 0:
        raise EstimationError(f"Joint '{joint.name}': the axis must be three numbers, not all zero.")
    z = z / np.linalg.norm(z)
    x = np.asarray(joint.across if joint.across is not None else np.eye(3)[np.argmin(np.abs(z))], dtype=float)
    x = x - z * (x @ z)
    if not np.linalg.norm(x) > 1e-9:
        raise EstimationError(f"Joint '{joint.name}': 'across' is parallel to the axis.")
    x = x / np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], axis=1)


def multibody(
    bodies: Sequence[Body],
    joints: Sequence[Joint] = (),
    contacts: Sequence[Contact] = (),
    *,
    gravity: Vector = (0.0, 0.0, -9.81),
    tilt: Vector = (0.0, 0.0),
) -> Multibody:
    """Check the drawing and make the model; gravity in m/s^2, tilt in rad about world x and y."""
    names = tuple(b.name for b in bodies)
    for name in names:
        if names.count(name) > 1 or name == 'world':
            raise EstimationError(f"Body name '{name}' is taken; names must be unique and 'world' is the world.")
    for b in bodies:
        if not (np.isfinite(b.mass) and b.mass > 0):
            raise EstimationError(f"Body '{b.name}': mass is {b.mass} kg; it must be positive.")
        if abs(np.linalg.norm(b.orientation) - 1) > 1e-6:
            raise EstimationError(f"Body '{b.name}': the orientation is not a unit quaternion.")
        if not np.isfinite([*b.position, *b.orientation, *b.center_of_mass]).all():
            raise EstimationError(f"Body '{b.name}': position, orientation and centre of mass must be finite.")
    labels = [j.name for j in joints]
    for label in labels:
        if labels.count(label) > 1:
            raise EstimationError(f"Joint name '{label}' is taken; names must be unique.")
    R = [np.asarray(quaternion.to_matrix(jnp.asarray(b.orientation, dtype=float))) for b in bodies] + [np.eye(3)]
    origin = [np.asarray(b.position, dtype=float) for b in bodies] + [np.zeros(3)]

    def index(owner: str, name: str) -> int:
        if name != 'world' and name not in names:
            raise EstimationError(f"{owner} names the body '{name}', which is not there.{did_you_mean(name, [*names, 'world'])}")
        return len(names) if name == 'world' else names.index(name)

    data: dict[str, list] = {k: [] for k in ('first', 'second', 'pf', 'ps', 'ff', 'fs', 'length', 'compliance', 'damping')}
    axis_fields = (
        'viscous',
        'armature',
        'coulomb',
        'load_radius',
        'creep',
        'back_emf',
        'stiffness',
        'rest',
        'offset',
        'lower',
        'upper',
    )
    axis_data: dict[str, list] = {k: [] for k in (*axis_fields, 'gain')}
    axes: list[tuple[int, str]] = []
    actuated, dry, loaded, limited = [], [], [], []  # type: list[int], list[int], list[int], list[int]
    for k, j in enumerate(joints):
        if j.kind not in KINDS:
            raise EstimationError(f"Joint '{j.name}' has the unknown kind '{j.kind}'.{did_you_mean(j.kind, KINDS)}")
        one, two = index(f"Joint '{j.name}'", j.first), index(f"Joint '{j.name}'", j.second)
        if one == two:
            raise EstimationError(f"Joint '{j.name}' joins '{j.first}' to itself.")
        if not np.isfinite([*j.at, *(j.at_second or ()), *j.axis, *(j.across or ())]).all():
            raise EstimationError(f"Joint '{j.name}': its anchors and axis must be finite.")
        F, p = _frame(j), np.asarray(j.at, dtype=float)
        p2 = np.asarray(j.at_second, dtype=float) if j.at_second is not None else p
        locked, free = KINDS[j.kind]
        data['first'].append(one)
        data['second'].append(two)
        data['pf'].append(R[one].T @ (p - origin[one]))
        data['ps'].append(R[two].T @ (p2 - origin[two]))
        data['ff'].append(np.asarray(quaternion.from_matrix(jnp.asarray(R[one].T @ F))))
        data['fs'].append(np.asarray(quaternion.from_matrix(jnp.asarray(R[two].T @ F))))
        data['length'].append(np.linalg.norm(p2 - p) if j.kind == 'distance' else F[:, 2] @ (p2 - p))
        if j.kind == 'distance' and not data['length'][-1] > 0:
            raise EstimationError(f"Joint '{j.name}': its two anchors coincide; give 'at_second' away from 'at'.")
        for field in ('compliance', 'damping'):
            x = np.broadcast_to(np.asarray(getattr(j, field), dtype=float), len(locked))
            if not (np.isfinite(x).all() and (x >= 0).all()):
                raise EstimationError(f"Joint '{j.name}': {field} must be finite and not negative.")
            data[field].extend(x)
        for n, code in enumerate(free):
            i = len(axes)
            axes.append((k, code))
            for field in axis_fields:
                x = np.broadcast_to(np.asarray(getattr(j, field), dtype=float), len(free))[n]
                if np.isnan(x) or not (np.isfinite(x) or field in ('lower', 'upper')):
                    raise EstimationError(f"Joint '{j.name}': {field} is {x}; it must be finite.")
                if field in ('viscous', 'armature', 'coulomb', 'load_radius', 'back_emf', 'stiffness') and x < 0:
                    raise EstimationError(f"Joint '{j.name}': {field} is {x}; it must not be negative.")
                if field == 'creep' and not x > 0:
                    raise EstimationError(f"Joint '{j.name}': creep is {x}; it must be a positive speed.")
                axis_data[field].append(x)
            gain = np.broadcast_to(np.asarray(0.0 if j.gain is None else j.gain, dtype=float), len(free))[n]
            if not np.isfinite(gain):
                raise EstimationError(f"Joint '{j.name}': gain is {gain}; it must be finite.")
            axis_data['gain'].append(gain)
            if j.gain is not None:
                actuated.append(i)
            if j.dry or (j.dry is None and (axis_data['coulomb'][i] > 0 or axis_data['load_radius'][i] > 0)):
                dry.append(i)
            if i in dry and axis_data['load_radius'][i] > 0:
                loaded.append(i)
            if np.isfinite(axis_data['lower'][i]) or np.isfinite(axis_data['upper'][i]):
                if not axis_data['lower'][i] < axis_data['upper'][i]:
                    raise EstimationError(f"Joint '{j.name}': its lower limit is not below its upper limit.")
                limited.append(i)
    cf = [index(f"Contact '{x.name}'", x.first) for x in contacts]
    cs = [index(f"Contact '{x.name}'", x.second) for x in contacts]
    for touch in contacts:
        numbers = [
            touch.friction,
            touch.radius,
            touch.compliance,
            touch.damping,
            touch.creep,
            *touch.at,
            *touch.plane,
            *touch.normal,
        ]
        good = touch.friction >= 0 and touch.radius >= 0 and touch.compliance > 0 and touch.damping >= 0 and touch.creep > 0
        if not (good and np.isfinite(numbers).all() and np.linalg.norm(touch.normal) > 0):
            raise EstimationError(
                f"Contact '{touch.name}': friction, radius >= 0 and compliance, creep > 0 and a normal are needed."
            )

    def table(x: list, width: int | None = None) -> jnp.ndarray:
        return jnp.asarray(np.asarray(x, dtype=float).reshape((-1,) if width is None else (-1, width)))

    J = [_inertia(b) for b in bodies]
    com = [np.asarray(b.center_of_mass, dtype=float) for b in bodies]
    return Multibody(
        bodies=names,
        joints=tuple(j.name for j in joints),
        kinds=tuple(j.kind for j in joints),
        first=tuple(data['first']),
        second=tuple(data['second']),
        axes=tuple(axes),
        actuated=tuple(actuated),
        dry=tuple(dry),
        loaded=tuple(loaded),
        limited=tuple(limited),
        contacts=tuple(x.name for x in contacts),
        contact_first=tuple(cf),
        contact_second=tuple(cs),
        contact_kinds=tuple('plane' if x.radius_second is None else 'sphere' for x in contacts),
        mass=table([b.mass for b in bodies]),
        center_of_mass=table(com, 3),
        inertia=table([[M[0, 0], M[1, 1], M[2, 2], M[0, 1], M[0, 2], M[1, 2]] for M in J], 6),
        point_first=table(data['pf'], 3),
        point_second=table(data['ps'], 3),
        frame_first=table(data['ff'], 4),
        frame_second=table(data['fs'], 4),
        length=table(data['length']),
        compliance=table(data['compliance']),
        damping=table(data['damping']),
        **{k: table(x) for k, x in axis_data.items()},
        limit_compliance=jnp.array([1e-7, 4e-3]),
        contact_point=table([R[i].T @ (np.asarray(x.at, dtype=float) - origin[i]) for i, x in zip(cf, contacts)], 3),
        contact_radius=table([x.radius for x in contacts]),
        contact_plane=table([R[i].T @ (np.asarray(x.plane, dtype=float) - origin[i]) for i, x in zip(cs, contacts)], 3),
        contact_normal=table([R[i].T @ (np.asarray(x.normal) / np.linalg.norm(x.normal)) for i, x in zip(cs, contacts)], 3),
        contact_radius_second=table([x.radius_second or 0.0 for x in contacts]),
        contact_friction=table([x.friction for x in contacts]),
        contact_compliance=table([x.compliance for x in contacts]),
        contact_damping=table([x.damping for x in contacts]),
        contact_creep=table([x.creep for x in contacts]),
        gravity=jnp.asarray(gravity, dtype=float),
        tilt=jnp.asarray(tilt, dtype=float),
        reference=table([[*(o + M @ p), *b.orientation] for b, o, M, p in zip(bodies, origin, R, com)], 7),
    )
