# SPDX-License-Identifier: Apache-2.0
"""The calibrator over real DDS, in a process of its own: from raw strain by service calls to the saved file to the calibrated wrench."""

import time
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from multibody_estimation.calibration import Calibration, Load, StrainSensor
from multibody_estimation.calibration.model import gravity_map
from multibody_estimation.calibration.planner import sphere_points
from multibody_estimation.calibration.simulated import simulated_session
from multibody_estimation.window import Signal, Window

LOADS = (Load(), Load(1.0, (0.1, 0, 0.05)), Load(0.8, (0, 0.1, 0.05)))
SENSOR = StrainSensor.random(2, full_scale_force=300.0, full_scale_torque=20.0, strain_noise=2.0, acceleration_noise=0.01)
STRAIN = 'ft/wrist/strain'
DIRECTIONS = sphere_points(6)[[0, 5, 2, 4, 1, 3]]
START = 1_700_000_000_000_000_000


class Robot:
    """This process: a sensor and an IMU that publish as a device would, and a technician who calls the services."""

    def __init__(self, context):
        import rclpy
        from diagnostic_msgs.msg import DiagnosticArray
        from geometry_msgs.msg import WrenchStamped
        from rclpy.executors import SingleThreadedExecutor
        from sensor_msgs.msg import Imu

        from multibody_estimation.msg import RawStrain

        self.node = rclpy.create_node('robot', context=context)
        self.executor = SingleThreadedExecutor(context=context)
        self.executor.add_node(self.node)
        self.strain = self.node.create_publisher(RawStrain, f'/{STRAIN}', 1000)
        self.imu = self.node.create_publisher(Imu, '/imu/data_raw', 1000)
        self.heard = {name: [] for name in ('wrench', 'wrench_compensated', 'strain', 'diagnostics')}
        for name in ('wrench', 'wrench_compensated'):
            self.node.create_subscription(WrenchStamped, f'/ft/wrist/{name}', self.heard[name].append, 1000)
        self.node.create_subscription(RawStrain, f'/{STRAIN}', self.heard['strain'].append, 1000)
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self.heard['diagnostics'].append, 10)
        self.clients, self.sent, self.stamp, self.rng = {}, [], START, np.random.default_rng(7)
        self.serial = 'SG7'

    def spin(self, until, seconds=20.0):
        """Spin until something holds; whether it did."""
        end = time.monotonic() + seconds
        while not until() and time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.02)
        return bool(until())

    def call_async(self, kind, name, **fields):
        import multibody_estimation.srv as services

        service = getattr(services, kind)
        if name not in self.clients:
            self.clients[name] = self.node.create_client(service, f'/calibrator/{name}')
            assert self.spin(self.clients[name].service_is_ready, 30), f'no service {name}'
        return self.clients[name].call_async(service.Request(**fields))

    def call(self, kind, name, **fields):
        future = self.call_async(kind, name, **fields)
        assert self.spin(future.done, 30), f'{name} did not answer'
        return future.result()

    def hold(self, direction, load=LOADS[0], count=50, before=None, change=None):
        """Publish a body that is turned from ``before`` and held still for ``count`` readings at 100 Hz of header time."""
        from geometry_msgs.msg import Vector3
        from sensor_msgs.msg import Imu

        from multibody_estimation.msg import RawStrain
        from multibody_estimation.nodes.common import to_stamp

        directions = np.array([direction]) if before is None else np.array([before, direction])
        window = simulated_session(
            SENSOR, load, directions, self.rng, name=STRAIN, hold=count / 100, turn=0.2, start=self.stamp, temperature=25.0
        )
        if before is not None:
            window = window.cut(count / 100, 1e9)
        if change is not None:
            window = change(window)
        self.sent.append(window)
        a, w = window['imu/accelerometer'].values, window['imu/gyroscope'].values
        for row, stamp in enumerate(window[STRAIN].stamps):
            strain = RawStrain(counts=window[STRAIN].values[row], temperature=25.0, serial=self.serial)
            strain.saturated = [bool(x) for x in window[f'{STRAIN}/saturated'].values[row]]
            imu = Imu(linear_acceleration=Vector3(x=a[row, 0], y=a[row, 1], z=a[row, 2]))
            imu.angular_velocity = Vector3(x=w[row, 0], y=w[row, 1], z=w[row, 2])
            for message, publisher in ((imu, self.imu), (strain, self.strain)):
                message.header.stamp, message.header.frame_id = to_stamp(int(stamp)), 'wrist'
                publisher.publish(message)
            self.executor.spin_once(timeout_sec=0)
        self.stamp = int(window[STRAIN].stamps[-1]) + 10_000_000

    def matched(self):
        """Wait until the calibrator listens."""
        return self.spin(lambda: self.strain.get_subscription_count() >= 2 and self.imu.get_subscription_count() >= 1, 30)

    def settle(self):
        """Wait until the calibrator has the last message: it came back to us by the same transport, and a moment passed."""
        count = sum(len(w[STRAIN]) for w in self.sent)
        self.spin(lambda: len(self.heard['strain']) >= count, 10)
        end = time.monotonic() + 0.05
        self.spin(lambda: time.monotonic() > end)

    def recording(self):
        """Everything published, as one window."""
        names = list(self.sent[0])
        return Window.gather(
            Signal(n, np.concatenate([w[n].stamps for w in self.sent]), np.concatenate([w[n].values for w in self.sent]), self.sent[0][n].columns)
            for n in names
        )  # fmt: skip


def fields(load):
    from geometry_msgs.msg import Point

    x, y, z = load.center_of_mass
    return {'mass': load.mass, 'center_of_mass': Point(x=float(x), y=float(y), z=float(z))}


@pytest.fixture
def robot(ros_context, start_process, tmp_path):
    (tmp_path / 'data').mkdir()
    result = Robot(ros_context)

    def start(*parameters):
        more = [
            x
            for p in ('sensor:=wrist', f'data_folder:={tmp_path / "data"}', 'sample_seconds:=0.3', *parameters)
            for x in ('-p', p)
        ]
        process = start_process('-m', 'multibody_estimation.nodes', 'calibrator', '--ros-args', *more, name='calibrator')
        assert result.matched(), (tmp_path / 'calibrator.out').read_text()
        return process

    result.start = start
    yield result
    result.node.destroy_node()


def collect_all(robot):
    for load in LOADS:
        before = None
        for u in DIRECTIONS:
            robot.hold(u, load, before=before)
            robot.settle()
            for _ in range(40):
                # On a busy machine the last messages may still be under way: as a technician would, take it again.
                taken = robot.call('TakeSample', 'take_sample', **fields(load))
                if taken.success and 'adds little' not in taken.message:
                    break
                if taken.success:
                    assert robot.call('RemoveSample', 'remove_sample').success
                robot.settle()
            assert taken.success, taken.message
            before = u


def test_from_raw_strain_to_saved_file_to_calibrated_wrench(robot, tmp_path):
    process = robot.start()
    first = robot.call('ComputeCalibration', 'compute_calibration')
    assert not first.success and 'no samples' in first.message
    silent = robot.call('TakeSample', 'take_sample')
    assert not silent.success and 'strain' in silent.message
    robot.hold(DIRECTIONS[0], count=20)

    # Moving, saturated and wrongly described samples are refused with a sentence, and nothing is stored.
    def turning(window):
        gyro = window['imu/gyroscope']
        return replace(window, signals=dict(window.signals) | {'imu/gyroscope': replace(gyro, values=gyro.values + 0.3)})

    def full(window):
        flags = window[f'{STRAIN}/saturated']
        values = flags.values.copy()
        values[-5:, 4] = 1
        return replace(window, signals=dict(window.signals) | {f'{STRAIN}/saturated': replace(flags, values=values)})

    for change, more, sentence in (
        (turning, {}, 'turns at'),
        (full, {}, 'Channel 4 is saturated'),
        (None, {'mass': -1.0}, 'positive'),
        (None, {'seconds': 1e3}, 'the buffer holds'),
    ):
        robot.hold(DIRECTIONS[0], change=change)
        robot.settle()
        refused = robot.call('TakeSample', 'take_sample', **more)
        assert not refused.success and sentence in refused.message and refused.sample_count == 0

    collect_all(robot)
    assert not robot.call('TakeSample', 'take_sample', dataset=str(LOADS[2]), mass=0.3).success
    extra = robot.call('TakeSample', 'take_sample', **fields(LOADS[2]))
    assert extra.success and 'adds little' in extra.message
    assert robot.call('RemoveSample', 'remove_sample', number=extra.number).sample_count == 18
    assert 'no sample 99' in robot.call('RemoveSample', 'remove_sample', number=99).message
    listed = robot.call('ListSamples', 'list_samples')
    assert listed.enough and len(listed.numbers) == 18 and listed.masses[-1] == 0.8 and 'enough' in listed.message
    up = listed.directions[3]
    np.testing.assert_allclose((up.x, up.y, up.z), DIRECTIONS[3], atol=0.02)
    assert robot.heard['wrench'] == []

    # Two at once: one computes, the other is told to wait.
    both = [robot.call_async('ComputeCalibration', 'compute_calibration') for _ in range(2)]
    assert robot.spin(lambda: all(f.done() for f in both), 60)
    answers = sorted((f.result() for f in both), key=lambda r: r.success)
    assert [a.success for a in answers] == [False, True] and 'being computed already' in answers[0].message
    computed = answers[1]
    C, sigma = np.reshape(computed.matrix, (6, 6)), np.reshape(computed.std_devs, (6, 6))
    assert 0.5 < np.sqrt(np.mean(((C - SENSOR.matrix) / sigma) ** 2)) < 2
    assert 0 < computed.held_out_force_rms < 0.2 and 0 < computed.held_out_torque_rms < 0.02

    # What fails now leaves it in force, and nothing is written outside the folder.
    bad = robot.call('ComputeCalibration', 'compute_calibration', method='magic')
    assert not bad.success and 'stays in force' in bad.message
    outside = robot.call('SaveCalibration', 'save_calibration', filename='../outside.yaml')
    assert not outside.success and 'outside the data folder' in outside.message and not (tmp_path / 'outside.yaml').exists()
    saved = robot.call('SaveCalibration', 'save_calibration')
    assert saved.success and saved.path.startswith(str(tmp_path / 'data' / 'SG7_'))
    file = Calibration.load(saved.path)
    np.testing.assert_array_equal(file.matrix, C)
    assert file.serial == 'SG7' and file.date and file.residuals

    # The wrench of a load no sample had, with the stamp and frame of its strain; the raw topic has one publisher, us.
    new, u = Load(0.5, (0.05, -0.05, 0.1)), np.array([0.6, -0.48, 0.64])
    robot.hold(u, new)
    heard = robot.heard
    assert robot.spin(lambda: len(heard['wrench']) >= 50 and len(heard['wrench_compensated']) >= 40), {
        k: len(v) for k, v in heard.items()
    }
    want = gravity_map(SENSOR.body + new.inertia) @ (9.80665 * u)
    got = np.mean([numbers(m) for m in robot.heard['wrench']], axis=0)
    close(got, want, 0.15, 0.02)
    left = np.mean([numbers(m) for m in robot.heard['wrench_compensated']], axis=0)
    close(left, gravity_map(new.inertia) @ (9.80665 * u), 0.15, 0.02)
    wrench = robot.heard['wrench'][-1]
    stamp = wrench.header.stamp.sec * 10**9 + wrench.header.stamp.nanosec
    assert wrench.header.frame_id == 'wrist' and stamp == robot.sent[-1][STRAIN].stamps[-1]
    assert robot.node.count_publishers(f'/{STRAIN}') == 1

    # Tare with what hangs there: compensated, nothing is left.
    robot.settle()
    tared = robot.call('Tare', 'tare', **fields(new))
    assert tared.success and 'Tared' in tared.message
    robot.heard['wrench_compensated'].clear()
    robot.hold(-u, new, before=u)
    assert robot.spin(lambda: len(robot.heard['wrench_compensated']) >= 55)
    left = np.mean([numbers(m) for m in robot.heard['wrench_compensated'][-40:]], axis=0)
    np.testing.assert_allclose(left, 0, atol=0.15)

    # The recording of the same messages gives the same numbers on the command line.
    from multibody_estimation.cli import application
    from multibody_estimation.recording.write import write_bag

    bag = write_bag(tmp_path / 'bag', robot.recording())
    done = CliRunner().invoke(
        application(), ['calibrate-ft', str(bag), '--plan', saved.path, '--output', str(tmp_path / 'again.yaml')]
    )
    assert done.exit_code == 0, done.output
    again = Calibration.load(tmp_path / 'again.yaml')
    for name in ('matrix', 'offset', 'body', 'covariance'):
        np.testing.assert_array_equal(getattr(again, name), getattr(file, name))
    assert process.poll() is None, (tmp_path / 'calibrator.out').read_text()
    assert 'Traceback' not in (tmp_path / 'calibrator.out').read_text()

    # A second start finds the file by the sensor's serial number and calibrates at once.
    process.send_signal(2)
    assert process.wait(10) == 0
    robot.heard['wrench'].clear()
    robot.spin(lambda: robot.strain.get_subscription_count() == 1, 20)
    robot.start('resume:=true')
    robot.hold(u, new)
    assert robot.spin(lambda: len(robot.heard['wrench']) >= 50), (tmp_path / 'calibrator.out').read_text()
    close(numbers(robot.heard['wrench'][-1]), want, 0.5, 0.05)
    # The samples are there again too, so that the work can go on after a crash.
    assert len(robot.call('ListSamples', 'list_samples').numbers) == 18


def close(wrench, want, force, torque):
    np.testing.assert_allclose(wrench[:3], want[:3], atol=force)
    np.testing.assert_allclose(wrench[3:], want[3:], atol=torque)


def numbers(message):
    f, t = message.wrench.force, message.wrench.torque
    return np.array([f.x, f.y, f.z, t.x, t.y, t.z])


def test_guided_collection_takes_new_orientations_and_can_be_cancelled(robot, tmp_path):
    from action_msgs.msg import GoalStatus
    from rclpy.action import ActionClient

    from multibody_estimation.action import CollectSamples

    robot.start()
    client = ActionClient(robot.node, CollectSamples, '/calibrator/collect_samples')
    assert robot.spin(client.server_is_ready, 20)
    feedback = []

    def send(**goal):
        sent = client.send_goal_async(CollectSamples.Goal(**goal), feedback_callback=lambda m: feedback.append(m.feedback))
        assert robot.spin(sent.done)
        return sent.result()

    robot.hold([0, 0, 1.0])
    handle = send(count=4, apart=30.0, timeout=20.0)
    assert handle.accepted
    assert not send(count=1).accepted
    result = handle.get_result_async()
    before, end = np.array([0, 0, 1.0]), time.monotonic() + 40
    # Do as told: turn to where the feedback says, hold still.
    while not result.done() and time.monotonic() < end:
        robot.spin(lambda: result.done() or (feedback and feedback[-1].taken > 0), 0.5)
        if feedback:
            d = feedback[-1].direction
            u = np.array([d.x, d.y, d.z])
            robot.hold(u, before=before)
            before = u
    assert result.done(), feedback[-3:]
    answer = result.result()
    assert (
        answer.status == GoalStatus.STATUS_SUCCEEDED and answer.result.taken == 4 and 'second mass' not in answer.result.message
    )
    assert 'nothing fixes the scale' in answer.result.message
    assert any('degrees away' in f.instruction for f in feedback)
    listed = robot.call('ListSamples', 'list_samples')
    ups = np.array([(d.x, d.y, d.z) for d in listed.directions])
    assert np.max(ups @ ups.T - 2 * np.eye(4)) < np.cos(np.radians(29))

    handle = send(count=3, timeout=20.0)
    result = handle.get_result_async()
    assert robot.spin(handle.cancel_goal_async().done, 5)
    assert robot.spin(result.done, 10)
    assert result.result().status == GoalStatus.STATUS_CANCELED and 'Cancelled' in result.result().result.message
    handle = send(count=3, timeout=0.3)
    result = handle.get_result_async()
    assert robot.spin(result.done, 10)
    assert result.result().status == GoalStatus.STATUS_ABORTED and 'No new sample' in result.result().result.message
    assert 'Traceback' not in (tmp_path / 'calibrator.out').read_text()


def test_file_of_another_sensor_is_not_used_and_that_is_said(robot, tmp_path):
    zero = np.zeros
    Calibration(SENSOR.matrix, zero(6), SENSOR.body, 1e-9 * np.eye(40), serial='other').save(tmp_path / 'data' / 'x.yaml')
    robot.start('calibration_file:=x.yaml', 'status_rate:=5.0')
    robot.hold(DIRECTIONS[0])
    said = lambda: [s.message for m in robot.heard['diagnostics'] for s in m.status if 'not used' in s.message]  # noqa: E731
    assert robot.spin(said, 10) and "of sensor 'other', but this is 'SG7'" in said()[0]
    assert robot.heard['wrench'] == []
    refused = robot.call('SaveCalibration', 'save_calibration')
    assert not refused.success and 'no calibration in force' in refused.message
    # A second sensor on the same topic is left out and counted.
    robot.serial = 'SG8'
    robot.hold(DIRECTIONS[0])
    counted = lambda: [s for m in robot.heard['diagnostics'] for s in m.status if STRAIN in s.name and 'left out' in s.message]  # noqa: E731
    assert robot.spin(counted, 10)


def test_wrong_start_is_a_sentence(start_process, tmp_path):
    for parameter, sentence in (
        ('calibration_file:=none.yaml', "no 'none.yaml' in the data folder"),
        ('sensr:=a', "'sensr' is no parameter of the calibrator. Did you mean 'sensor'"),
        ('imu_rotation:=[0.0, 0.0]', 'quaternion'),
        ('factory_matrix:=[1.0, 2.0]', 'needs 36'),
    ):
        process = start_process(
            '-m', 'multibody_estimation.nodes', 'calibrator', '--ros-args', '-p', parameter, '-p', f'data_folder:={tmp_path}'
        )
        assert process.wait(30) == 1
        text = (tmp_path / 'process.out').read_text()
        assert sentence in text and 'Traceback' not in text, text
