# SPDX-License-Identifier: Apache-2.0
"""The iCub against iDynTree's KinDynComputations, in its conventions (body-fixed velocities), with several links as the base."""

import itertools

import numpy as np
import pytest

from multibody_estimation import tree
from multibody_estimation._jax import jax
from multibody_estimation.geometry.quaternion import from_matrix

idyn = pytest.importorskip('idyntree.bindings')
icub_models = pytest.importorskip('icub_models')

FRAMES = ['l_hand', 'head', 'r_foot']


@pytest.fixture(scope='module')
def path():
    return str(icub_models.get_model_file('iCubGazeboV2_7'))


@pytest.fixture(scope='module')
def joints(path):
    loader = idyn.ModelLoader()
    assert loader.loadModelFromFile(path)
    model = loader.model()
    return [model.getJointName(j) for j in range(model.getNrOfJoints()) if model.getJoint(j).getNrOfDOFs()]


@jax.jit
def ours(model, q, v, a, wrenches):
    last = {
        f: (tree.link_pose(model, q, f), tree.jacobian(model, q, f), tree.jacobian_rate_times_velocity(model, q, v, f))
        for f in FRAMES
    }
    return {
        'mass matrix': tree.mass_matrix(model, q),
        'bias': tree.bias_forces(model, q, v),
        'gravity': tree.gravity_torques(model, q),
        'inverse dynamics': tree.inverse_dynamics(model, q, v, a, wrenches),
        'centre of mass': tree.center_of_mass(model, q),
        'momentum': tree.centroidal_momentum(model, q, v),
        'frames': last,
    }


def copied(x):
    return np.array(x.toNumPy())  # which is a view of x: gone with it


def theirs(path, base, world, s, v, a, gravity, wrenches):
    loader = idyn.ModelLoader()
    assert loader.loadModelFromFile(path)
    kin = idyn.KinDynComputations()
    assert kin.loadRobotModel(loader.model()) and kin.setFloatingBase(base)
    kin.setFrameVelocityRepresentation(idyn.BODY_FIXED_REPRESENTATION)
    n = kin.model().getNrOfDOFs()
    assert kin.setRobotState(world, s, v[:6], v[6:], gravity)
    M, bias, weight = (
        idyn.MatrixDynSize(),
        idyn.FreeFloatingGeneralizedTorques(kin.model()),
        idyn.FreeFloatingGeneralizedTorques(kin.model()),
    )
    assert kin.getFreeFloatingMassMatrix(M)
    assert kin.generalizedBiasForces(bias) and kin.generalizedGravityForces(weight)

    def vector(x):
        return np.r_[copied(x.baseWrench()), copied(x.jointTorques())]

    external = idyn.LinkWrenches(kin.model())
    external.zero()
    for link, w in wrenches.items():
        at = external(kin.model().getLinkIndex(link))
        for k in range(6):
            at.setVal(k, float(w[k]))
    torques = idyn.FreeFloatingGeneralizedTorques(kin.model())
    assert kin.inverseDynamics(a[:6], a[6:], external, torques)
    out = {'mass matrix': copied(M), 'bias': vector(bias), 'gravity': vector(weight), 'inverse dynamics': vector(torques)}
    out['centre of mass'] = copied(kin.getCenterOfMassPosition())
    frames = {}
    for f in FRAMES:
        J = idyn.MatrixDynSize(6, n + 6)
        assert kin.getFrameFreeFloatingJacobian(f, J)
        pose = copied(kin.getWorldTransform(f).asHomogeneousTransform())
        frames[f] = (pose, np.kron(np.eye(2), pose[:3, :3]) @ copied(J))  # to world axes, as ours
    # In mixed representation the bias acceleration is dJ/dt times velocity, and the momentum has world axes, as ours.
    kin.setFrameVelocityRepresentation(idyn.MIXED_REPRESENTATION)
    out['momentum'] = copied(kin.getCentroidalTotalMomentum())
    # Its base then moves on with constant velocity in world axes, ours in the base's own axes, which turn: w x v apart.
    turning = np.r_[world[:3, :3] @ np.cross(v[3:6], v[:3]), np.zeros(3)]
    out['frames'] = {f: (*x, copied(kin.getFrameBiasAcc(f)) + turning) for f, x in frames.items()}
    return out


@pytest.mark.parametrize('base', ['root_link', 'l_foot', 'head'])
def test_icub_agrees_with_kindyncomputations(path, joints, base):
    model = tree.load_urdf(path, base=base, floating=True, joints=joints)
    rng = np.random.default_rng(0)
    s, v, a = rng.uniform(-0.8, 0.8, len(joints)), rng.normal(size=model.nv), rng.normal(size=model.nv)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = turn, rng.normal(size=3)
    wrenches = {'l_foot': rng.normal(size=6), 'r_forearm': rng.normal(size=6)}
    expected = theirs(path, base, pose, s, v, a, np.array(model.gravity), wrenches)
    q = np.r_[pose[:3, 3], np.asarray(from_matrix(turn)), s]
    mine = ours(model, q, v, a, wrenches)
    for name, x in expected.items():
        if name == 'frames':
            for f, k in itertools.product(FRAMES, range(3)):
                np.testing.assert_allclose(mine[name][f][k], x[f][k], atol=1e-10, err_msg=f'{f} {k}')
        else:
            np.testing.assert_allclose(mine[name], x, atol=1e-10 * max(1.0, np.abs(x).max()), err_msg=name)
