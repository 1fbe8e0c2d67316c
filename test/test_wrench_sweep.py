# SPDX-License-Identifier: Apache-2.0
"""The sweep against dense algebra: mean, covariances, evidence, missing sensors, hard equations, all kinds of sensors and joints."""

import dataclasses

import numpy as np
import pytest

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels import available
from multibody_estimation.kernels.wrench_sweep import sweep, sweep_twin
from multibody_estimation.tree import Joint, Link, build
from multibody_estimation.wrench import Prior, SubMass, WrenchSensor, WrenchSetup, compile_wrench, log_evidence, observe, solve
from multibody_estimation.wrench.dense import dense_posterior, draw_samples
from multibody_estimation.wrench.equations import Dynamics, flatten, matrices, shape


def spd(rng, size, scale):
    """A dense covariance with standard deviations of about ``scale``."""
    A = rng.normal(size=(size, size))
    return scale**2 * (A @ A.T / size + 0.3 * np.eye(size))


def robot(floating=True):
    """Six links: revolute, prismatic and fixed joints with slanted axes, two branches."""
    rng = np.random.default_rng(3)
    links = [Link('base', 3.0, (0.0, 0.01, 0.02), (0.02, 0.03, 0.02))]
    joints = []
    parents, kinds = ['base', 'l0', 'l1', 'base', 'l3'], ['revolute', 'prismatic', 'revolute', 'fixed', 'revolute']
    for i, (parent, kind) in enumerate(zip(parents, kinds)):
        links.append(Link(f'l{i}', 1.0 + 0.3 * i, tuple(0.05 * rng.normal(size=3)), (0.01, 0.012, 0.009)))
        joints.append(
            Joint(
                f'j{i}',
                parent,
                f'l{i}',
                kind,
                tuple(rng.normal(size=3)),
                tuple(0.2 * rng.normal(size=3)),
                tuple(rng.normal(size=3)),
            )
        )
    return build(links, joints, floating=floating)


def setup(rng, **more):
    """Every type of sensor, dense covariances, offsets; a force/torque sensor in a fixed joint and one inside a link."""
    frame = lambda: {'position': tuple(0.05 * rng.normal(size=3)), 'rpy': tuple(rng.normal(size=3))}  # noqa: E731
    sensors = [
        WrenchSensor(f'acc_{x}', 'accelerometer', x, spd(rng, 3, 0.1), offset=0.1 * rng.normal(size=3), **frame())
        for x in ('base', 'l0', 'l2', 'l4')
    ]
    sensors += [
        WrenchSensor('ang', 'angular_accelerometer', 'l1', spd(rng, 3, 0.3), **frame()),
        WrenchSensor('gyr', 'gyroscope', 'l2', 0.02, **frame()),
        WrenchSensor('ft', 'force_torque', 'j3', spd(rng, 6, 0.4), offset=rng.normal(size=6), acts_on='base', **frame()),
        WrenchSensor('inside', 'force_torque', 'l0', spd(rng, 6, 0.4), sub_mass=SubMass(0.4, (0.01, 0.0, 0.02), (1e-3, 1e-3, 2e-3)), **frame()),
        WrenchSensor('skin', 'skin', 'l4', 0.3, normal=(1.0, 2.0, 0.5), **frame()),
        WrenchSensor('touch', 'external_wrench', 'l2', spd(rng, 6, 0.5), **frame()),
        WrenchSensor('tau0', 'joint_torque', 'j0', 0.2), WrenchSensor('tau1', 'joint_torque', 'j1', 0.2),
        WrenchSensor('tau4', 'joint_torque', 'j4', 0.2), WrenchSensor('ddq1', 'joint_acceleration', 'j1', 0.3, offset=0.2),
        WrenchSensor('ddq4', 'joint_acceleration', 'j4', 0.3),
    ]  # fmt: skip
    options = {
        'contacts': {'l4': Prior(spd(rng, 6, 5.0), rng.normal(size=6)), 'base': Prior(20.0)}, 'contact_free': Prior(0.05),
        'equation_noise': {'*': 0.2, 'l1': spd(rng, 6, 0.1)}, 'motion_noise': {'*': 0.05, 'l2': spd(rng, 6, 0.05)},
        'joint_acceleration': {'*': Prior(3.0, 0.3)},
    }  # fmt: skip
    return WrenchSetup(tuple(sensors), **(options | more))


def states(rng, count, n=4):
    return 0.5 * rng.normal(size=(count, n)), rng.normal(size=(count, n)), rng.normal(size=(count, 3))


def flat(program, found, k=0):
    d = Dynamics(found.accelerations[k], found.external_wrenches[k], found.joint_wrenches[k], found.joint_accelerations[k])
    return np.asarray(flatten(shape(program), d))


def where(program, quantity, of):
    """Place of a block in the dense vector."""
    nl, base = len(program.link_names), shape(program).base
    if quantity == 'joint_acceleration':
        at = 18 * nl - 6 + program.joint_names.index(of)
        return slice(at, at + 1)
    k = program.link_names.index(of)
    at = {'acceleration': 6 * k, 'external_wrench': 6 * nl + 6 * k, 'joint_wrench': 12 * nl + 6 * (k - (k > base))}[quantity]
    return slice(at, at + 6)


CASES = {
    'floating': (True, {}),
    'other base': (True, {'base': 'l4'}),
    'fixed base': (False, {}),
    'priors on everything': (
        True,
        {
            'acceleration': {'*': Prior(30.0, 1.0)},
            'joint_wrench': {'*': Prior(60.0), 'l1': Prior(np.diag([900.0] * 6) + 50.0, 2.0)},
        },
    ),
}


@pytest.fixture(scope='module', params=CASES, ids=list(CASES))
def problem(request):
    return make(request.param)


@pytest.fixture(scope='module')
def one():
    return make('priors on everything')


def make(case):
    floating, more = CASES[case]
    rng = np.random.default_rng(5)
    model = robot(floating)
    given = setup(rng, **more)
    if case == 'other base':  # the frame of a sensor in a turned, moving joint cannot be used
        given = given.replace(sensors=tuple(s for s in given.sensors if s.name != 'inside'))
    program = compile_wrench(model, given)
    q, dq, om = states(rng, 11)
    om = om if floating else 0 * om
    _, y = draw_samples(program, q, dq, om, seed=1)
    return program, q, dq, om, y


def test_mean_and_every_marginal_covariance_equal_dense_qr(problem):
    program, q, dq, om, y = problem
    blocks = [(x, link) for link in program.link_names for x in ('external_wrench', 'acceleration', 'joint_wrench')]
    base = program.link_names[shape(program).base]
    blocks = [b for b in blocks if b != ('joint_wrench', base)] + [('joint_acceleration', j) for j in program.joint_names]
    found = solve(program, q, dq, om, y, blocks=blocks)
    for k in (0, 10):
        mean, C, _ = dense_posterior(program, q[k], dq[k], om[k], y[k])
        assert np.abs(flat(program, found, k) - mean).max() < 1e-10 * max(1.0, np.abs(mean).max())
        for quantity, of in blocks:
            at = where(program, quantity, of)
            dense = C[at, at]
            assert np.abs(found.covariance(quantity, of)[k] - dense).max() < 1e-8 * np.abs(dense).max() + 1e-14, (quantity, of)


def test_missing_sensors_are_left_out_sample_by_sample(problem):
    program, q, dq, om, y = problem
    rng = np.random.default_rng(2)
    gone = rng.uniform(size=(len(y), len(program.terms))) < 0.4
    torn = y.copy()
    for s, x in enumerate(program.terms):
        torn[gone[:, s], x.row] = np.nan
    torn[3] = np.nan  # nothing at all: the prior
    found = solve(program, q, dq, om, torn, blocks=[('external_wrench', 'l4')])
    evidence = log_evidence(program, q, dq, om, torn)
    for k in (0, 3, 9):
        weights = ~gone[k] if k != 3 else np.zeros(len(program.terms))
        mean, C, logp = dense_posterior(program, q[k], dq[k], om[k], np.nan_to_num(torn[k]), weights)
        assert np.abs(flat(program, found, k) - mean).max() < 1e-9 * max(1.0, np.abs(mean).max())
        at = where(program, 'external_wrench', 'l4')
        np.testing.assert_allclose(found.covariance('external_wrench', 'l4')[k], C[at, at], rtol=1e-7, atol=1e-9)
        assert evidence[k] == pytest.approx(logp, rel=1e-8, abs=1e-6)


def test_log_evidence_is_the_density_of_the_measurements(problem):
    program, q, dq, om, y = problem
    gyro = next(x for x in program.terms if x.target == 'velocity')
    evidence = log_evidence(program, q, dq, om, y)
    for k in (0, 7):
        assert evidence[k] == pytest.approx(dense_posterior(program, q[k], dq[k], om[k], y[k])[2], rel=1e-9)
    assert gyro.sensor.name == 'gyr'  # part of the evidence, though no part of d


def test_joint_torque_is_what_the_joint_transmits_along_its_axis(problem):
    program, q, dq, om, y = problem
    found = solve(
        program,
        q,
        dq,
        om,
        y,
        blocks=[
            ('joint_torque', 'j1'),
            ('joint_wrench', program.link_names[program.nodes.nodes[program.nodes.of_joint[1]].link]),
        ],
    )
    node = program.nodes.of_joint[1]
    S, link = program.nodes.nodes[node].motion, program.nodes.nodes[node].link
    np.testing.assert_allclose(found.joint_torques[:, 1], found.joint_wrenches[:, link] @ S, atol=1e-12)
    C = found.covariance(*found.blocks[1])
    np.testing.assert_allclose(found.covariance('joint_torque', 'j1')[:, 0, 0], np.einsum('a,nab,b->n', S, C, S), rtol=1e-12)


def test_exact_equations_are_kept_exactly():
    rng = np.random.default_rng(8)
    program = compile_wrench(robot(), setup(rng, equation_noise={'*': 0.0}, motion_noise={'*': 0.0}))
    q, dq, om = states(rng, 3)
    _, y = draw_samples(program, q, dq, om, seed=4)
    found = solve(program, q, dq, om, y)
    D, bD, Y, bY = matrices(program, q[0], dq[0], om[0])
    d = flat(program, found)
    assert np.abs(D @ d + bD).max() < 1e-11 * np.abs(d).max()
    # Optimality system of the constrained problem, dense.
    from multibody_estimation.wrench.dense import covariances, prior_rows

    U, u = prior_rows(program)
    W = np.linalg.inv(covariances(program)[1])
    H = Y.T @ W @ Y + U.T @ U
    g = Y.T @ W @ (y[0] - bY) + U.T @ u
    size, m = H.shape[0], len(D)
    K = np.block([[H, D.T], [D, np.zeros((m, m))]])
    dense = np.linalg.solve(K, np.concatenate([g, -bD]))[:size]
    assert np.abs(d - dense).max() < 1e-8 * np.abs(dense).max()


def test_exact_data_give_exact_dynamics_for_any_full_rank_set_of_sensors():
    rng = np.random.default_rng(11)
    model = robot()
    full = setup(
        rng,
        contacts={'l4': Prior(1e2), 'base': Prior(1e2)},
        contact_free=Prior(1e-4),
        equation_noise={'*': 0.0},
        motion_noise={'*': 0.0},
        joint_acceleration={'*': Prior(1e2)},
    )
    for kept in (
        ('acc_base', 'acc_l0', 'acc_l2', 'acc_l4', 'ang', 'ft', 'inside', 'tau0', 'tau1', 'tau4', 'ddq1', 'ddq4'),
        tuple(s.name for s in full.sensors),
    ):
        sensors = tuple(dataclasses.replace(s, noise=1e-3) for s in full.sensors if s.name in kept)
        program = compile_wrench(model, full.replace(sensors=sensors))
        q, dq, om = states(rng, 2)
        exact = compile_wrench(
            model,
            full.replace(
                sensors=sensors,
                contacts={'l4': Prior(5.0), 'base': Prior(5.0)},
                contact_free=Prior(0.0),
                joint_acceleration={'*': Prior(3.0)},
            ),
        )
        d, _ = draw_samples(exact, q, dq, om, seed=6)
        y = np.array(
            [matrices(program, q[k], dq[k], om[k])[2] @ d[k] + matrices(program, q[k], dq[k], om[k])[3] for k in range(2)]
        )
        assert observe(program).complete
        found = solve(program, q, dq, om, y)
        for k in range(2):
            assert np.abs(flat(program, found, k) - d[k]).max() < 1e-7 * np.abs(d[k]).max(), kept


@pytest.mark.skipif(not available('wrench_sweep'), reason='kernels were not built')
def test_kernel_and_twin_agree_to_rounding(one):
    program, q, dq, om, y = one
    rng = np.random.default_rng(0)
    extra = rng.normal(size=(len(q), len(program.layout.parent), 19))
    select = tuple((i, k) for i in range(len(program.layout.parent)) for k in range(6))
    for weights in (None, (rng.uniform(size=(len(q), len(program.terms))) > 0.3).astype(float)):
        a = jax.jit(lambda *x: sweep(program.layout, *x, select=select, multipliers=True))(
            program.table, q, dq, om, y, weights, extra
        )
        b = jax.jit(lambda *x: sweep_twin(program.layout, *x, select=select, multipliers=True, chunk=4))(
            program.table, q, dq, om, y, weights, extra
        )
        for name, x, z in zip(a._fields, a, b):
            scale = np.abs(np.asarray(z)).max() or 1.0
            assert np.abs(np.asarray(x) - np.asarray(z)).max() < 1e-10 * scale, name


def test_derivatives_of_the_estimate_match_finite_differences(one):
    program, q, dq, om, y = one

    @jax.jit
    def sum_of(q, dq, om, y):
        out = sweep(program.layout, program.table, q, dq, om, y)
        return (out.external**2).sum() + out.transmitted.sum() + out.log_determinant.sum()

    point = tuple(jnp.asarray(x[:2]) for x in (q, dq, om, y))
    gradient = jax.jit(jax.grad(sum_of, argnums=(0, 1, 2, 3)))(*point)
    rng = np.random.default_rng(1)
    way = tuple(rng.normal(size=x.shape) for x in point)
    h = 1e-6
    ahead, behind = (sum_of(*(x + s * h * w for x, w in zip(point, way))) for s in (1, -1))
    along = sum((np.asarray(g) * w).sum() for g, w in zip(gradient, way))
    assert along == pytest.approx(float(ahead - behind) / (2 * h), rel=1e-5)
