# SPDX-License-Identifier: Apache-2.0
"""Calibrator node: raw strain and IMU in, calibrated wrench out, and the services with which a technician calibrates the sensor.

The session is a value (`calibration.session`); what fails leaves it, and with it the calibration in force, as it was. Raw strain is
never changed: wrenches go to topics of their own. Files are written below ``data_folder`` only.
"""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import WrenchStamped
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.task import Future

from multibody_estimation.action import CollectSamples
from multibody_estimation.calibration import session as sessions
from multibody_estimation.calibration.gating import Gates
from multibody_estimation.calibration.guide import what_next
from multibody_estimation.calibration.offline import rotation_matrix
from multibody_estimation.calibration.readings import Readings
from multibody_estimation.errors import EstimationError
from multibody_estimation.nodes.collection import Collection, load_of, vector
from multibody_estimation.nodes.common import below, declare, diagnostic, publish_diagnostics, run
from multibody_estimation.nodes.inputs import Inputs
from multibody_estimation.recording.topics import stamp_of
from multibody_estimation.srv import ComputeCalibration, ListSamples, RemoveSample, SaveCalibration, TakeSample, Tare
from multibody_estimation.window import NANOSECONDS

__all__ = ['Calibrator', 'main']

TICK = 0.05
"""Seconds between two looks at work that is under way."""


class Calibrator(Node):
    """Thin shell around `calibration.session`."""

    def __init__(self) -> None:
        super().__init__('calibrator')
        s = self.settings = declare(self, 'calibrator')
        gates = Gates(
            s.max_angular_rate, s.max_norm_error, s.max_acceleration_std_dev, s.max_strain_std_dev, saturation=s.saturation
        )
        self.session = sessions.Session(factory=self.factory(), gates=gates)
        self.rotation = rotation_matrix(s.imu_rotation)
        self.trouble = ''
        if s.calibration_file:
            self.session = sessions.load(self.session, below(s.data_folder, s.calibration_file, exists=True))
            self.get_logger().info(
                f'In force: {s.calibration_file}, {self.session.calibration.serial} of {self.session.calibration.date}.'
            )
        self.strain: deque[tuple] = deque()
        self.imu: deque[tuple] = deque()
        self.pending: deque[tuple] = deque(maxlen=2000)
        self.frame = ''
        self.computing = False
        self.waiting: list[Future] = []
        self.worker = ThreadPoolExecutor(1, 'calibration')
        base = f'ft/{s.sensor}'
        self.strain_topic = self.resolve_topic_name(f'{base}/strain')
        self.wrench = self.create_publisher(WrenchStamped, f'{base}/wrench', 1000)
        self.compensated = self.create_publisher(WrenchStamped, f'{base}/wrench_compensated', 1000)
        self.diagnostics = self.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self.inputs = Inputs(self, [f'{base}/strain', s.imu_topic], self.take, qos=s.qos)
        # What waits for a thread or for a person must not keep the messages waiting.
        together = ReentrantCallbackGroup()
        self.create_service(TakeSample, '~/take_sample', self.take_sample)
        self.create_service(RemoveSample, '~/remove_sample', self.remove_sample)
        self.create_service(ListSamples, '~/list_samples', self.list_samples)
        self.create_service(SaveCalibration, '~/save_calibration', self.save_calibration)
        self.create_service(Tare, '~/tare', self.tare)
        self.create_service(ComputeCalibration, '~/compute_calibration', self.compute_calibration, callback_group=together)
        self.collection = Collection(self)
        self.action = ActionServer(self, CollectSamples, '~/collect_samples', self.collection.collect, goal_callback=self.collection.accept,
                                   cancel_callback=lambda goal: CancelResponse.ACCEPT, callback_group=together)  # fmt: skip
        self.create_timer(TICK, self.tick, callback_group=together)
        self.create_timer(1.0 / s.status_rate, self.tell)

    def factory(self) -> np.ndarray | None:
        """Factory matrix from the parameter, or None."""
        numbers = np.asarray(self.settings.factory_matrix, dtype=float)
        if numbers.size not in (1, 36):
            raise EstimationError(f'factory_matrix has {numbers.size} numbers; it needs 36, row by row, or a single 0 for none.')
        return numbers.reshape(6, 6) if numbers.size == 36 else None

    # Messages

    def take(self, topic: str, kind: str, message: Any, raw: bytes | None) -> None:
        """Buffer a message; a strain also becomes wrenches where a calibration is in force."""
        stamp = stamp_of(message)
        if stamp <= 0:
            raise EstimationError('its header has no stamp, and without the time of a reading strain and IMU cannot be paired.')
        rows = self.strain if topic == self.strain_topic else self.imu
        if rows and stamp < rows[-1][0] - NANOSECONDS:
            # A bag that starts anew, or a clock that was set: what is buffered belongs to another time.
            self.strain.clear()
            self.imu.clear()
            self.pending.clear()
        if rows is self.strain:
            counts = np.array(message.counts)
            if not np.isfinite(counts).all():
                raise EstimationError('its counts are not finite.')
            self.know(message.serial or self.settings.sensor)
            self.frame = message.header.frame_id
            rows.append((stamp, counts, np.array(message.saturated), message.temperature))
            self.publish(message, counts)
        else:
            a, w = message.linear_acceleration, message.angular_velocity
            a, w = self.rotation @ (a.x, a.y, a.z), self.rotation @ (w.x, w.y, w.z)
            if message.linear_acceleration_covariance[0] == -1:
                raise EstimationError('it carries no acceleration.')
            if message.angular_velocity_covariance[0] == -1:
                w = np.zeros(3)
            if not (np.isfinite(a).all() and np.isfinite(w).all()):
                raise EstimationError('its acceleration or angular velocity is not finite.')
            rows.append((stamp, a, w))
        oldest = rows[-1][0] - int(self.settings.buffer_seconds * NANOSECONDS)
        while rows[0][0] < oldest:
            rows.popleft()
        self.compensate()

    def know(self, serial: str) -> None:
        """Learn which sensor this is, and put its newest calibration in force where none was named."""
        if serial == self.session.serial:
            return
        if self.session.serial:
            raise EstimationError(
                f"it comes from sensor '{serial}', but '{self.session.serial}' came before. One sensor per topic."
            )
        self.session = replace(self.session, serial=serial)
        if self.settings.resume:
            try:
                self.session = sessions.resume(self.session, self.settings.data_folder)
                self.get_logger().info(f'{len(self.session.samples)} samples of an earlier session were taken up.')
            except EstimationError as error:
                self.trouble = str(error)
                self.get_logger().error(self.trouble)
        calibration = self.session.calibration
        if calibration is not None and calibration.serial and calibration.serial != serial:
            self.session = replace(self.session, calibration=None)
            self.trouble = (
                f"{self.settings.calibration_file} is the calibration of sensor '{calibration.serial}', but this is '{serial}': it is not "
                'used. Set calibration_file, or calibrate this sensor.'
            )
            self.get_logger().error(self.trouble)
        elif calibration is None and (path := sessions.newest(self.settings.data_folder, serial)) is not None:
            try:
                self.session = sessions.load(self.session, path)
                self.get_logger().info(f'In force: {path}, of {self.session.calibration.date}.')
            except EstimationError as error:
                self.trouble = str(error)
                self.get_logger().error(self.trouble)

    def publish(self, message: Any, counts: np.ndarray) -> None:
        """Publish the wrench of a strain message, and what is left of it without the weight."""
        calibration = self.session.calibration
        if calibration is None:
            return
        w = calibration.wrench(counts, message.temperature)
        self.wrench.publish(self.stamped(message, w))
        self.pending.append((stamp_of(message), message, w))

    def compensate(self) -> None:
        """Publish without the weight what the accelerometer has caught up with: gravity as it was at the time of the strain.

        Pairing by stamps instead of by arrival, a bag gives the same wrenches as the robot did.
        """
        while self.pending and self.imu and self.imu[-1][0] >= self.pending[0][0]:
            stamp, message, w = self.pending.popleft()
            nearest, up = NANOSECONDS // 10, None
            for row in reversed(self.imu):
                apart = abs(row[0] - stamp)
                if apart < nearest:
                    nearest, up = apart, row[1]
                if row[0] <= stamp:
                    break
            if up is not None and self.session.calibration is not None:
                self.compensated.publish(self.stamped(message, self.session.calibration.compensated(w, up)))

    def stamped(self, message: Any, w: np.ndarray) -> WrenchStamped:
        """Return a wrench with the stamp and frame of the strain it was made of."""
        out = WrenchStamped(header=message.header)
        out.wrench.force, out.wrench.torque = vector(w[:3]), vector(w[3:])
        return out

    def readings(self, seconds: float) -> Readings:
        """Return what came in the last ``seconds``; a sentence where a topic is silent."""
        if silent := self.inputs.look(patience=2.0, tell=False):
            raise EstimationError(' '.join(silent))
        if seconds > self.settings.buffer_seconds:
            raise EstimationError(f'{seconds:g} s were asked for, but the buffer holds {self.settings.buffer_seconds:g} s.')
        margin = int((seconds + 1.0) * NANOSECONDS)
        strain, imu = ([row for row in rows if row[0] >= rows[-1][0] - margin] for rows in (self.strain, self.imu))
        return Readings.gather(strain, imu, self.session.serial)

    # Services

    def answer(self, response: Any, success: bool, message: str) -> Any:
        """Complete and log a response."""
        response.success, response.message = success, message
        if hasattr(response, 'sample_count'):
            response.sample_count = len(self.session.samples)
        if success:
            self.get_logger().info(message)
        else:
            self.get_logger().warning(message)
        return response

    def take_sample(self, request: Any, response: Any) -> Any:
        """Average what came last into a sample."""
        seconds = request.seconds or self.settings.sample_seconds
        try:
            self.session, sample = sessions.take(self.session, self.readings(seconds), seconds, load_of(request), request.dataset)
        except EstimationError as error:
            return self.answer(response, False, str(error))
        kept = self.keep()
        near, other = sessions.nearest(self.session, sample)
        hint = f' It is only {near:.0f} degrees from sample {other} and adds little; turn the body further.' if near < 10 else ''
        response.number = sample.number
        return self.answer(response, True, f'Sample {sample.number}: {sample}.{hint}{kept}')

    def remove_sample(self, request: Any, response: Any) -> Any:
        """Take a sample or a dataset out."""
        try:
            self.session, gone = sessions.remove(self.session, request.number, request.dataset)
        except EstimationError as error:
            return self.answer(response, False, str(error))
        return self.answer(response, True, f'Removed {", ".join(f"sample {s.number}" for s in gone)}.{self.keep()}')

    def keep(self) -> str:
        """Write the samples down, so that they survive a crash; a sentence where that fails."""
        try:
            sessions.keep_samples(self.session, self.settings.data_folder)
        except EstimationError as error:
            return f' {error}'
        return ''

    def list_samples(self, request: Any, response: Any) -> Any:
        """Say what there is and what it is good for."""
        wanted = request.wanted if request.wanted > 0 else 0.05
        found = sessions.advice(self.session, wanted=wanted)
        lines = [f'{s.number}: {s}' for s in self.session.samples]
        following = what_next(self.session, wanted=wanted) if found.rank == 40 else ''
        response.message = '\n'.join([*lines, str(found), *([following] if following else [])])
        response.enough, response.accuracy = found.enough, float(found.relative)
        response.numbers = [s.number for s in self.session.samples]
        response.datasets = [s.dataset for s in self.session.samples]
        response.masses = [s.load.mass for s in self.session.samples]
        response.directions = [vector(s.acceleration / np.linalg.norm(s.acceleration)) for s in self.session.samples]
        return response

    async def compute_calibration(self, request: Any, response: Any) -> Any:
        """Calibrate in a thread, so that wrenches go on; put the result in force when it is there."""
        if self.computing:
            return self.answer(response, False, 'A calibration is being computed already. Wait for its answer.')
        self.computing = True
        try:
            job = self.worker.submit(sessions.compute, self.session, request.method)
            while not job.done():
                await self.moment()
            done = job.result()
        except EstimationError as error:
            kept = ' The earlier calibration stays in force.' if self.session.calibration is not None else ''
            return self.answer(response, False, f'{error}{kept}')
        finally:
            self.computing = False
        # Samples taken meanwhile stay; they are in the next calibration.
        self.session = replace(self.session, calibration=done.calibration, quality=done.quality)
        self.trouble = ''
        c = done.calibration
        response.matrix, response.std_devs, response.offset = c.matrix.ravel(), c.standard_deviation.ravel(), c.offset
        response.mass = c.mass[0]
        response.force_rms, response.torque_rms = (
            float(x) for x in np.sqrt(np.mean(np.square(list(c.residuals.values())), axis=0))
        )
        response.held_out_force_rms, response.held_out_torque_rms = (
            done.quality.overall if done.quality is not None else (np.nan, np.nan)
        )
        return self.answer(response, True, str(c))

    def save_calibration(self, request: Any, response: Any) -> Any:
        """Write the calibration in force below the data folder."""
        try:
            response.path = str(sessions.save(self.session, self.settings.data_folder, request.filename))
        except EstimationError as error:
            return self.answer(response, False, str(error))
        return self.answer(response, True, f'Saved {response.path} with {len(self.session.samples)} samples.')

    def tare(self, request: Any, response: Any) -> Any:
        """Set the offset from what came last."""
        seconds = request.seconds or self.settings.sample_seconds
        try:
            readings = self.readings(seconds)
            self.session = sessions.tare(self.session, readings, seconds, load_of(request), to_zero=request.to_zero)
        except EstimationError as error:
            return self.answer(response, False, str(error))
        response.offset = self.session.calibration.offset
        return self.answer(response, True, self.session.calibration.notes[-1])

    # Time

    async def moment(self, ticks: int = 1) -> None:
        """Let the executor go on; resume after so many ticks."""
        for _ in range(ticks):
            future: Future = Future()
            self.waiting.append(future)
            await future

    def tick(self) -> None:
        """Resume what waits."""
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            future.set_result(None)

    def tell(self) -> None:
        """Publish the state of the inputs and of the calibration."""
        silent = self.inputs.look()
        c = self.session.calibration
        said, level = ('calibrated', 'ok') if c is not None else ('No calibration in force: no wrench is published.', 'warn')
        values: dict[str, Any] = {'serial': self.session.serial, 'samples': len(self.session.samples)}
        if c is not None:
            values |= {'date': c.date, 'body mass [kg]': c.mass[0], 'notes': ' '.join(c.notes)}
            values |= {f'{k} force RMS [N]': f for k, (f, _) in c.residuals.items()}
            values |= {f'{k} torque RMS [N m]': t for k, (_, t) in c.residuals.items()}
        if self.count_publishers(self.wrench.topic_name) > 1:
            level, said = 'warn', f'{said} Somebody else publishes {self.wrench.topic_name} too.'
        if self.trouble or silent:
            level, said = 'error', ' '.join([said, self.trouble, *silent])
        own = diagnostic(f'{self.get_name()}: state', level, said, values, self.session.serial)
        publish_diagnostics(self.diagnostics, self, [own, *self.inputs.statuses(self.get_name())])

    def close(self) -> None:
        """End the worker."""
        self.worker.shutdown(wait=False, cancel_futures=True)


def main(args: list[str] | None = None) -> None:
    """Run the calibrator."""
    run(Calibrator, args)
