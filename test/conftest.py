# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests that run real ROS 2: a domain of their own, and processes that end with the test."""

import importlib.util
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COUNTER = itertools.count()


@pytest.fixture
def ros_environment(worker_id: str) -> dict[str, str]:
    """Environment of one test's ROS 2 graph: loopback only, a domain that no other test uses, the source tree first."""
    if importlib.util.find_spec('rclpy') is None:
        pytest.skip("rclpy is not installed: `make build`, or pip install '.[ros]', or source a ROS 2")
    if importlib.util.find_spec('multibody_estimation.msg') is None:
        pytest.skip('the messages of this package are not built: `make build`')
    worker = int(worker_id.removeprefix('gw')) if worker_id.startswith('gw') else 0
    domain = 1 + (os.getppid() * 13 + worker * 47 + next(COUNTER)) % 100
    from multibody_estimation.nodes.start import prepare_environment

    environment = dict(os.environ) | {
        'ROS_DOMAIN_ID': str(domain),
        'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
        'PYTHONUNBUFFERED': '1',
    }
    environment['PYTHONPATH'] = os.pathsep.join(filter(None, [str(ROOT), environment.get('PYTHONPATH')]))
    prepare_environment(environment)
    return environment


@pytest.fixture
def start_process(ros_environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start Python with the given arguments in the test's ROS 2 graph; its output goes to files named after it, and it is ended with the test."""
    started: list[subprocess.Popen] = []

    def start(*arguments: str, name: str = 'process', **environment: str) -> subprocess.Popen:
        with (tmp_path / f'{name}.out').open('wb') as out:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=tmp_path,
                env=ros_environment | environment,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    for process in started:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


@pytest.fixture
def ros_context(ros_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """An rclpy context of this process in the test's graph."""
    for key in ('ROS_AUTOMATIC_DISCOVERY_RANGE', 'RMW_IMPLEMENTATION', 'AMENT_PREFIX_PATH'):
        if key in ros_environment:
            monkeypatch.setenv(key, ros_environment[key])
    import rclpy

    context = rclpy.Context()
    rclpy.init(context=context, domain_id=int(ros_environment['ROS_DOMAIN_ID']))
    yield context
    rclpy.try_shutdown(context=context)
