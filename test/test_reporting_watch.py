# SPDX-License-Identifier: Apache-2.0
"""The live view: what it draws of a snapshot, and what it hears of a real ROS 2 graph."""

import io
import math
import subprocess
import sys
import time

import pytest
from rich.console import Console

from multibody_estimation.reporting.live import Quantity, Snapshot, Status, Topic, draw, told


def printed(snapshot: Snapshot, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(draw(snapshot))
    return out.getvalue()


@pytest.mark.parametrize(
    ('value', 'deviation', 'text'),
    [(0.0020013, 1.2e-6, '0.0020013 ± 1.2e-06'), (1.0, math.nan, '1'), (3.0, math.inf, '3 not told'), (math.nan, 1.0, '–'), (0.0, 0.1, '0 ± 0.1')],
)  # fmt: skip
def test_numbers_have_the_digits_that_their_deviation_allows(value, deviation, text):
    assert told(value, deviation) == text


def test_everything_in_a_snapshot_is_drawn_and_silence_is_said():
    snapshot = Snapshot(
        topics=[
            Topic('/joint_states', 'sensor_msgs/msg/JointState', 199.8, 0.01, 1000, 1),
            Topic('/imu', 'sensor_msgs/msg/Imu', math.nan, 7.0, 12, 1),
            Topic('/estimator/parameters', 'multibody_estimation/msg/ParameterEstimate', math.nan, 50.0, 1, 1, latched=True),
        ],
        states={'/estimator/state': [('arm', [Quantity('position', 0.5, 0.001, 'rad')])]},
        parameters={
            '/estimator/parameters': [
                Quantity('arm.damping', 1e-3, 1e-5, 'N m s/rad'),
                Quantity('rod.mass', 0.1, math.inf, 'kg', 'not told'),
            ]
        },
        sentences={'/estimator/parameters': 'Converged.'},
        statuses=[Status('driver: device', 'warn', 'slow', {'rate [Hz]': '12.3456789'})],
    )
    text = printed(snapshot)
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()}
    assert '199.8' in rows['/joint_states'] and 'silent' not in rows['/joint_states']
    assert 'silent' in rows['/imu'] and 'latched' in text
    assert '0.500 ± 0.001' in text or '0.5 ± 0.001' in text
    assert 'not told' in rows['rod.mass'] and 'Converged.' in text and 'rate [Hz] 12.35' in text
    assert max(map(len, printed(snapshot, 60).splitlines())) <= 60


def test_an_empty_graph_says_what_to_do():
    assert 'multibody-estimation up furuta' in printed(Snapshot(), 200)


@pytest.fixture
def graph(ros_context):
    """A node that talks and one that watches, spun by the test itself."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    from multibody_estimation.nodes.watching import Watcher

    talker, listener = (rclpy.create_node(name, context=ros_context) for name in ('talker', 'watch'))
    executor = SingleThreadedExecutor(context=ros_context)
    for node in (talker, listener):
        executor.add_node(node)
    yield talker, Watcher(listener), executor
    executor.shutdown()
    for node in (talker, listener):
        node.destroy_node()


def test_it_hears_best_effort_reliable_and_latched_topics(graph):
    from array import array

    from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import JointState

    from multibody_estimation.msg import LinkWrenches, ParameterEstimate
    from multibody_estimation.nodes.outputs import link_wrenches

    talker, watcher, executor = graph
    joints = talker.create_publisher(JointState, 'joint_states', QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT))
    wrenches = talker.create_publisher(LinkWrenches, 'wrenches', 10)
    words = talker.create_publisher(DiagnosticArray, '/diagnostics', 10)
    latched = talker.create_publisher(
        ParameterEstimate, 'parameters', QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    )
    estimate = ParameterEstimate(names=['a.mass', 'b.mass'], units=['kg', 'kg'], at_bound=[False, True], result='Converged.')
    estimate.values, estimate.std_devs = array('d', [2.0, 3.0]), array('d', [0.1, math.inf])
    latched.publish(estimate)
    covariance = [[[4.0 if i == j else 0.0 for j in range(6)] for i in range(6)]]
    sent, last, found = 0, 0.0, None
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if time.monotonic() - last > 0.02:
            last, sent = time.monotonic(), sent + 1
            joints.publish(JointState(name=['arm'], position=[0.25]))
            wrenches.publish(link_wrenches(sent, ['hand'], ['hand'], [[1, 2, 3, 4, 5, 6]], covariance))
            for name, level in (('one', DiagnosticStatus.OK), ('two', DiagnosticStatus.ERROR)):
                status = DiagnosticStatus(name=name, level=level, message='hello', values=[KeyValue(key='k', value='v')])
                words.publish(DiagnosticArray(status=[status]))
        executor.spin_once(timeout_sec=0.005)
        found = watcher.snapshot()
        heard = {t.name: t for t in found.topics}
        if len(heard) >= 4 and all(t.count > (0 if t.latched else 40) for t in heard.values()):
            break
    assert {'/joint_states', '/wrenches', '/diagnostics', '/parameters'} <= set(heard), heard
    assert heard['/parameters'].latched and not heard['/joint_states'].latched
    assert heard['/joint_states'].rate > 1 and not heard['/joint_states'].silent
    assert found.states['/joint_states'][0][1][0].value == 0.25
    six = found.states['/wrenches'][0][1]
    assert [q.value for q in six] == [1, 2, 3, 4, 5, 6] and [q.deviation for q in six] == [2.0] * 6
    assert [q.note for q in found.parameters['/parameters']] == ['', 'at a bound'] and found.sentences[
        '/parameters'
    ] == 'Converged.'
    assert {s.name: s.level for s in found.statuses} == {'one': 'ok', 'two': 'error'}
    assert 'hand' in printed(found)


def test_a_publisher_that_leaves_is_noticed(graph):
    from sensor_msgs.msg import JointState

    talker, watcher, executor = graph
    publisher = talker.create_publisher(JointState, 'joint_states', 10)

    def until(condition, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            publisher.publish(JointState(name=['arm'], position=[0.0])) if publisher else None
            executor.spin_once(timeout_sec=0.02)
            found = {t.name: t for t in watcher.snapshot().topics}
            if condition(found.get('/joint_states')):
                return found['/joint_states']
        raise AssertionError(found)

    until(lambda t: t is not None and t.count > 3)
    talker.destroy_publisher(publisher)
    publisher = None
    assert 'gone' in until(lambda t: not t.publishers).note


def test_the_verb_prints_one_picture_where_there_is_no_terminal(ros_environment):
    command = [sys.executable, '-m', 'multibody_estimation.cli', 'watch', '--seconds', '1']
    done = subprocess.run(command, env=ros_environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and 'Nobody publishes anything here yet' in done.stdout, done.stderr
    done = subprocess.run([*command[:-1], '-1'], env=ros_environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and 'must not be negative' in done.stderr and 'Traceback' not in done.stderr
