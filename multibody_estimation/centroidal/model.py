# SPDX-License-Identifier: Apache-2.0
"""The centroidal state of a legged robot, how it moves, and what sensors see of it.

The state is x = (c, p, L, f, tau): center of mass, linear momentum, angular momentum about c, total force on the robot without
gravity, and the rate of L, all in world axes. From sample to sample the rates change by white increments, evenly in between,

    c+ = c + dt p/m + dt^2/(2m) (f + w_f/2 + m g)    p+ = p + dt (f + w_f/2 + m g)    L+ = L + dt (tau + w_tau/2)
    f+ = f + w_f    tau+ = tau + w_tau,

after F. Bailly, J. Carpentier, P. Soueres, "Optimal estimation of the centroidal dynamics of legged robots" (ICRA 2021), where
the rates are constant until the next sample: momentum then runs half a sample behind force, a bias of dt/2 times the change of
force that precise sensors show. The derivatives of the moment are not those of the report hal-03180052 either, which has 2[c]
where -[f] and [c] belong.

An unknown mass mu m is the one thing that would make the dynamics bilinear. Here p and f stand for momentum and force per
nominal mass (times m), so that mu enters only what sensors see: the chain stays linear whatever is unknown.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.geometry.spatial import skew
from multibody_estimation.kernels.ddp_sweep import Chain

__all__ = ['BLOCKS', 'StateLayout', 'chain', 'dynamics', 'jacobian', 'predict', 'second_order']

BLOCKS = {
    'center_of_mass': 3,
    'contact_wrench': 6,
    'angular_momentum': 3,
    'linear_momentum': 3,
    'angular_momentum_rate': 3,
    'linear_momentum_rate': 3,
    'acceleration': 3,
}
"""What can be measured, with its number of rows: c [m]; contact force [N] and moment about the anchor [N m]; L [N m s];
m cdot [N s]; Ldot [N m]; m cddot [N]; cddot [m/s^2]."""


@dataclass(frozen=True)
class StateLayout:
    """Which states are estimated beside (c, p, L, f, tau), and where each one sits in the state vector."""

    external_wrench: bool = False
    """Force and moment about the center of mass that no force/torque sensor sees, as a random walk; 6 states."""
    com_offset: bool = False
    """Constant error of the center of mass from kinematics; 3 states. Its part along f cannot be told from the moments."""
    wrench_bias: bool = False
    """Constant error of the summed contact force and moment about the anchor, in world axes; 6 states."""
    mass: bool = False
    """True mass over nominal mass, constant; 1 state."""

    @cached_property
    def slices(self) -> dict[str, slice]:
        sizes = {'center_of_mass': 3, 'linear_momentum': 3, 'angular_momentum': 3, 'force': 3, 'moment': 3}
        if self.external_wrench:
            sizes |= {'external_force': 3, 'external_moment': 3}
        if self.com_offset:
            sizes |= {'com_offset': 3}
        if self.wrench_bias:
            sizes |= {'bias_force': 3, 'bias_moment': 3}
        if self.mass:
            sizes |= {'mass_ratio': 1}
        ends = np.cumsum(list(sizes.values()))
        return {name: slice(int(end) - size, int(end)) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    def __getitem__(self, name: str) -> slice:
        if name not in self.slices:
            raise EstimationError(f"The centroidal state has no part '{name}'.{did_you_mean(name, self.slices)}")
        return self.slices[name]

    def __contains__(self, name: str) -> bool:
        return name in self.slices

    @property
    def size(self) -> int:
        return next(reversed(self.slices.values())).stop

    @property
    def inputs(self) -> tuple[int, ...]:
        """States that process noise drives: f, tau and, where there is one, the external wrench."""
        driven = ['force', 'moment'] + (['external_force', 'external_moment'] if self.external_wrench else [])
        return tuple(i for name in driven for i in range(self[name].start, self[name].stop))


def chain(layout: StateLayout) -> Chain:
    """Return where A differs from the identity: c <- p, c <- f, p <- f, L <- tau, axis by axis."""
    pairs = [('center_of_mass', 'linear_momentum'), ('center_of_mass', 'force'), ('linear_momentum', 'force')]
    pairs += [('angular_momentum', 'moment')]
    rows = tuple(layout[to].start + axis for to, _ in pairs for axis in range(3))
    cols = tuple(layout[of].start + axis for _, of in pairs for axis in range(3))
    return Chain(rows, cols, layout.inputs)


def dynamics(layout: StateLayout, steps: Any, mass: Any, gravity: Any) -> tuple[jax.Array, jax.Array]:
    """Return the entries of A in the order of `chain` (n, 12) and the offsets b (n, nx) for time steps in s, shape (n,)."""
    ones = jnp.ones(3)
    parts = [steps / mass, steps**2 / (2 * mass), steps, steps]
    entries = jnp.concatenate([part[:, None] * ones for part in parts], axis=1)
    offsets = jnp.zeros((len(steps), layout.size))
    offsets = offsets.at[:, layout['center_of_mass']].set(steps[:, None] ** 2 / 2 * jnp.asarray(gravity))
    offsets = offsets.at[:, layout['linear_momentum']].set(steps[:, None] * mass * jnp.asarray(gravity))
    return entries, offsets


def _parts(layout: StateLayout, x: jax.Array, anchor: jax.Array):
    """Return arm c - o, force f, mass ratio mu (..., 1), and the force that contact sensors see, s = mu f - f_e."""
    f = x[..., layout['force']]
    ratio = x[..., layout['mass_ratio']] if layout.mass else jnp.ones((*x.shape[:-1], 1))
    sensed = ratio * f
    if layout.external_wrench:
        sensed = sensed - x[..., layout['external_force']]
    return x[..., layout['center_of_mass']] - anchor, f, ratio, sensed


def predict(layout: StateLayout, block: str, x: Any, anchor: Any, mass: Any, gravity: Any) -> jax.Array:
    """Return what the sensor ``block`` reads without noise, g(x); states (..., nx), anchor o (..., 3)."""
    arm, f, ratio, sensed = _parts(layout, x, anchor)
    if block == 'contact_wrench':
        moment = jnp.cross(arm, sensed) + x[..., layout['moment']]
        if layout.external_wrench:
            moment = moment - x[..., layout['external_moment']]
        wrench = jnp.concatenate([sensed, moment], axis=-1)
        if layout.wrench_bias:
            wrench = wrench + x[..., layout['bias_force'].start : layout['bias_moment'].stop]
        return wrench
    if block == 'center_of_mass':
        c = x[..., layout['center_of_mass']]
        return c + x[..., layout['com_offset']] if layout.com_offset else c
    if block == 'linear_momentum':
        return ratio * x[..., layout['linear_momentum']]
    if block == 'linear_momentum_rate':
        return ratio * (f + mass * gravity)
    if block == 'acceleration':
        return f / mass + gravity
    return x[..., layout['moment' if block == 'angular_momentum_rate' else 'angular_momentum']]


def jacobian(layout: StateLayout, block: str, x: Any, anchor: Any, mass: Any, gravity: Any) -> jax.Array:
    """Return H = dg/dx of a block; shape (..., rows, nx). For the moment: -[s] in c, mu [c - o] in f, 1 in tau."""
    arm, f, ratio, sensed = _parts(layout, x, anchor)
    eye = jnp.eye(3)
    h = jnp.zeros((*x.shape[:-1], BLOCKS[block], layout.size))

    def put(h, rows, part, what):
        return h.at[..., rows, layout[part]].set(what)

    if block == 'contact_wrench':
        force, moment = slice(0, 3), slice(3, 6)
        lever = skew(arm)
        h = put(h, force, 'force', ratio[..., None] * eye)
        h = put(h, moment, 'center_of_mass', -skew(sensed))
        h = put(h, moment, 'force', ratio[..., None] * lever)
        h = put(h, moment, 'moment', eye)
        if layout.external_wrench:
            h = put(put(h, force, 'external_force', -eye), moment, 'external_force', -lever)
            h = put(h, moment, 'external_moment', -eye)
        if layout.wrench_bias:
            h = put(put(h, force, 'bias_force', eye), moment, 'bias_moment', eye)
        if layout.mass:
            h = put(put(h, force, 'mass_ratio', f[..., None]), moment, 'mass_ratio', jnp.cross(arm, f)[..., None])
        return h
    rows = slice(0, 3)
    if block == 'center_of_mass':
        h = put(h, rows, 'center_of_mass', eye)
        return put(h, rows, 'com_offset', eye) if layout.com_offset else h
    if block == 'linear_momentum':
        h = put(h, rows, 'linear_momentum', ratio[..., None] * eye)
        return put(h, rows, 'mass_ratio', x[..., layout['linear_momentum'], None]) if layout.mass else h
    if block == 'linear_momentum_rate':
        h = put(h, rows, 'force', ratio[..., None] * eye)
        return put(h, rows, 'mass_ratio', (f + mass * gravity)[..., None]) if layout.mass else h
    if block == 'acceleration':
        return put(h, rows, 'force', eye / mass)
    return put(h, rows, 'moment' if block == 'angular_momentum_rate' else 'angular_momentum', eye)


def second_order(layout: StateLayout, block: str, x: jax.Array, anchor: jax.Array, pull: jax.Array) -> jax.Array | None:
    """Return sum_i lambda_i d2g_i/dx2 for ``pull`` lambda = R^-1 r (..., rows), shape (..., nx, nx); None where g is linear.

    For the moment: -[lambda] between c and s, since lambda . (dc x ds) = -dc . [lambda] ds.
    """
    arm, f, ratio, _ = _parts(layout, x, anchor)
    s = jnp.zeros((*x.shape[:-1], layout.size, layout.size))

    def put(s, one, other, what):
        s = s.at[..., layout[one], layout[other]].set(what)
        return s.at[..., layout[other], layout[one]].set(jnp.swapaxes(what, -1, -2))

    if block == 'contact_wrench':
        cross = -skew(pull[..., 3:])
        s = put(s, 'center_of_mass', 'force', ratio[..., None] * cross)
        if layout.external_wrench:
            s = put(s, 'center_of_mass', 'external_force', -cross)
        if layout.mass:
            s = put(s, 'center_of_mass', 'mass_ratio', cross @ f[..., None])
            s = put(s, 'force', 'mass_ratio', (pull[..., :3] + jnp.cross(pull[..., 3:], arm))[..., None])
        return s
    if layout.mass and block == 'linear_momentum':
        return put(s, 'linear_momentum', 'mass_ratio', pull[..., None])
    if layout.mass and block == 'linear_momentum_rate':
        return put(s, 'force', 'mass_ratio', pull[..., None])
    return None
