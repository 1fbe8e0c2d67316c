# SPDX-License-Identifier: Apache-2.0
"""Bad input to live nodes: each is handled, reported, and nothing is corrupted. The publishers are in the test, the nodes are processes."""

import math
import random
import time

import numpy as np
import pytest

from multibody_estimation.errors import EstimationError


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('faults')


@pytest.fixture(scope='module')
def graph(folder):
    """A recorder and an estimator in mode track whose driver is this test."""
    pytest.importorskip('rclpy', reason='rclpy is not installed: `make build`')
    pytest.importorskip('multibody_estimation.msg', reason='the messages are not built: `make build`')
    from multibody_estimation.nodes.client import Client
    from multibody_estimation.nodes.processes import Processes

    domain = random.SystemRandom().randint(1, 100)
    given = {'data_folder': str(folder / 'data'), 'device': 'external', 'mode': 'track'}
    with (
        (folder / 'nodes.log').open('wb') as out,
        Processes('furuta', given, output=out, ROS_DOMAIN_ID=str(domain)) as processes,
        Client('tester', domain_id=domain) as client,
    ):
        client.processes = processes
        client.log = lambda: (folder / 'nodes.log').read_text(errors='replace')
        yield client


class Source:
    """Publishes the samples of a simulated pendulum as the driver would, with whatever fault is asked for."""

    def __init__(self, client, reliable=True):
        from rclpy.qos import QoSProfile, ReliabilityPolicy
        from sensor_msgs.msg import JointState

        from multibody_estimation.hardware.device import Command
        from multibody_estimation.hardware.simulated import Simulated
        from multibody_estimation.msg import ActuatorCommand

        self.make, self.command_type, self.hold = JointState, ActuatorCommand, Command
        policy = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
        self.node = client.node
        self.joints = client.node.create_publisher(JointState, '/joint_states', QoSProfile(depth=1000, reliability=policy))
        self.commands = client.node.create_publisher(
            ActuatorCommand, '/applied_command', QoSProfile(depth=1000, reliability=policy)
        )
        client.wait(
            lambda: self.joints.get_subscription_count() > 0 and self.commands.get_subscription_count() > 0, 60.0, 'the nodes'
        )
        self.device = Simulated(realtime=False)
        self.device.open()
        self.sent = 0

    def samples(self, count, fault=None, pause=0.0):
        for i in range(count):
            (sample,) = self.device.read(0.1)
            torque = 0.04 * math.sin(2 * math.pi * 1.1 * self.sent / 200.0)
            self.device.write(self.hold((torque,), sample.stamp))
            message = self.make(name=['arm', 'pendulum'], position=[float(p) for p in sample.parts['']])
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(sample.stamp, 1_000_000_000)
            command = self.command_type(joint_names=['arm'], values=[torque])
            command.header.stamp = message.header.stamp
            self.commands.publish(command)
            for m in fault(i, message) if fault else [message]:
                self.joints.publish(m)
            self.sent += 1
            if pause:
                time.sleep(pause)

    def close(self):
        self.node.destroy_publisher(self.joints)
        self.node.destroy_publisher(self.commands)


def recorded(client):
    from multibody_estimation.srv import GetWindow

    return client.call(GetWindow, '/recorder/get_window')


def count(client):
    answer = recorded(client)
    return answer.sample_counts[list(answer.topics).index('encoders')] if 'encoders' in answer.topics else 0


def test_silence_is_explained_within_two_seconds(graph):
    """No publisher at all: log and diagnostics name each input and what to do."""
    from diagnostic_msgs.msg import DiagnosticArray

    seen = {}
    subscription = graph.node.create_subscription(
        DiagnosticArray, '/diagnostics', lambda m: seen.update({s.name: s for s in m.status}), 50
    )
    graph.wait(lambda: 'track: active' in graph.log(), 60.0, 'the estimator')
    began = time.monotonic()
    graph.wait(
        lambda: 'estimator: /joint_states' in seen and seen['estimator: /joint_states'].message.startswith('/joint_states'),
        4.0,
        'a word about the silence',
    )
    assert time.monotonic() - began < 3.5
    graph.node.destroy_subscription(subscription)
    status = seen['estimator: /joint_states']
    assert status.level == b'\x02' and 'nobody publishes it' in status.message and 'ROS_DOMAIN_ID' in status.message
    graph.wait(lambda: '/applied_command: nobody publishes it' in graph.log(), 5.0, 'the log')


@pytest.fixture(scope='module')
def source(graph):
    made = Source(graph)
    yield made
    made.close()


def test_states_are_tracked(graph, source):
    from multibody_estimation.msg import LinkWrenches, MultibodyState

    states, wrenches = [], []
    a = graph.node.create_subscription(MultibodyState, '/estimator/state', states.append, 50)
    b = graph.node.create_subscription(LinkWrenches, '/estimator/wrenches', wrenches.append, 50)
    graph.wait(lambda: graph.node.count_publishers('/estimator/state') > 0, 30.0, 'the estimator')
    end = time.monotonic() + 30
    while len(states) < 3 and time.monotonic() < end:
        source.samples(20, pause=0.004)
    graph.node.destroy_subscription(a)
    graph.node.destroy_subscription(b)
    assert states and wrenches, graph.log()[-2000:]
    last = states[-1]
    assert list(last.joint_names) == ['arm', 'pendulum']
    assert all(0 < s < 5e-3 for s in last.position_std_devs) and all(0 < s < 1.0 for s in last.velocity_std_devs)
    assert list(wrenches[-1].link_names) == ['arm_link', 'rod'] and len(wrenches[-1].covariances) == 72


def test_bad_messages_are_left_out_and_told(graph, source):
    def fault(i, message):
        if i == 10:
            message.position[0] = math.nan
        if i == 20:
            message.position = [0.1]
        if i == 30:
            message.name = ['arm', 'elbow']
        return [message]

    before = count(graph)
    source.samples(60, fault, pause=0.002)
    graph.wait(lambda: count(graph) >= before + 57, 10.0, 'the good samples')
    time.sleep(0.3)
    assert count(graph) == before + 57
    answer = recorded(graph)
    assert 'is NaN in column arm' in answer.message
    graph.wait(lambda: "unknown name 'elbow'" in graph.log() and '2 names for 1 entries' in graph.log(), 5.0, 'a word in the log')


def test_loss_reordering_and_duplicates_are_noted(graph, source):
    from multibody_estimation.recording.bag import read_bag
    from multibody_estimation.srv import SaveWindow

    held = []

    def fault(i, message):
        if i % 10 == 3:
            return []  # lost
        if i == 41:
            return [message, message]  # twice
        if i == 61:
            held.append(message)
            return []
        if i == 62:
            return [message, held.pop()]  # late
        return [message]

    before = count(graph)
    source.samples(100, fault, pause=0.002)
    graph.wait(lambda: count(graph) >= before + 90, 10.0, 'what was sent')
    saved = graph.call(SaveWindow, '/recorder/save', filename='faulty', seconds=0.5)
    assert saved.success, saved.message
    window = read_bag(saved.path)
    stamps = window['encoders'].stamps
    assert (np.diff(stamps) > 0).all() and np.isfinite(window['encoders'].values).all()
    assert any(d.kind == 'gap' for d in window.defects)


def test_a_jump_of_the_clock_starts_the_buffer_anew(graph, source):
    source.device._first -= 3600 * 1_000_000_000
    source.samples(120, pause=0.002)
    time.sleep(0.5)
    answer = recorded(graph)
    assert answer.success and answer.duration < 5.0, answer.message
    assert graph.processes.failed() == ''


def test_unknown_parameters_end_a_node_with_a_sentence(start_process, tmp_path):
    process = start_process(
        '-m', 'multibody_estimation.nodes', 'recorder', '--ros-args', '-p', 'buffer_second:=5.0', name='recorder'
    )
    assert process.wait(30) == 1
    said = (tmp_path / 'recorder.out').read_text()
    assert "'buffer_second' is no parameter of the recorder. Did you mean 'buffer_seconds'?" in said and 'Traceback' not in said
    process = start_process(
        '-m', 'multibody_estimation.nodes', 'recorder', '--ros-args', '-p', 'buffer_seconds:=1.0e9', name='second'
    )
    assert process.wait(30) == 1
    assert 'must lie between' in (tmp_path / 'second.out').read_text()


def test_best_effort_publishers_are_followed(start_process, ros_context, tmp_path):
    """A reliable subscription would stay silent; `auto` follows the publisher and says so."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import JointState

    start_process('-m', 'multibody_estimation.nodes', 'recorder', '--ros-args', '-p', 'topics:=[joint_states]', name='recorder')
    node = rclpy.create_node('publisher', context=ros_context)
    executor = SingleThreadedExecutor(context=ros_context)
    executor.add_node(node)
    publisher = node.create_publisher(
        JointState, '/joint_states', QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
    )
    from multibody_estimation.srv import GetWindow

    client = node.create_client(GetWindow, '/recorder/get_window')
    end, heard = time.monotonic() + 30, 0
    while time.monotonic() < end and heard < 5:
        message = JointState(name=['arm'], position=[0.1])
        message.header.stamp = node.get_clock().now().to_msg()
        publisher.publish(message)
        executor.spin_once(timeout_sec=0.02)
        if client.service_is_ready():
            future = client.call_async(GetWindow.Request())
            executor.spin_until_future_complete(future, timeout_sec=2.0)
            answer = future.result()
            heard = answer.sample_counts[0] if answer is not None and answer.success else 0
    node.destroy_node()
    assert heard >= 5
    assert 'best-effort' in (tmp_path / 'recorder.out').read_text()


def test_lifecycle_is_obeyed(start_process, ros_context):
    """autostart: false leaves the transitions to a manager; a robot that does not exist fails the configuration."""
    import rclpy
    from lifecycle_msgs.msg import State, Transition
    from lifecycle_msgs.srv import ChangeState, GetState
    from rclpy.executors import SingleThreadedExecutor

    start_process('-m', 'multibody_estimation.nodes', 'estimator', '--ros-args', '-p', 'autostart:=false', '-p', 'mode:=track')
    node = rclpy.create_node('manager', context=ros_context)
    executor = SingleThreadedExecutor(context=ros_context)
    executor.add_node(node)

    def call(kind, name, request):
        client = node.create_client(kind, name)
        assert client.wait_for_service(30)
        future = client.call_async(request)
        executor.spin_until_future_complete(future, timeout_sec=60)
        return future.result()

    def state():
        return call(GetState, '/estimator/get_state', GetState.Request()).current_state.id

    def change(transition):
        return call(ChangeState, '/estimator/change_state', ChangeState.Request(transition=Transition(id=transition))).success

    assert state() == State.PRIMARY_STATE_UNCONFIGURED
    assert change(Transition.TRANSITION_CONFIGURE) and state() == State.PRIMARY_STATE_INACTIVE
    assert change(Transition.TRANSITION_ACTIVATE) and state() == State.PRIMARY_STATE_ACTIVE
    assert change(Transition.TRANSITION_DEACTIVATE) and state() == State.PRIMARY_STATE_INACTIVE
    assert change(Transition.TRANSITION_ACTIVATE) and state() == State.PRIMARY_STATE_ACTIVE
    assert change(Transition.TRANSITION_DEACTIVATE) and change(Transition.TRANSITION_CLEANUP)
    assert state() == State.PRIMARY_STATE_UNCONFIGURED
    node.destroy_node()


def test_up_refuses_what_it_does_not_know():
    from multibody_estimation.nodes.bringup import resolve

    for system, given, said in [
        ('furutta', {}, "Did you mean 'furuta'?"),
        ('furuta', {'devise': 'serial'}, "Did you mean 'device'?"),
        ('furuta', {'device': 'hydraulic'}, 'it can be simulated'),
        ('furuta', {'device': 'serial'}, 'needs a port'),
        ('furuta', {'params_file': 'no.yaml'}, 'does not exist'),
        ('replay', {}, 'needs a bag'),
        ('furuta', {'speed': 'fast'}, 'must be a number'),
    ]:
        with pytest.raises(EstimationError, match='.*') as error:
            resolve(system, given)
        assert said in str(error.value)
