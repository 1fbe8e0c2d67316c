# SPDX-License-Identifier: Apache-2.0
"""Joints of every kind against autodiff, coordinates against placements, and inputs that must be refused."""

import dataclasses

import numpy as np
import pytest

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.geometry import quaternion
from multibody_estimation.maximal.assemble import place, project
from multibody_estimation.maximal.build import Body, Contact, Joint, multibody
from multibody_estimation.maximal.constraints import axis_coordinates, axis_rows, constraint_rows, constraint_values
from multibody_estimation.maximal.contacts import contact_rows, limit_rows
from multibody_estimation.maximal.convert import from_tree
from multibody_estimation.maximal.forces import inverse_mass, mass_matrix, per_mass, times_mass
from multibody_estimation.maximal.model import KINDS, State
from multibody_estimation.maximal.rollout import simulate
from multibody_estimation.maximal.rows import dense, pick, speed
from multibody_estimation.robots import mechanisms


def _quaternion(rng):
    q = rng.normal(size=4)
    return tuple(q / np.linalg.norm(q))


@pytest.fixture(scope='module')
def zoo():
    """One joint of every kind in a chain from the world, limits on the hinge, contacts of both sorts, and a random pose."""
    rng = np.random.default_rng(0)
    n = len(KINDS)
    bodies = [
        Body(f'b{i}', 1 + 0.1 * i, (0.3, 0.4, 0.5, 0.01, 0.02, 0.03), tuple(rng.normal(size=3)), _quaternion(rng), tuple(0.1 * rng.normal(size=3)))
        for i in range(n)
    ]  # fmt: skip
    names = ['world', *(b.name for b in bodies)]
    joints = [
        Joint(
            k, k, names[i], names[i + 1], at=tuple(rng.normal(size=3)), axis=tuple(rng.normal(size=3)),
            at_second=tuple(rng.normal(size=3)) if k in ('distance', 'rolling') else None,
            lower=-1.0 if k == 'hinge' else -np.inf, upper=1.0 if k == 'hinge' else np.inf,
        )
        for i, k in enumerate(KINDS)
    ]  # fmt: skip
    contacts = [
        Contact('plane', 'b0', 'b3', (1, 0, 0), 0.1, (0, 1, 0), (0, 0.6, 0.8)),
        Contact('ball', 'b1', 'world', (0, 1, 0), 0.1, (0, 0, 1), radius_second=0.2),
    ]
    model = multibody(bodies, joints, contacts)
    pose = jnp.asarray(np.stack([np.r_[rng.normal(size=3), _quaternion(rng)] for _ in range(n)]))
    return model, pose


def tangent_jacobian(f, pose):
    """Jacobian of f by autodiff along boxplus; (m, 6 nb)."""
    n = pose.shape[0]
    return jax.jit(jax.jacfwd(lambda d: f(quaternion.boxplus(pose, d.reshape(n, 6)))))(jnp.zeros(6 * n))


def test_joints_are_satisfied_where_they_were_drawn(zoo):
    model, _ = zoo
    assert np.abs(constraint_values(model, model.reference)).max() < 1e-14
    assert len(model.rows) == sum(len(KINDS[k][0]) for k in KINDS)


def test_constraint_jacobians_of_every_kind_agree_with_autodiff(zoo):
    model, pose = zoo
    G = dense(constraint_rows(model, pose)[1], len(model.bodies))
    np.testing.assert_allclose(G, tangent_jacobian(lambda q: constraint_values(model, q), pose), atol=1e-13)


def test_speeds_of_axes_are_the_rates_of_their_coordinates_on_the_constraints(zoo):
    model, _ = zoo
    keep = [i for i, (j, _) in enumerate(model.axes) if model.kinds[j] not in ('rolling', 'ball')]
    rng = np.random.default_rng(3)
    x = jnp.asarray(rng.uniform(-1, 1, len(model.axes)))
    dx = jnp.asarray(rng.normal(size=len(model.axes)))
    pose, h = place(model, x), 1e-6
    ahead, behind = place(model, x + h * dx), place(model, x - h * dx)
    V = (quaternion.boxminus(ahead, pose) - quaternion.boxminus(behind, pose)) / (2 * h)
    np.testing.assert_allclose(np.asarray(speed(axis_rows(model, pose), V))[keep], np.asarray(dx)[keep], atol=1e-8)


def test_rows_of_contacts_and_limits_agree_with_autodiff(zoo):
    model, pose = zoo
    gap, normal, tangent = contact_rows(model, pose)
    n = len(model.bodies)
    np.testing.assert_allclose(dense(normal, n), tangent_jacobian(lambda q: contact_rows(model, q)[0], pose), atol=1e-13)
    far, rows = limit_rows(model, pose)
    assert far.shape == (2,) and gap.shape == (2,)
    # directions are orthonormal: the linear parts of normal and tangents
    N, T = np.stack(normal.linear), np.stack(tangent.linear).reshape(3, 2, 2)
    for k in range(2):
        frame = np.stack([N[:, k], T[:, 0, k], T[:, 1, k]])
        np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-13)


def test_placed_poses_have_the_coordinates_asked_for(zoo):
    model, _ = zoo
    rng = np.random.default_rng(1)
    keep = [i for i, (j, _) in enumerate(model.axes) if model.kinds[j] != 'rolling']
    x = jnp.asarray(rng.uniform(-1, 1, (len(model.axes), 5)))
    pose = place(model, x)
    np.testing.assert_allclose(np.asarray(axis_coordinates(model, pose))[keep], np.asarray(x)[keep], atol=1e-12)
    locked = [i for i, (j, _) in enumerate(model.rows) if model.kinds[j] not in ('rolling', 'distance')]
    assert np.abs(np.asarray(constraint_values(model, pose))[locked]).max() < 1e-12


def test_projection_reaches_the_constraints_also_of_a_loop():
    model = mechanisms.four_bar()
    rng = np.random.default_rng(0)
    pose = quaternion.boxplus(model.reference, jnp.asarray(0.02 * rng.normal(size=(3, 6))))
    state = project(model, State(pose, jnp.asarray(rng.normal(size=(3, 6)))))
    assert np.abs(constraint_values(model, state.pose)).max() < 1e-12
    assert np.abs(speed(constraint_rows(model, state.pose)[1], state.velocity)).max() < 1e-9
    moved = np.abs(np.asarray(quaternion.boxminus(state.pose, pose))).max()
    assert 0 < moved < 0.1


def test_mass_and_its_inverse(zoo):
    model, _ = zoo
    V = jnp.asarray(np.random.default_rng(2).normal(size=(len(model.bodies), 6, 3)))
    np.testing.assert_allclose(per_mass(model, times_mass(model, V)), V, atol=1e-12)
    M = np.asarray(mass_matrix(model))
    np.testing.assert_allclose(M, M.T)
    assert np.linalg.eigvalsh(M).min() > 0 and inverse_mass(model)[1].shape == (len(model.bodies), 6)


def test_pick_equals_indexing():
    x = jnp.arange(40.0).reshape(20, 2)
    for index in (
        [3],
        [],
        [0, 0, 0, 5, 5],
        [1, 3, 5, 7, 2, 4],
        [9, 8, 7],
        list(range(20)),
        list(np.random.default_rng(0).integers(0, 20, 30)),
    ):
        np.testing.assert_array_equal(pick(x, index), np.asarray(x)[np.asarray(index, dtype=int)])


GOOD = Body('rod', 0.3, (4e-3, 4e-3, 1e-5))
HINGE = Joint('pivot', 'hinge', 'world', 'rod')


@pytest.mark.parametrize(
    ('bodies', 'joints', 'contacts', 'message'),
    [
        ([dataclasses.replace(GOOD, mass=0.0)], [], [], "Body 'rod': mass is 0.0"),
        ([dataclasses.replace(GOOD, mass=-1.0)], [], [], "Body 'rod': mass is -1.0"),
        ([dataclasses.replace(GOOD, mass=float('nan'))], [], [], "Body 'rod': mass is nan"),
        ([dataclasses.replace(GOOD, inertia=(1e-3, 1e-3, 3e-3))], [], [], "Body 'rod'.*triangle inequality"),
        ([dataclasses.replace(GOOD, inertia=(1e-3, 1e-3, -1e-3))], [], [], "Body 'rod'.*positive definite"),
        ([dataclasses.replace(GOOD, inertia=(1e-3, np.nan, 1e-3))], [], [], "Body 'rod'.*finite"),
        ([dataclasses.replace(GOOD, orientation=(1, 1, 0, 0))], [], [], "Body 'rod'.*unit quaternion"),
        ([dataclasses.replace(GOOD, position=(np.inf, 0, 0))], [], [], "Body 'rod'.*finite"),
        ([GOOD, GOOD], [], [], "Body name 'rod' is taken"),
        ([GOOD], [dataclasses.replace(HINGE, second='rid')], [], "Joint 'pivot' names the body 'rid'.*Did you mean 'rod'"),
        ([GOOD], [dataclasses.replace(HINGE, kind='hing')], [], "Joint 'pivot'.*'hing'.*'hinge'"),
        ([GOOD], [dataclasses.replace(HINGE, second='world')], [], "Joint 'pivot' joins 'world' to itself"),
        ([GOOD], [HINGE, HINGE], [], "Joint name 'pivot' is taken"),
        ([GOOD], [dataclasses.replace(HINGE, axis=(0, 0, 0))], [], "Joint 'pivot'.*axis"),
        ([GOOD], [dataclasses.replace(HINGE, at=(np.nan, 0, 0))], [], "Joint 'pivot'.*finite"),
        ([GOOD], [dataclasses.replace(HINGE, compliance=-1e-8)], [], "Joint 'pivot': compliance"),
        ([GOOD], [dataclasses.replace(HINGE, viscous=-1.0)], [], "Joint 'pivot': viscous is -1"),
        ([GOOD], [dataclasses.replace(HINGE, coulomb=np.inf)], [], "Joint 'pivot': coulomb is inf"),
        ([GOOD], [dataclasses.replace(HINGE, creep=0.0)], [], "Joint 'pivot': creep"),
        ([GOOD], [dataclasses.replace(HINGE, lower=1.0, upper=0.0)], [], "Joint 'pivot': its lower limit"),
        ([GOOD], [dataclasses.replace(HINGE, gain=np.nan)], [], "Joint 'pivot': gain"),
        ([GOOD], [], [Contact('foot', 'rod', 'floor', (0, 0, 0))], "Contact 'foot' names the body 'floor'"),
        ([GOOD], [], [Contact('foot', 'rod', 'world', (0, 0, 0), friction=-1)], "Contact 'foot'"),
    ],
)  # fmt: skip
def test_bad_mechanisms_are_refused_by_name_and_rule(bodies, joints, contacts, message):
    with pytest.raises(EstimationError, match=message):
        multibody(bodies, joints, contacts)


def test_bad_states_steps_and_inputs_are_refused():
    model = mechanisms.pendulum(gain=1.0)
    rest = model.rest_state()
    with pytest.raises(EstimationError, match="velocity of body 'rod0' is not finite"):
        simulate(model, State(rest.pose, rest.velocity.at[0, 2].set(jnp.nan)), None, 10)
    with pytest.raises(EstimationError, match="quaternion of body 'rod0'"):
        model.state(rest.pose.at[0, 3].set(2.0), rest.velocity)
    with pytest.raises(EstimationError, match='shape'):
        model.state(rest.pose[:, :6], rest.velocity)
    for h in (0.0, -1e-3, float('nan')):
        with pytest.raises(EstimationError, match='time_step is'):
            simulate(model, rest, None, 10, time_step=h)
    with pytest.raises(EstimationError, match='steps is 0'):
        simulate(model, rest, None, 0)
    with pytest.raises(EstimationError, match='1 motors'):
        simulate(model, rest, np.zeros(3), 10)
    with pytest.raises(EstimationError, match='Input 0 is not finite at step 4'):
        simulate(model, rest, np.where(np.arange(10) == 4, np.nan, 0.0)[None], 10)
    with pytest.raises(EstimationError, match="no number 'arm.mas'"):
        mechanisms.furuta({'arm.mas': 1.0})


def test_a_massless_moving_link_is_refused_by_the_conversion():
    from multibody_estimation import tree

    links = [tree.Link('base'), tree.Link('ghost'), tree.Link('tip', 1.0, (0, 0, 0.1), (1e-2,) * 3)]
    joints = [tree.Joint('a', 'base', 'ghost'), tree.Joint('b', 'ghost', 'tip', axis=(0, 1, 0))]
    with pytest.raises(EstimationError, match="Link 'ghost'.*no mass"):
        from_tree(tree.build(links, joints))
