# SPDX-License-Identifier: Apache-2.0
"""The estimator's modes for humanoids over DDS: pushes on an iCub in MuJoCo, and the centroidal motion of a simulated walk."""

import random
import time

import numpy as np
import pytest

pytest.importorskip('rclpy', reason='rclpy is not installed: `make build`')
pytest.importorskip('multibody_estimation.msg', reason='the messages are not built: `make build`')
pytest.importorskip('icub_models', reason='icub-models is not installed')


def bring_up(tmp_path, given, **more):
    from multibody_estimation.nodes.processes import Processes

    log = tmp_path / 'nodes.log'
    domain = random.SystemRandom().randint(1, 100)
    given = {'data_folder': str(tmp_path / 'data')} | given
    return Processes('icub', given, output=log.open('wb'), ROS_DOMAIN_ID=str(domain), **more), domain, log


def test_a_push_is_found_on_the_right_link(tmp_path):
    pytest.importorskip('mujoco', reason='mujoco is not installed')
    from multibody_estimation.msg import LinkWrenches, MultibodyState
    from multibody_estimation.nodes.client import Client
    from multibody_estimation.srv import SetContacts

    parameters = tmp_path / 'parameters.yaml'
    parameters.write_text('driver:\n  ros__parameters: {rate: 50.0, options: ["pushes=l_forearm:0.1:1000:0,0,-20"]}\n'
                          'estimator:\n  ros__parameters: {sample_rate: 50.0, track_rate: 10.0}\n')  # fmt: skip
    processes, domain, log = bring_up(tmp_path, {'params_file': str(parameters)})
    with processes, Client('tester', domain_id=domain) as client:
        got, states = [], []
        client.node.create_subscription(LinkWrenches, '/estimator/wrenches', got.append, 10)
        client.node.create_subscription(MultibodyState, '/estimator/state', states.append, 10)
        client.wait(lambda: len(got) > 5, 120.0, 'wrenches', processes.failed)
        got.clear()
        client.wait(lambda: len(got) >= 10, 60.0, 'wrenches', processes.failed)
        force = {
            n: np.mean(
                [[w.force.x, w.force.y, w.force.z] for m in got for k, w in zip(m.link_names, m.wrenches) if k == n], axis=0
            )
            for n in got[0].link_names
        }
        assert abs(np.linalg.norm(force['l_forearm']) - 20.0) < 2.0
        for link in ('r_forearm', 'l_upper_leg', 'r_upper_leg'):
            assert np.linalg.norm(force[link]) < 2.0, f'{link}: {force[link]}'
        covariances = np.reshape(got[-1].covariances, (len(got[-1].link_names), 6, 6))
        assert np.linalg.eigvalsh(covariances).min() > 0
        assert len(states[-1].effort) == len(states[-1].joint_names) == len(states[-1].acceleration_std_devs) == 32

        answer = client.call(SetContacts, '/estimator/set_contacts', limit=60.0, links=['root_link', 'l_forearm'])
        assert answer.success, answer.message
        client.wait(lambda: list(got[-1].link_names) == ['root_link', 'l_forearm'], 20.0, 'the new contacts')
        refused = client.call(SetContacts, '/estimator/set_contacts', limit=60.0, links=['nose'])
        assert not refused.success and "'nose'" in refused.message
        time.sleep(0.5)
        assert list(got[-1].link_names) == ['root_link', 'l_forearm'], 'a refused request changed the contacts'


def test_centroidal_motion_of_a_replayed_walk(tmp_path):
    import subprocess
    import sys

    from multibody_estimation.msg import CentroidalState
    from multibody_estimation.nodes.client import Client

    folder = tmp_path / 'icub_walk'
    line = [sys.executable, '-m', 'multibody_estimation.cli', 'centroidal', '--example', str(folder)]
    subprocess.run(line, check=True, capture_output=True, timeout=300, env=None)
    from multibody_estimation.recording.bag import open_bag, read_bag

    topics = list(open_bag(folder / 'bag').topics)
    rate = read_bag(folder / 'bag')['encoders'].rate
    parameters = tmp_path / 'parameters.yaml'
    listed = ', '.join(topics)
    parameters.write_text(
        f'recorder:\n  ros__parameters: {{topics: [{listed}], max_rate: 1000.0}}\n'
        f'estimator:\n  ros__parameters: {{topics: [{listed}], sample_rate: {rate}, max_rate: 1000.0, track_rate: 50.0}}\n'
        'driver:\n  ros__parameters: {subscribers: 2}\n'
    )
    given = {'device': 'replay', 'bag': str(folder / 'bag'), 'speed': '0.5', 'mode': 'centroidal', 'setup': str(folder / 'setup.yaml'),
             'params_file': str(parameters)}  # fmt: skip
    processes, domain, log = bring_up(tmp_path, given)
    got = []
    with processes, Client('tester', domain_id=domain) as client:
        client.node.create_subscription(CentroidalState, '/estimator/centroidal_smoothed', got.append, 100)
        client.wait(lambda: 'everything was played' in log.read_text(), 180.0, 'the end of the walk', processes.failed)
        time.sleep(1.0)
    truth = np.load(folder / 'truth.npz')
    window = read_bag(folder / 'bag')
    time_of = np.array([m.header.stamp.sec * 10**9 + m.header.stamp.nanosec for m in got])
    seconds = (time_of - window.start) * 1e-9
    com = np.array([[m.center_of_mass.x, m.center_of_mass.y, m.center_of_mass.z] for m in got])
    true = np.stack([np.interp(seconds, truth['time'], truth['states'][:, i]) for i in range(3)], axis=1)
    late = seconds > 0.5
    assert late.sum() > 10, f'{len(got)} states came'
    error = com[late] - true[late]
    error -= error.mean(axis=0)  # the world's origin is where the first foothold was taken
    std = np.array([[np.sqrt(m.covariance[16 * i]) for i in range(3)] for m in got])[late]
    assert np.sqrt(np.mean(error**2)) < 0.01, 'the centre of mass is off by more than a centimetre'
    assert np.all(std > 0) and np.median(np.abs(error) / std) < 5
