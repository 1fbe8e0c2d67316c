# SPDX-License-Identifier: Apache-2.0
"""A person who bows, recorded: the estimate against iDynTree's on the same data (fixed base, two joints).

iDynTree's variables hold each link's net wrench and each joint's torque besides ours, and its equations for those carry a variance of
their own: eliminated, that of the Newton-Euler equation is twice its 1e-4, and its priors of 1e4 on net wrench and torque are priors on
acceleration and joint wrench. Our acceleration is the classical, theirs the spatial one: the prior's mean differs by v x w.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from multibody_estimation.tree import Joint, Link, build
from multibody_estimation.wrench import Prior, WrenchSensor, WrenchSetup, compile_wrench, observe, solve
from multibody_estimation.wrench.tree_nodes import spatial_inertia

FOLDER = os.environ.get('MULTIBODY_ESTIMATION_DATA', '')
FILE = Path(FOLDER, 'bowing', 'bow_reference.npz')
pytestmark = pytest.mark.skipif(
    not FOLDER or not FILE.is_file(), reason='MULTIBODY_ESTIMATION_DATA does not name a folder with bowing/'
)


def person():
    """The subject as three links; masses and sizes in kg and m."""
    links = [
        Link('foot', 3.0639, (0, 0, 0.030877), (0.0051523, 0.014672, 0.017877)),
        Link('leg', 25.5563, (0, 0, 0.3985), (1.411, 1.3813, 0.086802)),
        Link('torso', 33.0707, (0, 0, 0.26923), (1.0755, 0.836, 0.31343)),
    ]
    joints = [
        Joint('ankle', 'foot', 'leg', axis=(0, 1, 0), position=(-0.057906, 0, 0.061755)),
        Joint('hip', 'leg', 'torso', axis=(0, 1, 0), position=(0, 0, 0.79699)),
    ]
    return build(links, joints, gravity=(0, 0, -9.81))


@pytest.fixture(scope='module')
def answer():
    data = dict(np.load(FILE).items())
    plate = np.sqrt([59, 59, 36, 2.25, 2.25, 0.56])
    sensors = (
        WrenchSensor('acc', 'accelerometer', 'torso', np.sqrt(0.001111), (0.1461, 0.0455, 0.2335), (-0.0283, -1.3298, -3.1176)),
        WrenchSensor('plate', 'external_wrench', 'foot', plate),
        WrenchSensor('leg', 'external_wrench', 'leg', plate),
        WrenchSensor('torso', 'external_wrench', 'torso', plate),
        WrenchSensor('ddq_ankle', 'joint_acceleration', 'ankle', np.sqrt(6.66e-6)),
        WrenchSensor('ddq_hip', 'joint_acceleration', 'hip', np.sqrt(6.66e-6)),
    )
    wide = Prior(100.0)
    setup = WrenchSetup(
        sensors, contacts={'leg': wide, 'torso': wide, 'foot': Prior(1e4)}, equation_noise={'*': np.sqrt(2e-4), 'foot': 0.0},
        motion_noise={'*': 1e-2}, joint_acceleration={'*': wide},
    )  # fmt: skip
    model = person()
    turn = np.diag([0, 0, 0, 0, 1.0, 0])
    heavy = {}
    for name in ('leg', 'torso'):
        k = model.link_index(name)
        I = spatial_inertia(float(model.mass[k]), model.center_of_mass[k], model.inertia[k])
        heavy[name] = Prior(np.linalg.inv(1e-4 * (np.eye(6) + I.T @ I)))
    setup = setup.replace(acceleration=heavy, joint_wrench={'*': Prior(np.linalg.inv(1e-4 * (np.eye(6) + turn)))})
    program = compile_wrench(model, setup)
    T = data['q'].shape[1]
    zero = np.zeros((6, T))
    y = np.concatenate([data['acc'], data['fts_foot'], zero, zero, data['ddq']]).T
    blocks = [('joint_torque', 'ankle'), ('joint_torque', 'hip')]
    return data, program, solve(program, data['q'].T, data['dq'].T, np.zeros((T, 3)), y, blocks=blocks)


def test_sensors_determine_the_bow(answer):
    assert observe(answer[1]).complete


def test_joint_torques_of_a_bow_equal_those_of_idyntree(answer):
    data, _, found = answer
    theirs = data['tau_map']
    theirs = theirs.T if theirs.shape[0] == 2 else theirs
    assert np.abs(theirs).max() > 50
    assert np.abs(found.joint_torques - theirs).max() < 1e-6 * np.abs(theirs).max()


def test_wrenches_and_joint_accelerations_of_a_bow_equal_those_of_idyntree(answer):
    data, program, found = answer
    for j, link in enumerate(('leg', 'torso')):  # 26 numbers per link: a, net wrench, f, torque, fx, ddq
        theirs = data['d_map'][:, 26 * j : 26 * j + 26]
        k = program.link_names.index(link)
        assert np.abs(found.joint_wrenches[:, k] - theirs[:, 12:18]).max() < 1e-6 * np.abs(theirs[:, 12:18]).max()
        assert np.abs(found.wrench(link) - theirs[:, 19:25]).max() < 3e-4
        assert np.abs(found.joint_accelerations[:, j] - theirs[:, 25]).max() < 1e-6
