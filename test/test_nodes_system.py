# SPDX-License-Identifier: Apache-2.0
"""The whole system on real DDS: driver, recorder and estimator as processes, driven as a user would drive them."""

import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from multibody_estimation import robots
from multibody_estimation.errors import EstimationError

SECONDS = 5.0


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('system')


@pytest.fixture(scope='module')
def system(folder):
    """A simulated pendulum that is being excited for a minute, with everything around it."""
    pytest.importorskip('rclpy', reason='rclpy is not installed: `make build`')
    pytest.importorskip('multibody_estimation.msg', reason='the messages are not built: `make build`')
    from multibody_estimation.nodes.client import Client
    from multibody_estimation.nodes.processes import Processes

    parameters = folder / 'parameters.yaml'
    parameters.write_text(
        'driver:\n  ros__parameters: {excitation_seconds: 300.0, rate: 200.0}\n'
        f'estimator:\n  ros__parameters: {{identify_seconds: {SECONDS}, report: false}}\n'
    )
    domain = random.SystemRandom().randint(1, 100)
    given = {'data_folder': str(folder / 'data'), 'params_file': str(parameters), 'excitation': 'sines'}
    with (
        (folder / 'nodes.log').open('wb') as out,
        Processes('furuta', given, output=out, ROS_DOMAIN_ID=str(domain)) as processes,
        Client('tester', domain_id=domain) as client,
    ):
        client.processes, client.domain = processes, domain
        yield client


def truth():
    return {p.name: float(p.start) for p in robots.furuta(truth=True).parameters}


def test_identify_action_finds_the_truth(system):
    phases = []
    result = system.identify(seconds=SECONDS, feedback=lambda f: phases.append((f.phase, f.iteration, f.cost)))
    assert result.success, result.message
    estimate, known = result.estimate, truth()
    assert set(estimate.names) == set(known)
    for name, value, sd in zip(estimate.names, estimate.values, estimate.std_devs):
        assert abs(value - known[name]) < 5 * sd, f'{name}: {value} +- {sd}, truth {known[name]}'
    assert {'collecting', 'solving'} <= {p for p, _, _ in phases}
    costs = [cost for p, _, cost in phases if p == 'solving']
    assert len(costs) > 3 and all(np.isfinite(costs))
    assert len(estimate.correlation) == len(estimate.names) ** 2 and estimate.converged


def test_parameters_are_latched(system):
    from rclpy.qos import DurabilityPolicy, QoSProfile

    from multibody_estimation.msg import ParameterEstimate

    got = []
    late = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    subscription = system.node.create_subscription(ParameterEstimate, '/estimator/parameters', got.append, late)
    system.wait(lambda: bool(got), 15.0, 'the latched parameters')
    system.node.destroy_subscription(subscription)
    assert 'arm.damping' in got[0].names


def test_identify_now_answers_from_the_buffer(system):
    from multibody_estimation.srv import IdentifyNow

    answer = system.call(IdentifyNow, '/estimator/identify_now', limit=60.0, seconds=SECONDS)
    assert answer.success, answer.message
    known = truth()
    assert all(
        abs(v - known[n]) < 5 * s for n, v, s in zip(answer.estimate.names, answer.estimate.values, answer.estimate.std_devs)
    )
    answer = system.call(IdentifyNow, '/estimator/identify_now', limit=60.0, seconds=SECONDS, parameters=['arm.dampin'])
    assert not answer.success and "Did you mean 'arm.damping'?" in answer.message


def test_one_goal_at_a_time_and_cancel(system):
    from rclpy.action import ActionClient

    from multibody_estimation.action import Identify

    client = ActionClient(system.node, Identify, '/estimator/identify')
    system.wait(client.server_is_ready, 20.0, 'the action')
    first = system.result(client.send_goal_async(Identify.Goal(seconds=40.0)), 10.0, 'an answer')
    assert first.accepted
    second = system.result(client.send_goal_async(Identify.Goal(seconds=1.0)), 10.0, 'an answer')
    assert not second.accepted
    result = first.get_result_async()
    time.sleep(0.5)
    system.result(first.cancel_goal_async(), 10.0, 'the cancel')
    done = system.result(result, 15.0, 'the result')
    assert done.status == 5 and 'Cancelled' in done.result.message  # GoalStatus.STATUS_CANCELED
    # The estimator is free again.
    third = system.result(client.send_goal_async(Identify.Goal(seconds=1.5)), 10.0, 'an answer')
    assert third.accepted
    assert system.result(third.get_result_async(), 60.0, 'the result').status == 4
    client.destroy()


def test_goals_read_bags_of_the_data_folder_only(system):
    result = system.identify(bag='../../etc')
    assert not result.success and 'outside of the data folder' in result.message
    result = system.identify(bag='not_there')
    assert not result.success and "no 'not_there'" in result.message
    with pytest.raises(EstimationError, match='refused the goal'):
        system.identify(parameters=['arm.massive'])


def test_recorder_saves_below_its_folder_and_offline_equals_live(system, folder):
    from multibody_estimation.identification import identify
    from multibody_estimation.recording.bag import read_bag
    from multibody_estimation.srv import GetWindow, SaveWindow

    window = system.call(GetWindow, '/recorder/get_window', seconds=3.0)
    assert window.success and 'encoders' in window.topics and 'command' in window.topics, window.message
    assert window.rates[list(window.topics).index('encoders')] == pytest.approx(200.0, rel=0.05)
    for name in ('../outside', '/etc/outside'):
        refused = system.call(SaveWindow, '/recorder/save', filename=name)
        assert not refused.success and 'outside of the data folder' in refused.message
    saved = system.call(SaveWindow, '/recorder/save', filename='live', seconds=SECONDS)
    assert saved.success and Path(saved.path) == folder / 'data' / 'live' and saved.message_count > 1000
    again = system.call(SaveWindow, '/recorder/save', filename='live')
    assert not again.success and 'not overwritten' in again.message

    live = system.identify(bag='live')
    offline = identify(robots.furuta(), read_bag(saved.path))
    assert list(live.estimate.names) == list(offline.names)
    np.testing.assert_allclose(live.estimate.values, offline.values, rtol=1e-9)
    np.testing.assert_allclose(live.estimate.std_devs, offline.std, rtol=1e-6)


def test_recording_streams_to_a_bag(system):
    from std_srvs.srv import Trigger

    from multibody_estimation.recording.bag import read_bag

    started = system.call(Trigger, '/recorder/start')
    assert started.success
    assert not system.call(Trigger, '/recorder/start').success
    time.sleep(2.0)
    stopped = system.call(Trigger, '/recorder/stop')
    assert stopped.success
    path = stopped.message.removesuffix('.').split(' in ')[1]
    window = read_bag(path)
    assert window.duration > 1.5 and len(window['encoders']) > 250
    assert (Path(path) / 'metadata.yaml').exists()


def test_diagnostics_name_rates_and_solver(system):
    from diagnostic_msgs.msg import DiagnosticArray

    seen = {}

    def take(message):
        for status in message.status:
            seen[status.name] = {v.key: v.value for v in status.values}

    subscription = system.node.create_subscription(DiagnosticArray, '/diagnostics', take, 50)
    wanted = {'estimator: solver', 'estimator: /joint_states', 'recorder: state', 'driver: device'}
    system.wait(lambda: wanted <= set(seen), 10.0, 'the diagnostics of all nodes')
    system.node.destroy_subscription(subscription)
    assert float(seen['estimator: /joint_states']['rate [Hz]']) == pytest.approx(200, rel=0.2)
    assert {'iterations', 'final cost', 'optimization total time [s]'} <= set(seen['estimator: solver'])


def test_commands_are_refused_while_exciting_and_stop_stops(system):
    from std_srvs.srv import Trigger

    from multibody_estimation.msg import ActuatorCommand

    applied = []
    subscription = system.node.create_subscription(ActuatorCommand, '/applied_command', applied.append, 100)
    assert system.call(Trigger, '/driver/stop').success
    system.wait(lambda: len(applied) > 20 and all(m.values[0] == 0.0 for m in applied[-10:]), 10.0, 'zero torque')

    publisher = system.node.create_publisher(ActuatorCommand, '/command', 10)
    system.wait(lambda: publisher.get_subscription_count() > 0, 10.0, 'the driver')
    message = ActuatorCommand(joint_names=['arm'], kind=ActuatorCommand.TORQUE, values=[0.01])
    message.header.stamp = system.node.get_clock().now().to_msg()
    publisher.publish(message)
    system.wait(lambda: any(m.values[0] == 0.01 for m in applied), 5.0, 'the command to be applied')
    # Nobody repeats it: the watchdog puts the torque back to zero.
    system.wait(lambda: applied[-1].values[0] == 0.0, 5.0, 'the watchdog')
    old = ActuatorCommand(joint_names=['arm'], kind=ActuatorCommand.TORQUE, values=[0.02])
    old.header.stamp.sec = message.header.stamp.sec - 10
    publisher.publish(old)
    time.sleep(0.5)
    assert not any(m.values[0] == 0.02 for m in applied), 'a command ten seconds old was executed'
    system.node.destroy_subscription(subscription)


def test_a_killed_recorder_loses_less_than_a_second(system, folder):
    """kill -9 in the middle of a recording: what was flushed is readable; a new recorder goes on."""
    import subprocess

    from std_srvs.srv import Trigger

    from multibody_estimation.nodes.processes import command_line
    from multibody_estimation.recording.bag import read_bag

    started = system.call(Trigger, '/recorder/start')
    assert started.success
    path = started.message.removeprefix('Recording to ').removesuffix('.')
    time.sleep(3.0)
    processes = system.processes
    old = processes.running['recorder']
    old.send_signal(signal.SIGKILL)
    killed = time.time_ns()
    old.wait(5)
    window = read_bag(path)
    assert (killed - int(window['encoders'].stamps[-1])) / 1e9 < 1.3, 'more than the last second was lost'
    assert window.duration > 1.5
    spec = next(s for s in processes.specs if s.executable == 'recorder')
    with (folder / 'recorder.log').open('wb') as out:
        processes.running['recorder'] = subprocess.Popen(
            command_line(spec), env=processes.environment, stdout=out, stderr=subprocess.STDOUT
        )
    from multibody_estimation.srv import GetWindow

    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if system.call(GetWindow, '/recorder/get_window', limit=5.0).success:
                break
        except EstimationError:
            continue
    else:
        raise AssertionError('the new recorder does not answer')


def test_estimator_killed_and_restarted_goes_on(system, folder):
    """Last: the estimator is killed hard; the others do not mind, and a new one works."""
    import subprocess

    from multibody_estimation.nodes.processes import command_line
    from multibody_estimation.srv import GetWindow

    processes = system.processes
    old = processes.running['estimator']
    old.send_signal(signal.SIGKILL)
    old.wait(5)
    spec = next(s for s in processes.specs if s.executable == 'estimator')
    with (folder / 'second.log').open('wb') as out:
        processes.running['estimator'] = subprocess.Popen(
            command_line(spec), env=processes.environment, stdout=out, stderr=subprocess.STDOUT
        )
    assert system.call(GetWindow, '/recorder/get_window').success
    # The middleware believes in the dead one for some seconds more: ask the new one only when it says that it is ready.
    system.wait(lambda: 'identify: active' in (folder / 'second.log').read_text(), 60.0, 'the second estimator')
    result = system.identify(seconds=1.5, limit=90.0)
    assert result.message and result.estimate.names
