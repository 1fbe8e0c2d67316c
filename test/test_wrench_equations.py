# SPDX-License-Identifier: Apache-2.0
"""D d + bD = 0 at exact solutions for any base link, and the same estimate as iDynTree where that is right."""

import sys
from pathlib import Path

import numpy as np
import pytest

from multibody_estimation.tree import load_urdf
from multibody_estimation.wrench import Prior, WrenchSensor, WrenchSetup, compile_wrench, solve
from multibody_estimation.wrench.equations import Dynamics, residuals, shape

pin = pytest.importorskip('pinocchio')
icub_models = pytest.importorskip('icub_models')


def random_urdf(seed):
    """Seven links with mass on revolute, prismatic and fixed joints, axes slanted and away from the links' centres; one mere frame."""
    rng = np.random.default_rng(seed)
    row = lambda x: ' '.join(f'{v:.12g}' for v in x)  # noqa: E731
    kinds = ['revolute', 'prismatic', 'fixed', 'revolute', 'prismatic', 'revolute']
    parents = [0, 1, 2, 1, 0, 5]
    parts = []
    for i in range(7):
        A = rng.normal(size=(3, 3))
        I = 0.01 * (np.trace(A @ A.T) * np.eye(3) - A @ A.T)
        parts.append(
            f'<link name="l{i}"><inertial><origin xyz="{row(0.1 * rng.normal(size=3))}"/><mass value="{1 + rng.uniform():.6f}"/><inertia '
            f'ixx="{I[0, 0]:.12g}" ixy="{I[0, 1]:.12g}" ixz="{I[0, 2]:.12g}" iyy="{I[1, 1]:.12g}" iyz="{I[1, 2]:.12g}" izz="{I[2, 2]:.12g}"/></inertial></link>'
        )
    parts.append('<link name="tip"/>')
    joints = [
        *((f'j{i}', kind, f'l{parents[i]}', f'l{i + 1}') for i, kind in enumerate(kinds)),
        ('tip_joint', 'fixed', 'l6', 'tip'),
    ]
    for name, kind, parent, child in joints:
        axis = rng.normal(size=3)
        parts.append(
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/><origin xyz="{row(0.3 * rng.normal(size=3))}" '
            f'rpy="{row(rng.normal(size=3))}"/><axis xyz="{row(axis / np.linalg.norm(axis))}"/><limit effort="1" velocity="1" lower="-9" upper="9"/></joint>'
        )
    return f'<robot name="random">{"".join(parts)}</robot>'


def exact(urdf, model, program, seed):
    """State and dynamics that pinocchio's kinematics and Newton's and Euler's laws in the world give, with random forces on all links."""
    rng = np.random.default_rng(seed)
    robot = pin.buildModelFromXML(urdf, pin.JointModelFreeFlyer())
    data = robot.createData()
    q = pin.integrate(robot, pin.neutral(robot), rng.normal(size=robot.nv))
    v, a = rng.normal(size=robot.nv), rng.normal(size=robot.nv)
    pin.forwardKinematics(robot, data, q, v, a)
    pin.updateFramePlacements(robot, data)
    gravity = robot.gravity.linear
    names = program.link_names
    pose, spin, proper, net, external = {}, {}, {}, {}, {}
    for name in names:
        k = robot.getFrameId(name)
        M = data.oMf[k]
        R, p = M.rotation, M.translation
        V = pin.getFrameVelocity(robot, data, k, pin.LOCAL_WORLD_ALIGNED)
        A = pin.getFrameClassicalAcceleration(robot, data, k, pin.LOCAL_WORLD_ALIGNED)
        w, al = V.angular, A.angular
        proper[name] = np.concatenate([R.T @ (A.linear - gravity), R.T @ al])
        i = model.link_index(name)
        c = R @ np.asarray(model.center_of_mass[i])
        I = R @ np.asarray(model.inertia[i]) @ R.T
        at_center = A.linear + np.cross(al, c) + np.cross(w, np.cross(w, c))
        force = float(model.mass[i]) * (at_center - gravity)
        moment = I @ al + np.cross(w, I @ w) + np.cross(c, force)
        pose[name], spin[name], net[name] = (R, p), R.T @ w, (force, moment)
        external[name] = rng.normal(size=6)
    of = {name: k for k, name in enumerate(names)}
    parent = dict.fromkeys(names)
    for node in program.nodes.nodes:
        if node.parent >= 0 and not node.outer:
            parent[names[node.link]] = names[program.nodes.nodes[node.parent].link]
    base = names[shape(program).base]
    # The base's external wrench is what balances all others.
    carried = {}

    def world(name):
        R, p = pose[name]
        force = R @ external[name][:3]
        return force, R @ external[name][3:]

    below = {name: [] for name in names}
    for name in names:
        at = name
        while at is not None:
            below[at].append(name)
            at = parent[at]
    for top in names:
        R, p = pose[top]
        force, moment = np.zeros(3), np.zeros(3)
        for name in below[top]:
            if top == base and name == base:
                f, m = net[name]
            else:
                f, m = net[name][0] - world(name)[0], net[name][1] - world(name)[1]
            force, moment = force + f, moment + m + np.cross(pose[name][1] - p, f)
        carried[top] = np.concatenate([R.T @ force, R.T @ moment])
    external[base] = carried.pop(base)
    d = Dynamics(
        np.array([proper[x] for x in names]), np.array([external[x] for x in names]),
        np.array([carried.get(x, np.zeros(6)) for x in names]), np.array([a[robot.joints[robot.getJointId(j)].idx_v] for j in program.joint_names]),
    )  # fmt: skip
    q1 = np.array([q[robot.joints[robot.getJointId(j)].idx_q] for j in program.joint_names])
    v1 = np.array([v[robot.joints[robot.getJointId(j)].idx_v] for j in program.joint_names])
    return q1, v1, spin[base], d, (data, robot, q, v, a), of


@pytest.mark.parametrize('base', ['l0', 'l4', 'l6', 'l3'])
def test_equations_hold_at_newton_euler_solutions_for_any_base(base):
    urdf = random_urdf(1)
    model = load_urdf(urdf, floating=True)
    program = compile_wrench(model, WrenchSetup((), base=base))
    assert 'tip' not in program.link_names
    for seed in range(3):
        q, v, w, d, *_ = exact(urdf, model, program, seed)
        r = residuals(program, d, q, v, w)
        scale = np.abs(d.transmitted).max()
        assert np.abs(np.asarray(r.motion)).max() < 1e-12 * max(np.abs(d.acceleration).max(), 1.0)
        assert np.abs(np.asarray(r.equation)).max() < 1e-12 * scale


@pytest.mark.parametrize('base', ['root_link', 'l_foot', 'head', 'chest'])
def test_equations_hold_for_the_icub_where_the_reference_library_has_a_wrong_bias(base):
    path = icub_models.get_model_file('iCubGazeboV2_7')
    model = load_urdf(path, floating=True)
    program = compile_wrench(model, WrenchSetup((), base=base))
    assert len(program.link_names) == 39 and len(program.joint_names) == 32
    q, v, w, d, *_ = exact(Path(path).read_text(), model, program, 5)
    r = residuals(program, d, q, v, w)
    assert np.abs(np.asarray(r.motion)).max() < 1e-12 * np.abs(d.acceleration).max()
    assert np.abs(np.asarray(r.equation)).max() < 1e-12 * np.abs(d.transmitted).max()


def test_joint_torques_of_a_turned_tree_equal_those_of_inverse_dynamics():
    urdf = random_urdf(2)
    model = load_urdf(urdf, floating=True)
    for base in ('l0', 'l4'):
        program = compile_wrench(model, WrenchSetup((), base=base))
        q, v, w, d, (data, robot, qf, vf, af), of = exact(urdf, model, program, 7)
        forces = pin.StdVec_Force()
        for _ in range(robot.njoints):
            forces.append(pin.Force.Zero())
        for name in program.link_names:
            frame = robot.frames[robot.getFrameId(name)]
            forces[frame.parentJoint] += frame.placement.act(pin.Force(d.external[of[name]]))
        tau = pin.rnea(robot, data, qf, vf, af, forces)
        assert np.abs(tau[:6]).max() < 1e-10  # the base's wrench balances the rest
        for j, name in enumerate(program.joint_names):
            node = program.nodes.nodes[program.nodes.of_joint[j]]
            assert node.motion @ d.transmitted[node.link] == pytest.approx(
                tau[robot.joints[robot.getJointId(name)].idx_v], abs=1e-10
            )


@pytest.fixture(scope='module')
def berdy():
    pytest.importorskip('idyntree')
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks.icub_map import Berdy

    return Berdy(str(icub_models.get_model_file('iCubGazeboV2_7')))


def test_estimate_equals_that_of_idyntree_on_the_icub(berdy):
    from benchmarks.icub_map import our_setup, our_vector

    model = load_urdf(icub_models.get_model_file('iCubGazeboV2_7'), floating=True, joints=berdy.joints)
    program = compile_wrench(model, our_setup(model, berdy, 1e-3, 1e-4, 1e4, 1e-4))
    assert (berdy.variables, berdy.equations, berdy.size) == (728, 462, 533)
    berdy.priors(np.full(462, 1e-4), np.full(728, 1e4), np.full(533, 1e-3), np.full(728, 1e-4))
    rng = np.random.default_rng(0)
    q, dq, w, y = (
        0.3 * rng.normal(size=(9, 32)),
        0.3 * rng.normal(size=(9, 32)),
        rng.normal(size=(9, 3)),
        rng.normal(size=(9, 533)),
    )
    found = solve(program, q, dq, w, y)
    for k in range(9):
        assert np.abs(our_vector(program, berdy, found, k) - berdy.solve(q[k], dq[k], w[k], y[k])).max() < 1e-10


def test_estimate_equals_that_of_idyntree_with_a_variance_for_every_number(berdy):
    from benchmarks.icub_map import our_setup, our_vector

    rng = np.random.default_rng(4)
    model = load_urdf(icub_models.get_model_file('iCubGazeboV2_7'), floating=True, joints=berdy.joints)
    plain = our_setup(model, berdy, 1e-3, 1e-4, 1e4)
    program = compile_wrench(model, plain)
    links, joints = program.link_names, program.joint_names
    draw = lambda low, high, n: 10 ** rng.uniform(low, high, n)  # noqa: E731
    variance = {name: draw(-4, 0, size) for name, _, _, size in berdy.sensors()}
    sensors = tuple(
        WrenchSensor(
            s.name, s.type, s.on, np.sqrt(variance[s.name]), s.position, s.rpy, frame_link=s.frame_link, acts_on=s.acts_on
        )
        for s in plain.sensors
    )
    prior = {
        kind: {name: (draw(2, 4, n), 0.1 * rng.normal(size=n)) for name in names}
        for kind, names, n in (('a', links, 6), ('x', links, 6), ('f', links, 6), ('q', joints, 1))
    }
    as_prior = lambda kind: {name: Prior(np.sqrt(v), m) for name, (v, m) in prior[kind].items()}  # noqa: E731
    equal = 1e-4
    setup = plain.replace(
        sensors=sensors,
        contacts=as_prior('x'),
        acceleration=as_prior('a'),
        joint_wrench=as_prior('f'),
        joint_acceleration=as_prior('q'),
    )
    program = compile_wrench(model, setup)
    variables, mean = np.zeros(728), np.zeros(728)
    child = {name: links[i] for i, name in enumerate(program.nodes.joint_names) if name}
    for kind, name, at in berdy.variable_rows():
        v, m = prior[{6: 'a', 4: 'x', 2: 'f', 5: 'q'}[kind]][child[name] if kind == 2 else name]
        variables[at : at + len(v)], mean[at : at + len(v)] = v, m
    measured = np.concatenate([variance[name] for name, *_ in berdy.sensors()])
    berdy.priors(np.full(462, equal), variables, measured, mean)
    q, dq, w, y = (
        0.3 * rng.normal(size=(4, 32)),
        0.3 * rng.normal(size=(4, 32)),
        rng.normal(size=(4, 3)),
        rng.normal(size=(4, 533)),
    )
    found = solve(program, q, dq, w, y)
    for k in range(4):
        assert np.abs(our_vector(program, berdy, found, k) - berdy.solve(q[k], dq[k], w[k], y[k])).max() < 1e-10
