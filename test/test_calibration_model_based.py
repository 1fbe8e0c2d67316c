# SPDX-License-Identifier: Apache-2.0
"""Model-based recalibration: expected wrenches against iDynTree on the iCub; a drifted sensor recalibrated from arm motions."""

import numpy as np
import pytest

from multibody_estimation.calibration import StrainSensor, choose_ridge, recalibrate
from multibody_estimation.calibration.model_based import expected_wrenches, links_beyond
from multibody_estimation.errors import EstimationError

SENSOR = 'l_arm_ft'


@pytest.fixture(scope='module')
def icub():
    pytest.importorskip('icub_models', reason='icub-models is not installed')
    pytest.importorskip('idyntree', reason='idyntree is not installed')
    from multibody_estimation.tree import find_urdf, load_urdf

    path = str(find_urdf('icub-models:iCubGazeboV2_7'))
    return path, load_urdf(path)


def idyntree_wrenches(path, joints, q, v, a):
    """iDynTree's expected measurements of all force/torque sensors, one unknown wrench at the root."""
    import idyntree.bindings as idyn

    loader = idyn.ModelLoader()
    names = idyn.StringVector()
    for name in joints:
        names.push_back(name)
    assert loader.loadReducedModelFromFile(path, names)
    estimator = idyn.ExtWrenchesAndJointTorquesEstimator()
    assert estimator.setModel(loader.model())
    model = estimator.model()
    root = model.getFrameIndex('root_link')
    gravity = idyn.Vector3()
    for i, x in enumerate((0.0, 0.0, -9.81)):
        gravity.setVal(i, x)
    result = []
    for row in range(len(q)):
        state = [idyn.JointPosDoubleArray(model), idyn.JointDOFsDoubleArray(model), idyn.JointDOFsDoubleArray(model)]
        for vector, values in zip(state, (q[row], v[row], a[row])):
            for i, x in enumerate(values):
                vector.setVal(i, float(x))
        estimator.updateKinematicsFromFixedBase(*state, root, gravity)
        unknown = idyn.LinkUnknownWrenchContacts(model)
        contact = idyn.UnknownWrenchContact()
        contact.unknownType = idyn.FULL_WRENCH
        contact.contactPoint = idyn.Position.Zero()
        unknown.addNewContactInFrame(model, root, contact)
        measured, contacts, torques = idyn.SensorsMeasurements(estimator.sensors()), idyn.LinkContactWrenches(model), idyn.JointDOFsDoubleArray(model)  # fmt: skip
        assert estimator.computeExpectedFTSensorsMeasurements(unknown, measured, contacts, torques)
        sensors, wrench = estimator.sensors(), idyn.Wrench()
        measured.getMeasurement(idyn.SIX_AXIS_FORCE_TORQUE, sensors.getSensorIndex(idyn.SIX_AXIS_FORCE_TORQUE, SENSOR), wrench)
        result.append([wrench.getVal(i) for i in range(6)])
    return np.array(result)


def motions(model, count, seed, moving=True):
    rng = np.random.default_rng(seed)
    q = rng.uniform(-0.8, 0.8, (count, model.nq))
    v, a = (rng.normal(size=(count, model.nv)) * moving for _ in range(2))
    return q, v, a


def test_expected_wrenches_are_those_of_idyntree(icub):
    path, model = icub
    q, v, a = motions(model, 4, 0)
    ours = expected_wrenches(model, SENSOR, q, v, a)
    names = (*model.joint_names, *(j for j in model.structure.sensor_joints if j))
    theirs = idyntree_wrenches(path, names, q, v, a)
    assert np.abs(theirs).max() > 5
    np.testing.assert_allclose(ours, theirs, atol=1e-8)
    np.testing.assert_allclose(expected_wrenches(model, SENSOR, q), idyntree_wrenches(path, names, q, 0 * v, 0 * a), atol=0.02)


def test_drifted_sensor_is_recalibrated_from_arm_motions(icub):
    """The true matrix is 10 % off the factory's; the arm alone excites some directions badly, where the ridge holds the factory's."""
    _, model = icub
    rng = np.random.default_rng(3)
    true = StrainSensor.random(6, full_scale_force=300.0, full_scale_torque=10.0)
    factory = true.matrix @ (np.eye(6) + 0.1 * rng.normal(size=(6, 6)))

    def record(seed):
        w = expected_wrenches(model, SENSOR, motions(model, 60, seed, moving=False)[0])
        return np.linalg.solve(true.matrix, w.T).T + true.offset + 3 * rng.normal(size=w.shape), w

    train, held, fresh = record(1), [record(2)], record(4)
    fit = recalibrate(*train, factory, ridge=choose_ridge(train, held, factory))

    def error(C):
        r, w = (x - x.mean(axis=0) for x in fresh)
        return np.linalg.norm(r @ C.T - w) / np.linalg.norm(w)

    assert error(fit.matrix) < 0.2 * error(factory)
    np.testing.assert_allclose(fit.secondary @ factory, fit.matrix, rtol=1e-8)


def test_wrong_sensors_and_shapes_are_sentences(icub):
    _, model = icub
    assert {'l_forearm', 'l_hand'} <= {model.link_names[i] for i in links_beyond(model, SENSOR)}
    assert not {'root_link', 'r_hand', 'chest'} & {model.link_names[i] for i in links_beyond(model, SENSOR)}
    with pytest.raises(EstimationError, match='do not fit'):
        expected_wrenches(model, SENSOR, np.zeros((3, 5)))
    with pytest.raises(EstimationError, match='Did you mean'):
        expected_wrenches(model, 'l_arm_fft', np.zeros((1, model.nq)))
