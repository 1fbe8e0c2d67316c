# SPDX-License-Identifier: Apache-2.0
"""Real ROS 2: our messages and services between two processes, the package built by colcon, nodes that say what is missing."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

OTHER_SIDE = """
import rclpy
from multibody_estimation.msg import ParameterEstimate
from multibody_estimation.srv import SaveCalibration

rclpy.init()
node = rclpy.create_node('other_side')
publisher = node.create_publisher(ParameterEstimate, 'parameters', 10)
message = ParameterEstimate(names=['arm.damping'], values=[0.5], std_devs=[0.01], at_bound=[False], correlation=[1.0], result='as sent')

def answer(request, response):
    response.success, response.path = True, '/data/' + request.filename
    return response

node.create_service(SaveCalibration, 'save', answer)
node.create_timer(0.05, lambda: publisher.publish(message))
rclpy.spin(node)
"""


def test_our_messages_and_services_pass_between_processes(ros_context, start_process):
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    from multibody_estimation.msg import ParameterEstimate
    from multibody_estimation.srv import SaveCalibration

    start_process('-c', OTHER_SIDE)
    node = rclpy.create_node('this_side', context=ros_context)
    executor = SingleThreadedExecutor(context=ros_context)
    executor.add_node(node)
    received = []
    node.create_subscription(ParameterEstimate, 'parameters', received.append, 10)
    client = node.create_client(SaveCalibration, 'save')
    deadline = time.monotonic() + 30
    while not (received and client.service_is_ready()) and time.monotonic() < deadline:
        executor.spin_once(timeout_sec=0.1)
    assert received, 'no message arrived within 30 s'
    assert received[0].names == ['arm.damping'] and list(received[0].values) == [0.5] and received[0].result == 'as sent'
    future = client.call_async(SaveCalibration.Request(filename='left_arm.yaml'))
    executor.spin_until_future_complete(future, timeout_sec=20)
    assert future.result().success and future.result().path == '/data/left_arm.yaml'
    node.destroy_node()


def test_nodes_without_messages_end_with_a_sentence(tmp_path):
    """The core is importable, rclpy is there, the generated messages are not: as after `pip install '.[ros]'` alone."""
    shutil.copytree(
        ROOT / 'multibody_estimation', tmp_path / 'multibody_estimation', ignore=shutil.ignore_patterns('__pycache__')
    )
    init = tmp_path / 'multibody_estimation' / '__init__.py'
    init.write_text(init.read_text().replace('__path__ = extend_path(__path__, __name__)', ''))
    code = "from multibody_estimation.nodes.start import start; start('estimator')"
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert 'make build' in done.stderr and 'Traceback' not in done.stderr and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.alone
def test_colcon_builds_the_same_package(ros_environment, tmp_path):
    if subprocess.run([sys.executable, '-m', 'colcon', '--help'], capture_output=True, timeout=60).returncode:
        pytest.skip('colcon is not installed: pip install colcon-core colcon-cmake colcon-ros')
    listed = subprocess.run(['git', 'ls-files'], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip('not a git checkout')
    source = tmp_path / 'src' / 'multibody_estimation'
    for name in listed.stdout.split('\n'):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    environment = {k: v for k, v in ros_environment.items() if k != 'PYTHONPATH'}
    if 'ROS_DISTRO' not in environment:
        environment |= {'CMAKE_PREFIX_PATH': sys.prefix, 'AMENT_PREFIX_PATH': sys.prefix}
        environment['LD_LIBRARY_PATH'] = os.path.join(sys.prefix, 'lib')
        environment['PATH'] = os.path.join(sys.prefix, 'bin') + os.pathsep + environment['PATH']
    command = [
        sys.executable,
        '-m',
        'colcon',
        'build',
        '--base-paths',
        'src',
        '--cmake-args',
        f'-DPython3_EXECUTABLE={sys.executable}',
        '-DBUILD_TESTING=OFF',
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    prefix = tmp_path / 'install' / 'multibody_estimation'
    for file in (
        'share/multibody_estimation/package.xml',
        'lib/multibody_estimation/estimator',
        'share/multibody_estimation/msg/RawStrain.msg',
    ):
        assert (prefix / file).exists(), file
    check = (
        'import multibody_estimation, multibody_estimation.msg as m; from multibody_estimation.action import Identify; '
        "from multibody_estimation.kernels import available; print(m.__file__, available('axpy'))"
    )
    script = f'. install/local_setup.sh && cd build && {sys.executable} -c "{check}"'
    environment['COLCON_PYTHON_EXECUTABLE'] = sys.executable
    done = subprocess.run(['bash', '-c', script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    where, kernels = done.stdout.split()
    assert where.startswith(str(prefix)) and kernels == 'True'
