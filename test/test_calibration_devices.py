# SPDX-License-Identifier: Apache-2.0
"""Calibration with devices: strain boards on a CAN bus, the simulated sensor through driver and calibrator, a replayed bag."""

import time

import numpy as np
import pytest

from multibody_estimation.calibration import Calibration, Load, StrainSensor
from multibody_estimation.calibration.model import GRAVITY, gravity_map
from multibody_estimation.calibration.planner import sphere_points
from multibody_estimation.calibration.readings import Readings
from multibody_estimation.calibration.session import Session, compute, take
from multibody_estimation.calibration.simulated import simulated_session

LOADS = (Load(), Load(1.0, (0.1, 0, 0.05)), Load(0.8, (0, 0.1, 0.05)))


def wrench_error(matrix, sensor):
    """Relative error of the wrench over loads and orientations no sample had."""
    w = GRAVITY * sphere_points(50) @ gravity_map(sensor.body + Load(0.7, (0.04, 0.03, 0.08)).inertia).T
    return np.linalg.norm(np.linalg.solve(sensor.matrix, w.T).T @ matrix.T - w) / np.linalg.norm(w)


def test_strain_boards_on_a_can_bus_are_calibrated():
    """Frames as the boards send them, through the device, with whole counts, temperature and saturation flags."""
    can = pytest.importorskip('can', reason='python-can is not installed')
    from multibody_estimation.hardware.can_strain import CanStrain, force_torque_frames, temperature_frame

    sensor = StrainSensor.random(5, strain_noise=2.0, acceleration_noise=0.005)
    device = CanStrain(port='calibration', interface='virtual', boards=('13:l_arm',), configure=False)
    device.open()
    rng, session, stamp = np.random.default_rng(0), Session('can0:13'), 10**9
    with can.Bus(channel='calibration', interface='virtual') as boards:

        def send(frame):
            boards.send(can.Message(arbitration_id=frame[0], data=frame[1], is_extended_id=False))

        for load in LOADS:
            for u in sphere_points(7):
                wrench = np.tile(gravity_map(sensor.body + load.inertia) @ (GRAVITY * u), (20, 1))
                send(temperature_frame(13, 31.5))
                for counts in sensor.counts(wrench, rng):
                    for frame in force_torque_frames(13, counts):
                        send(frame)
                samples = [s for _ in range(4) for s in device.read(0.005)]
                assert len(samples) == 20
                # The bus stamps all of a burst alike; a period apart, as on a real one.
                strain = [(stamp + 10_000_000 * i, np.array(s.parts['']), np.array(s.parts['/saturated']) > 0, s.parts['/temperature'][0]) for i, s in enumerate(samples)]  # fmt: skip
                a = sensor.accelerometer(np.tile(GRAVITY * u, (20, 1)), rng)
                imu = [(row[0], a[i], np.zeros(3)) for i, row in enumerate(strain)]
                session, sample = take(session, Readings.gather(strain, imu), 0.2, load)
                assert sample.count == 20 and sample.temperature == 31.5
                stamp += 10**9
        full = force_torque_frames(13, [0, 32767, 0, 0, 0, 0])
        for frame in full:
            send(frame)
        (flagged,) = (s for _ in range(2) for s in device.read(0.05))
        assert list(np.array(flagged.parts['/saturated']) > 0) == [False, True, False, False, False, False]
    device.close()
    assert wrench_error(compute(session).calibration.matrix, sensor) < 0.01


class Client:
    """Calls the calibrator and listens to the driver."""

    def __init__(self, context):
        import rclpy
        from geometry_msgs.msg import WrenchStamped
        from rclpy.executors import SingleThreadedExecutor

        from multibody_estimation.msg import RawStrain

        self.node = rclpy.create_node('technician', context=context)
        self.executor = SingleThreadedExecutor(context=context)
        self.executor.add_node(self.node)
        self.strain, self.wrench = [], []
        self.node.create_subscription(RawStrain, '/ft/wrist/strain', self.strain.append, 2000)
        self.node.create_subscription(WrenchStamped, '/ft/wrist/wrench', self.wrench.append, 2000)

    def spin(self, until, seconds=30.0):
        end = time.monotonic() + seconds
        while not until() and time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.02)
        return bool(until())

    def client(self, kind, name):
        import multibody_estimation.srv as services

        client = self.node.create_client(getattr(services, kind), f'/calibrator/{name}')
        assert self.spin(client.service_is_ready), f'no service {name}'

        def call(**fields):
            future = client.call_async(getattr(services, kind).Request(**fields))
            assert self.spin(future.done), f'{name} did not answer'
            return future.result()

        return call

    @property
    def now(self):
        return self.strain[-1].header.stamp.sec * 10**9 + self.strain[-1].header.stamp.nanosec if self.strain else 0


def test_simulated_sensor_through_driver_and_calibrator(ros_context, start_process, tmp_path):
    """Two processes besides this one: a driver with the simulated sensor, turned and loaded in real time, and the calibrator."""
    from geometry_msgs.msg import Point

    from multibody_estimation.hardware.simulated_strain import SimulatedStrain

    texts = ('0', '1.0:0.1,0,0.05', '0.8:0,0.1,0.05')
    epoch, hold, turn, each = 2_000_000_000_000_000_000, 0.6, 0.2, 5
    schedule = SimulatedStrain(orientations=each, hold=hold, turn=turn, loads=texts, seed=3).schedule()
    sensor = SimulatedStrain(seed=3).sensor
    me = Client(ros_context)
    start_process('-m', 'multibody_estimation.nodes', 'calibrator', '--ros-args', '-p', 'sensor:=wrist', '-p', f'data_folder:={tmp_path}',
                  '-p', 'sample_seconds:=0.3', name='calibrator')  # fmt: skip
    take, remove, compute_now, save = (
        me.client(*x) for x in (('TakeSample', 'take_sample'), ('RemoveSample', 'remove_sample'),
                                ('ComputeCalibration', 'compute_calibration'), ('SaveCalibration', 'save_calibration'))
    )  # fmt: skip
    options = [
        'name=wrist',
        f'orientations={each}',
        f'hold={hold}',
        f'turn={turn}',
        f'epoch={epoch}',
        'loads=' + ';'.join(texts),
    ]  # noqa: F541
    text = '[' + ', '.join(f"'{o}'" for o in options) + ']'
    start_process('-m', 'multibody_estimation.nodes', 'driver', '--ros-args', '-p', 'device:=simulated_strain', '-p', 'seed:=3',
                  '-p', f'options:={text}', name='driver')  # fmt: skip
    assert me.spin(lambda: me.strain, 30), (tmp_path / 'driver.out').read_text()
    round_seconds, taken = len(schedule) * (hold + turn), set()
    end = time.monotonic() + 90
    while len(taken) < len(schedule) and time.monotonic() < end:

        def place():
            """Which orientation is held now, and for how long already."""
            since = ((me.now - epoch) / 1e9) % round_seconds
            k = int(since / (hold + turn))
            return k, since - k * (hold + turn)

        k, since = place()
        if k in taken or not 0.33 < since < hold - 0.02:
            me.spin(lambda: False, 0.02)
            continue
        x, y, z = schedule[k].load.center_of_mass
        answer = take(mass=schedule[k].load.mass, center_of_mass=Point(x=x, y=y, z=z))
        if answer.success and place()[0] == k:
            taken.add(k)
        elif answer.success:
            # On a busy machine the hand has moved on before the answer came; then nobody knows what was taken.
            assert remove(number=answer.number).success
    assert len(taken) == len(schedule), (tmp_path / 'calibrator.out').read_text()[-2000:]
    computed = compute_now()
    assert computed.success, computed.message
    assert wrench_error(np.reshape(computed.matrix, (6, 6)), sensor) < 0.02
    saved = save(filename='wrist.yaml')
    assert saved.success and Calibration.load(saved.path).serial == 'SIM003'
    me.wrench.clear()
    assert me.spin(lambda: len(me.wrench) > 20, 20)
    me.node.destroy_node()


def test_replayed_bag_gives_the_wrenches_of_the_recording(ros_context, start_process, tmp_path):
    """A bag played over and over by the driver through the calibrator: every wrench is the one computed from the window."""
    from multibody_estimation.recording.write import write_bag

    sensor = StrainSensor.random(4)
    calibration = Calibration(sensor.matrix, sensor.offset, sensor.body, 1e-9 * np.eye(40), serial='wrist')
    calibration.save(tmp_path / 'wrist.yaml')
    window = simulated_session(
        sensor, LOADS[1], sphere_points(3), np.random.default_rng(0), name='ft/wrist/strain', hold=0.8, turn=0.4
    )
    bag = write_bag(tmp_path / 'bag', window)
    me = Client(ros_context)
    start_process('-m', 'multibody_estimation.nodes', 'calibrator', '--ros-args', '-p', 'sensor:=wrist', '-p', f'data_folder:={tmp_path}',
                  '-p', 'calibration_file:=wrist.yaml', name='calibrator')  # fmt: skip
    me.client('ListSamples', 'list_samples')
    start_process('-m', 'multibody_estimation.nodes', 'driver', '--ros-args', '-p', 'device:=replay', '-p', f'bag:={bag}',
                  '-p', "options:=['loop=true']", name='driver')  # fmt: skip
    stamps = window['ft/wrist/strain'].stamps.tolist()
    heard = set()

    def complete():
        heard.update(stamp_of(m) for m in me.wrench[-50:])
        return heard.issuperset(stamps)

    assert me.spin(complete, 60), (tmp_path / 'driver.out').read_text()
    expected = dict(zip(stamps, calibration.wrench(window['ft/wrist/strain'].values, 25.0)))
    for message in me.wrench:
        f, t = message.wrench.force, message.wrench.torque
        np.testing.assert_allclose((f.x, f.y, f.z, t.x, t.y, t.z), expected[stamp_of(message)], rtol=1e-12, atol=1e-12)
    me.node.destroy_node()


def stamp_of(message):
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
