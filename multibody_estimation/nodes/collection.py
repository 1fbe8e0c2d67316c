# SPDX-License-Identifier: Apache-2.0
"""Guided collection of static samples: the action of the calibrator."""

import time
from typing import Any

import numpy as np
from geometry_msgs.msg import Vector3
from rclpy.action import GoalResponse

from multibody_estimation.action import CollectSamples
from multibody_estimation.calibration import session as sessions
from multibody_estimation.calibration.gating import why_not_static
from multibody_estimation.calibration.guide import instruction, next_direction, worth_taking
from multibody_estimation.calibration.model import Load
from multibody_estimation.errors import EstimationError
from multibody_estimation.window import NANOSECONDS

__all__ = ['Collection', 'load_of', 'vector']


def load_of(request: Any) -> Load:
    """Load of a request."""
    c = request.center_of_mass
    return Load(request.mass, (c.x, c.y, c.z))


def vector(v: np.ndarray) -> Vector3:
    """Three numbers as a message."""
    return Vector3(x=float(v[0]), y=float(v[1]), z=float(v[2]))


class Collection:
    """Says where to turn the body, and takes a sample whenever it is held still in a new orientation."""

    def __init__(self, node: Any) -> None:
        self.node, self.busy = node, False

    def accept(self, goal: Any) -> GoalResponse:
        """Accept one guided collection at a time."""
        if self.busy:
            self.node.get_logger().warning('A guided collection is running already. Cancel it first.')
            return GoalResponse.REJECT
        self.busy = True
        return GoalResponse.ACCEPT

    async def collect(self, handle: Any) -> Any:
        """Say where to turn the body, take a sample whenever it is held still in a new orientation."""
        result = CollectSamples.Result()
        try:
            done = await self.guide(handle, result)
        except EstimationError as error:
            done = False
            result.message = str(error)
        finally:
            self.busy = False
        result.success, result.sample_count = done, len(self.node.session.samples)
        if not handle.is_cancel_requested:
            handle.succeed() if done else handle.abort()
        else:
            handle.canceled()
        self.node.get_logger().info(result.message)
        return result

    async def guide(self, handle: Any, result: Any) -> bool:
        """Take the samples of a goal; true where all were taken."""
        goal = handle.request
        load = load_of(goal)
        name, count = sessions.check_dataset(self.node.session, load, goal.dataset), goal.count or 8
        seconds, apart = goal.seconds or self.node.settings.sample_seconds, goal.apart or 20.0
        wanted, patience = next_direction(self.node.session, load, name), goal.timeout or 120.0
        last, told = time.monotonic(), ''
        while result.taken < count:
            if handle.is_cancel_requested:
                result.message = f'Cancelled after {result.taken} of {count} samples; they are kept.'
                return False
            if time.monotonic() - last > patience:
                result.message = f'No new sample for {patience:g} s, {result.taken} of {count} taken; they are kept. {told}'
                return False
            up = self.node.imu[-1][1] if self.node.imu else None
            told, still = '', False
            try:
                readings = self.node.readings(seconds)
                end = sessions.last_instant(readings, seconds)
                part = readings.between(end - int(seconds * NANOSECONDS), end)
                told = why_not_static(part, self.node.session.gates)
                still = not told
                if still:
                    up = part.acceleration.mean(axis=0)
                    short = worth_taking(self.node.session.samples, name, up, apart)
                    if not short:
                        self.node.session, sample = sessions.take(self.node.session, readings, seconds, load, name)
                        result.taken += 1
                        self.node.keep()
                        last = time.monotonic()
                        wanted = next_direction(self.node.session, load, name)
                        told = f'Sample {sample.number} is taken.'
                    else:
                        told = f'This orientation is taken already; turn {short:.0f} degrees further.'
            except EstimationError as error:
                told = str(error)
            words = f'{told} {instruction(wanted, up)}'.strip() if result.taken < count else told
            angle = sessions.angle(wanted, up) if up is not None and np.linalg.norm(up) > 0 else 180.0
            handle.publish_feedback(CollectSamples.Feedback(
                instruction=words, direction=vector(wanted), angle=angle, still=still, taken=result.taken))  # fmt: skip
            await self.node.moment(2)
        result.message = f"{result.taken} samples of '{name}' are taken. {sessions.advice(self.node.session)}"
        return True
