# SPDX-License-Identifier: Apache-2.0
"""Offline equals live: the bag that comes with the package, through the replayed node and through Python, to the last digits."""

import random
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
BAG = ROOT / 'rosbags' / 'furuta_chirp'


def test_replayed_node_and_offline_give_identical_numbers(tmp_path):
    pytest.importorskip('rclpy', reason='rclpy is not installed: `make build`')
    pytest.importorskip('multibody_estimation.msg', reason='the messages are not built: `make build`')
    from multibody_estimation import robots
    from multibody_estimation.identification import identify
    from multibody_estimation.nodes.client import Client
    from multibody_estimation.nodes.processes import Processes
    from multibody_estimation.recording.bag import read_bag

    window = read_bag(BAG)
    offline = identify(robots.furuta(), window)
    parameters = tmp_path / 'parameters.yaml'
    # Three times the original speed, so that the end of the bag comes soon; the stamps are those of the bag.
    parameters.write_text('estimator:\n  ros__parameters: {report: false}\n')
    domain = random.SystemRandom().randint(1, 100)
    given = {'bag': str(BAG), 'speed': '3.0', 'data_folder': str(tmp_path / 'data'), 'params_file': str(parameters)}
    log = tmp_path / 'nodes.log'
    with (
        log.open('wb') as out,
        Processes('replay', given, output=out, ROS_DOMAIN_ID=str(domain)) as processes,
        Client('tester', domain_id=domain) as client,
    ):
        client.wait(lambda: 'everything was played' in log.read_text(), 120.0, 'the end of the bag', processes.failed)
        client.wait(lambda: 'identify: active' in log.read_text(), 60.0, 'the estimator', processes.failed)
        time.sleep(0.5)
        live = client.identify(seconds=0.0)
    assert live.success, live.message
    assert list(live.estimate.names) == list(offline.names)
    np.testing.assert_allclose(live.estimate.values, offline.values, rtol=1e-9)
    np.testing.assert_allclose(live.estimate.std_devs, offline.std, rtol=1e-6)
    assert live.estimate.iterations == offline.iterations
