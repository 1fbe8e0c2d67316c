# SPDX-License-Identifier: Apache-2.0
"""From joint coordinates to poses, and onto the constraints: where states of a mechanism come from."""

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.geometry import components as c
from multibody_estimation.maximal.constraints import constraint_rows, lift
from multibody_estimation.maximal.forces import per_mass
from multibody_estimation.maximal.inverse_dynamics import advance
from multibody_estimation.maximal.linear import solve_positive
from multibody_estimation.maximal.model import Multibody, State
from multibody_estimation.maximal.rows import dense, impulse, speed

__all__ = ['place', 'project']

Array = jax.Array


def _motion(kind: str, x: list[Array], zero: Array) -> tuple[tuple, tuple]:
    """Displacement and quaternion of the second joint frame in the first, for coordinates x in the order of `KINDS`."""
    at = (zero, zero, zero)
    if kind == 'hinge':
        return at, c.exp((zero, zero, x[0]))
    if kind == 'slider':
        return (zero, zero, x[0]), c.exp(at)
    if kind == 'cylindrical':
        return (zero, zero, x[0]), c.exp((zero, zero, x[1]))
    if kind == 'planar':
        return (x[0], x[1], zero), c.exp((zero, zero, x[2]))
    if kind == 'universal':
        return at, c.multiply(c.exp((x[0], zero, zero)), c.exp((zero, x[1], zero)))
    if kind == 'ball':
        return at, c.exp((x[0], x[1], x[2]))
    return at, c.exp(at)


def place(model: Multibody, coordinates: Array) -> Array:
    """Poses in which the joints have the given coordinates, (na, *T) rad or m -> (nb, 7, *T).

    Goes out from the world joint by joint, each body by the first joint that reaches it; joints that close a loop, distance and
    rolling joints are not looked at (see `project`); bodies that no joint reaches stay where they were drawn.
    """
    x = jnp.asarray(coordinates, dtype=float)
    if x.shape[:1] != (len(model.axes),):
        raise EstimationError(
            f'The coordinates have shape {x.shape}; this mechanism has {len(model.axes)} axes: {model.axis_names}.'
        )
    t, world = x.ndim - 1, len(model.bodies)
    zero = jnp.zeros(x.shape[1:])
    # Origin of the body frame (not the centre of mass) and quaternion of each body that has been reached.
    found = {world: ((zero, zero, zero), (zero + 1, zero, zero, zero))}

    def vector(leaf: Array, size: int) -> tuple:
        return tuple(lift(leaf[i], t) + zero for i in range(size))

    def start(body: int) -> tuple:
        p, e = vector(model.reference[body], 3), vector(model.reference[body, 3:], 4)
        return c.subtract(p, c.apply(c.rotation(e), vector(model.center_of_mass[body], 3))), e

    waiting = [j for j, kind in enumerate(model.kinds) if kind not in ('distance', 'rolling')]
    while True:
        reach = [j for j in waiting if (model.first[j] in found) != (model.second[j] in found)]
        if not reach:
            left = [b for b in range(world) if b not in found]
            if not left:
                break
            found[left[0]] = start(left[0])
            continue
        j = reach[0]
        a, b = model.first[j], model.second[j]
        mine = [x[i] for i, (k, _) in enumerate(model.axes) if k == j]
        d, turn = _motion(model.kinds[j], mine, zero)
        pa, ea = vector(model.point_first[j], 3), vector(model.frame_first[j], 4)
        pb, eb = vector(model.point_second[j], 3), vector(model.frame_second[j], 4)
        if b in found:  # the joint seen from its second body
            d, turn = c.scale(-1.0, c.apply_transposed(c.rotation(turn), d)), c.conjugate(turn)
            a, b, pa, ea, pb, eb = b, a, pb, eb, pa, ea
        p, e = found[a]
        frame = c.multiply(e, ea)
        anchor = c.add(p, c.apply(c.rotation(e), pa), c.apply(c.rotation(frame), d))
        q = c.multiply(c.multiply(frame, turn), c.conjugate(eb))
        found[b] = (c.subtract(anchor, c.apply(c.rotation(q), pb)), q)
    out = []
    for body in range(world):
        p, e = found[body]
        p = c.add(p, c.apply(c.rotation(e), vector(model.center_of_mass[body], 3)))
        out.append(jnp.stack([*p, *e]))
    return jnp.stack(out)


def project(model: Multibody, state: State, rounds: int = 6) -> State:
    """Nearest state, in the mass metric, that obeys the joints: Newton's method on g(q) = 0, then G v = 0.

    ``dq = -G^+ g, dv = -G^+ G v`` with ``G^+ = M^-1 G^T (G M^-1 G^T + rho)^-1``; rho keeps redundant rows harmless.
    """
    n = len(model.bodies)
    pose = state.pose

    def correction(G, target: Array) -> Array:
        R = dense(G, n)
        r = R.shape[0]
        N = per_mass(model, jnp.moveaxis(R.reshape(r, n, 6, *R.shape[2:]), 0, 2))
        N = jnp.moveaxis(N, 2, 0).reshape(R.shape)
        K = jnp.einsum('ik...,jk...->ij...', R, N)
        eye = lift(jnp.eye(r), K.ndim - 2)
        rho = 1e-10 * jnp.sum(K * eye, axis=(0, 1)) / r
        lam = solve_positive(K + rho * eye, target[:, None])[:, 0]
        return -per_mass(model, impulse(G, lam, n))

    if not model.rows:
        return state
    for _ in range(rounds):
        g, G = constraint_rows(model, pose)
        pose = advance(pose, correction(G, g), 1.0)
    _, G = constraint_rows(model, pose)
    velocity = state.velocity
    for _ in range(2):  # the second round removes what rho left
        velocity = velocity + correction(G, speed(G, velocity))
    return State(pose, velocity)
