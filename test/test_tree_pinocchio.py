# SPDX-License-Identifier: Apache-2.0
"""Tree algorithms against pinocchio, an independent library: random trees, a 7-joint arm and the iCub, to 1e-10."""

import os

import numpy as np
import pytest

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp

pin = pytest.importorskip('pinocchio')

TOLERANCE = 1e-10
SKELETONS, DRAWS = 6, 9  # topologies (each compiles once, for both bases) x numbers: 54 random trees


# ---------------------------------------------------------------------------------------------------------------- the two worlds


class Pair:
    """A model of ours and one of pinocchio's, with the maps between their vectors."""

    def __init__(self, ours, theirs, frames):
        # What does not move is no part of pinocchio's centre of mass and momentum, but is of ours: it is made massless here.
        moved = np.array([theirs.frames[frames[n]].parentJoint > 0 for n in ours.link_names])
        ours = ours.replace(mass=ours.mass * moved)
        self.ours, self.theirs, self.data, self.frames = ours, theirs, theirs.createData(), frames
        q_map, v_map = [], []  # places in pinocchio's vectors of our entries; its quaternions are (x, y, z, w)
        joints = ([1] if ours.floating else []) + [theirs.getJointId(n) for n in ours.joint_names]
        for j in joints:
            joint = theirs.joints[j]
            q = list(range(joint.idx_q, joint.idx_q + joint.nq))
            if joint.nq == 4:
                q = [q[3], *q[:3]]
            elif joint.nq == 7:
                q = [*q[:3], q[6], *q[3:6]]
            q_map += q
            v_map += range(joint.idx_v, joint.idx_v + joint.nv)
        self.q_map, self.v_map = np.array(q_map, int), np.array(v_map, int)

    def sample(self, rng):
        """Position, velocity, acceleration: pinocchio's first, then ours."""
        q = pin.integrate(self.theirs, pin.neutral(self.theirs), rng.normal(size=self.theirs.nv))
        v, a = rng.normal(size=(2, self.theirs.nv))
        return (q, v, a), (q[self.q_map], v[self.v_map], a[self.v_map])


def everything(model, q, v, a, tau, wrenches, step):
    """All algorithms of one sample, in one compiled program."""
    last = model.link_names[-1]
    R, p = tree.forward_kinematics(model, q)
    return {
        'rotations': R,
        'origins': p,
        'velocities': tree.velocities(model, q, v),
        'accelerations': tree.accelerations(model, q, v, a),
        'jacobian': tree.jacobian(model, q, last),
        'jacobian rate': tree.jacobian_rate_times_velocity(model, q, v, last),
        'inverse dynamics': tree.inverse_dynamics(model, q, v, a),
        'with wrenches': tree.inverse_dynamics(model, q, v, a, wrenches),
        'bias': tree.bias_forces(model, q, v),
        'gravity': tree.gravity_torques(model, q),
        'external': tree.external_forces(model, q, wrenches),
        'mass matrix': tree.mass_matrix(model, q),
        'forward dynamics': tree.forward_dynamics(model, q, v, tau),
        'forward with wrenches': tree.forward_dynamics(model, q, v, tau, wrenches),
        'centre of mass': tree.center_of_mass(model, q),
        'centre velocity': tree.center_of_mass_velocity(model, q, v),
        'centre acceleration': tree.center_of_mass_acceleration(model, q, v, a),
        'centre jacobian': tree.center_of_mass_jacobian(model, q),
        'momentum': tree.centroidal_momentum(model, q, v),
        'momentum matrix': tree.centroidal_momentum_matrix(model, q),
        'momentum rate': tree.centroidal_momentum_rate(model, q, v, a),
        'advance': tree.advance(model, q, step),
        'difference': tree.difference(model, q, tree.advance(model, q, step)),
    }


run = jax.jit(everything)


def oracle(pair, q, v, a, tau, wrenches, step):
    """The same by pinocchio, in our order of joints and links."""
    m, d, back = pair.theirs, pair.data, np.ix_(pair.v_map, pair.v_map)
    ids = [pair.frames[n] for n in pair.ours.link_names]
    external = [pin.Force.Zero() for _ in range(m.njoints)]
    for frame, w in zip(ids, wrenches):
        external[m.frames[frame].parentJoint] += m.frames[frame].placement.act(pin.Force(w))
    pin.forwardKinematics(m, d, q, v, a)
    pin.updateFramePlacements(m, d)
    world, local = pin.LOCAL_WORLD_ALIGNED, pin.LOCAL
    out = {
        'rotations': np.array([d.oMf[i].rotation for i in ids]),
        'origins': np.array([d.oMf[i].translation for i in ids]),
        'velocities': np.array([pin.getFrameVelocity(m, d, i, local).vector for i in ids]),
        'accelerations': np.array([pin.getFrameClassicalAcceleration(m, d, i, local).vector for i in ids]),
        'jacobian': pin.computeFrameJacobian(m, d, q, ids[-1], world)[:, pair.v_map],
    }
    pin.forwardKinematics(m, d, q, v, 0 * a)
    out['jacobian rate'] = pin.getFrameClassicalAcceleration(m, d, ids[-1], world).vector.copy()
    out['inverse dynamics'] = pin.rnea(m, d, q, v, a)[pair.v_map]
    out['with wrenches'] = pin.rnea(m, d, q, v, a, external)[pair.v_map]
    out['bias'] = pin.nonLinearEffects(m, d, q, v)[pair.v_map]
    out['gravity'] = pin.computeGeneralizedGravity(m, d, q)[pair.v_map]
    out['external'] = out['inverse dynamics'] - out['with wrenches']
    M = np.triu(pin.crba(m, d, q))
    out['mass matrix'] = (M + np.triu(M, 1).T)[back]
    out['forward dynamics'] = pin.aba(m, d, q, v, tau)[pair.v_map]
    out['forward with wrenches'] = pin.aba(m, d, q, v, tau, external)[pair.v_map]
    pin.centerOfMass(m, d, q, v, a)
    out |= {'centre of mass': d.com[0].copy(), 'centre velocity': d.vcom[0].copy(), 'centre acceleration': d.acom[0].copy()}
    out['centre jacobian'] = pin.jacobianCenterOfMass(m, d, q)[:, pair.v_map]
    pin.computeCentroidalMomentumTimeVariation(m, d, q, v, a)
    out |= {'momentum': d.hg.vector.copy(), 'momentum rate': d.dhg.vector.copy()}
    out['momentum matrix'] = pin.ccrba(m, d, q, v)[:, pair.v_map].copy()
    out['advance'] = pin.integrate(m, q, step)[pair.q_map]
    out['difference'] = step[pair.v_map]
    return out


def compare(pair, rng, count=1):
    for _ in range(count):
        theirs, ours = pair.sample(rng)
        tau, wrenches = rng.normal(size=pair.theirs.nv), rng.normal(size=(len(pair.ours.link_names), 6))
        step = 0.7 * rng.normal(size=pair.theirs.nv)
        mine = run(pair.ours, *ours, tau[pair.v_map], wrenches, step[pair.v_map])
        for name, expected in oracle(pair, *theirs, tau, wrenches, step).items():
            got = np.asarray(mine[name])
            if name == 'advance':  # a quaternion and its negative are one rotation
                got = np.where(np.sign(got * expected) < 0, np.abs(got), got)
                expected = np.where(np.sign(np.asarray(mine[name]) * expected) < 0, np.abs(expected), expected)
            off = np.abs(got - expected).max() / max(1.0, np.abs(expected).max())
            assert off < TOLERANCE, f'{pair.ours}: {name} off by {off:.1e}'


# ------------------------------------------------------------------------------------------------------------------ random trees


def random_inertia(rng):
    """A body that exists: the second moments of mass are positive definite."""
    X = rng.normal(size=(3, 3)) * 0.2
    second = X @ X.T + 1e-3 * np.eye(3)
    return np.trace(second) * np.eye(3) - second


def skeleton(seed, joints=7):
    """Topology, kinds and names: what a compiled program depends on. Every tree has a slide and a fixed joint."""
    rng = np.random.default_rng(seed)
    kinds = list(rng.choice(['revolute', 'prismatic', 'continuous', 'spherical'], size=joints - 3)) + [
        'prismatic',
        'revolute',
        'fixed',
    ]
    rng.shuffle(kinds)
    if seed == 0:
        kinds[2] = 'floating'
    parents, path = [], [0]
    for i in range(joints):  # depth first, as pinocchio's mass matrix needs it
        path = path[: max(1, len(path) - int(rng.integers(0, 3)))]
        parents.append(path[-1])
        path.append(i + 1)
    moving = [f'joint{i}' for i, k in enumerate(kinds) if k != 'fixed']
    return [str(k) for k in kinds], parents, [str(n) for n in rng.permutation(moving)]


def random_pair(seed, draw, floating):
    """One tree in both worlds, put together part by part on either side."""
    kinds, parents, order = skeleton(seed)
    rng = np.random.default_rng([seed, draw])
    theirs, placed, frames = pin.Model(), {}, {}
    root = theirs.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), 'base') if floating else 0
    links, joints = [], []

    def attach(link, joint, placement):
        m, c, I = rng.uniform(0.2, 3), 0.3 * rng.normal(size=3), random_inertia(rng)
        theirs.appendBodyToJoint(joint, pin.Inertia(m, c, I), placement)
        frames[link] = theirs.addFrame(pin.Frame(link, joint, 0, placement, pin.FrameType.OP_FRAME))
        placed[link] = (joint, placement)
        links.append(tree.Link(link, m, tuple(c), I))

    attach('link0', root, pin.SE3.Identity())
    for i, (kind, parent) in enumerate(zip(kinds, parents)):
        axis, xyz, rpy = rng.normal(size=3), 0.4 * rng.normal(size=3), rng.uniform(-3, 3, size=3)
        axis /= np.linalg.norm(axis)
        where = pin.SE3(pin.rpy.rpyToMatrix(*rpy), xyz)
        on, offset = placed[f'link{parent}']
        armature = rng.uniform(0, 0.1)
        if kind == 'fixed':
            attach(f'link{i + 1}', on, offset * where)
        else:
            model = {
                'revolute': lambda axis=axis: pin.JointModelRevoluteUnaligned(axis),
                'continuous': lambda axis=axis: pin.JointModelRevoluteUnaligned(axis),
                'prismatic': lambda axis=axis: pin.JointModelPrismaticUnaligned(axis),
                'spherical': pin.JointModelSpherical,
                'floating': pin.JointModelFreeFlyer,
            }[kind]()
            j = theirs.addJoint(on, model, offset * where, f'joint{i}')
            rotor = theirs.armature.copy()
            rotor[theirs.joints[j].idx_v : theirs.joints[j].idx_v + theirs.joints[j].nv] = armature
            theirs.armature = rotor
            attach(f'link{i + 1}', j, pin.SE3.Identity())
        joints.append(
            tree.Joint(f'joint{i}', f'link{parent}', f'link{i + 1}', kind, tuple(axis), tuple(xyz), tuple(rpy), armature=armature)
        )
    gravity = rng.normal(size=3) * 6
    theirs.gravity = pin.Motion(gravity, np.zeros(3))
    ours = tree.build(links, joints, floating=floating, order=order, gravity=gravity)
    return Pair(ours, theirs, frames)


@pytest.mark.parametrize('floating', [False, True], ids=['fixed', 'floating'])
@pytest.mark.parametrize('seed', range(SKELETONS))
def test_random_trees_agree_in_all_algorithms(seed, floating):
    for draw in range(DRAWS):
        compare(random_pair(seed, draw, floating), np.random.default_rng(draw))


@pytest.mark.parametrize('floating', [False, True], ids=['fixed', 'floating'])
def test_regressor_agrees_link_by_link(floating):
    pair = random_pair(1, 0, floating)
    rng = np.random.default_rng(0)
    theirs, ours = pair.sample(rng)
    Y = np.asarray(jax.jit(tree.joint_torque_regressor)(pair.ours, *ours)).reshape(-1, len(pair.ours.link_names), 10)
    expected = pin.computeJointTorqueRegressor(pair.theirs, pair.data, *theirs)[pair.v_map].reshape(pair.theirs.nv, -1, 10)
    for link, frame in pair.frames.items():
        f = pair.theirs.frames[frame]
        if f.parentJoint and f.placement.isIdentity():  # the link whose frame is the joint's
            np.testing.assert_allclose(Y[:, pair.ours.link_index(link)], expected[:, f.parentJoint - 1], atol=1e-10)


# -------------------------------------------------------------------------------------------------------------------- real robots


def urdf_pair(path, floating, locked=()):
    theirs = pin.buildModelFromUrdf(path, pin.JointModelFreeFlyer()) if floating else pin.buildModelFromUrdf(path)
    if locked:
        theirs = pin.buildReducedModel(theirs, [theirs.getJointId(n) for n in locked], pin.neutral(theirs))
    names = list(theirs.names)[2 if floating else 1 :]
    ours = tree.load_urdf(path, floating=floating, joints=names[::-1])  # another order than the file's
    theirs.armature = 0 * theirs.armature
    return Pair(ours, theirs, {n: theirs.getFrameId(n, pin.FrameType.BODY) for n in ours.link_names})


def panda_path():
    prefix = os.path.join(os.path.dirname(pin.__file__), *['..'] * 4, 'share', 'example-robot-data', 'robots')
    path = os.path.normpath(os.path.join(prefix, 'panda_description', 'urdf', 'panda.urdf'))
    if not os.path.isfile(path):
        pytest.skip('example-robot-data is not installed')
    return path


def icub_path():
    return str(pytest.importorskip('icub_models').get_model_file('iCubGazeboV2_7'))


@pytest.fixture(scope='module')
def icub():
    return urdf_pair(icub_path(), True)


@pytest.fixture(scope='module')
def arm():
    return urdf_pair(panda_path(), False, ['panda_finger_joint1', 'panda_finger_joint2'])


def test_icub_agrees_in_all_algorithms(icub):
    assert icub.ours.nv == 38
    compare(icub, np.random.default_rng(0), 5)


def test_fixed_base_icub_agrees_in_all_algorithms():
    compare(urdf_pair(icub_path(), False), np.random.default_rng(0), 2)


def test_arm_agrees_in_all_algorithms(arm):
    assert arm.ours.nv == 7
    compare(arm, np.random.default_rng(0), 5)


@pytest.mark.parametrize('which', ['arm', 'icub', 'tree'])
def test_derivatives_of_inverse_dynamics_agree_with_the_analytic_ones(which, request):
    pair = random_pair(2, 0, True) if which == 'tree' else request.getfixturevalue(which)
    theirs, ours = pair.sample(np.random.default_rng(1))
    model, (q, v, a) = pair.ours, ours

    def torques(step, v, a):
        return tree.inverse_dynamics(model, tree.advance(model, q, step), v, a)

    forward = jax.jit(jax.jacfwd(torques, (0, 1, 2)))(jnp.zeros(model.nv), v, a)
    expected = pin.computeRNEADerivatives(pair.theirs, pair.data, *theirs)
    back = np.ix_(pair.v_map, pair.v_map)
    M = np.triu(expected[2])
    expected = expected[0][back], expected[1][back], (M + np.triu(M, 1).T)[back]
    for ours, theirs in zip(forward, expected):
        np.testing.assert_allclose(ours, theirs, atol=1e-10 * max(1, np.abs(theirs).max()))
    if which != 'icub':
        for ours, theirs in zip(jax.jit(jax.jacrev(torques, (0, 1, 2)))(jnp.zeros(model.nv), v, a), expected):
            np.testing.assert_allclose(ours, theirs, atol=1e-10 * max(1, np.abs(theirs).max()))
