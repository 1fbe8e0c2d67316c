# SPDX-License-Identifier: Apache-2.0
"""Dynamics in maximal coordinates: rigid bodies, regularised joints, dry friction, limits and contacts; loops are welcome.

    from multibody_estimation.maximal import Body, Joint, multibody, simulate

    model = multibody(
        [Body('rod', mass=0.3, inertia=(4e-3, 4e-3, 1e-5), position=(0, 0, -0.2))],
        [Joint('pivot', 'hinge', 'world', 'rod', at=(0, 0, 0), axis=(1, 0, 0), coulomb=1e-3)],
    )
    rollout = simulate(model, model.rest_state(), steps=1000, time_step=1e-3)

One convention: a quaternion takes body to world components; a body's velocity is that of its centre of mass in world axes and
its angular velocity in body axes. Every function is pure, jits, batches (trailing axes, or `jax.vmap` over models) and
differentiates both ways.
"""

from multibody_estimation.maximal.assemble import place, project
from multibody_estimation.maximal.build import Body, Contact, Joint, multibody
from multibody_estimation.maximal.constraints import axis_coordinates, constraint_jacobian, constraint_values
from multibody_estimation.maximal.convert import from_tree, tree_state
from multibody_estimation.maximal.forces import energy, momentum
from multibody_estimation.maximal.inverse_dynamics import (
    advance,
    difference,
    impulse_residual,
    impulse_residuals,
    window_residual,
)
from multibody_estimation.maximal.lcp import solve_lcp
from multibody_estimation.maximal.model import KINDS, Multibody, State
from multibody_estimation.maximal.rollout import Rollout, simulate
from multibody_estimation.maximal.spook import Outcome, step

__all__ = [
    'KINDS', 'Body', 'Contact', 'Joint', 'Multibody', 'Outcome', 'Rollout', 'State', 'advance', 'axis_coordinates',
    'constraint_jacobian', 'constraint_values', 'difference', 'energy', 'from_tree', 'impulse_residual', 'impulse_residuals',
    'momentum', 'multibody', 'place', 'project', 'simulate', 'solve_lcp', 'step', 'tree_state', 'window_residual',
]  # fmt: skip
