# SPDX-License-Identifier: Apache-2.0
"""An iCub in MuJoCo: hardware that was not written here, with encoders, IMUs, F/T sensors, and pushes that are known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.hardware.device import Channel, Device, DeviceLost, Sample
from multibody_estimation.hardware.mujoco_model import build_model, read_urdf
from multibody_estimation.hardware.pace import Pace

__all__ = ['MujocoIcub', 'Push']

POSTURE = {'l_elbow': 0.9, 'r_elbow': 0.9, 'l_shoulder_roll': 0.35, 'r_shoulder_roll': 0.35, 'l_shoulder_pitch': -0.2,
           'r_shoulder_pitch': -0.2}  # fmt: skip
"""Joint angles in rad that differ from zero."""

MOVING = ('l_shoulder_pitch', 'l_elbow', 'r_shoulder_pitch', 'r_elbow', 'torso_yaw', 'neck_yaw')
EDGE = 0.05
"""Seconds over which a push grows and shrinks."""


@dataclass(frozen=True)
class Push:
    """A known external wrench on a link for some time."""

    link: str
    start: float
    """Seconds."""
    duration: float
    force: tuple[float, float, float]
    """N, in world axes."""
    point: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Where it acts, in the link's frame, m."""
    moment: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """N m, in world axes."""

    @classmethod
    def parse(cls, text: str) -> 'Push':
        """Read ``link:start:duration:fx,fy,fz`` (s, s, N)."""
        try:
            link, start, duration, force = text.split(':')
            x, y, z = (float(v) for v in force.split(','))
            return cls(link, float(start), float(duration), (x, y, z))
        except ValueError:
            raise EstimationError(f"'{text}' is no push; write link:start:duration:fx,fy,fz, e.g. l_hand:2:1:0,0,-10.") from None

    def share(self, now: float) -> float:
        """How much of it acts, 0 to 1: a trapezoid."""
        left = min(now - self.start, self.start + self.duration - now)
        return float(np.clip(left / EDGE, 0.0, 1.0))


@dataclass
class MujocoIcub(Device):
    """Topics ``joint_states``, ``imu/<name>/data_raw``, ``ft/<name>/wrench``; the truth on ``truth/wrenches``.

    F/T wrenches are in the frame and the direction that the URDF states. External wrenches are in the frame of the link, about
    its origin, for every link; where the base is held, the holder's wrench on it is one of them.
    """

    model: str = 'iCubGazeboV2_7'
    """Name of a model of the package icub-models, or path of a URDF."""
    rate: float = 100.0
    """Samples per second of all sensors."""
    standing: bool = False
    """False: the base is held in the air. True: it stands on its feet."""
    pushes: tuple = field(default=(), metadata={'separator': ';'})
    """`Push` values, or texts ``link:start:duration:fx,fy,fz`` separated by semicolons."""
    amplitude: float = 0.0
    """Slow motion of arms, torso and head about the posture: rad."""
    frequency: float = 0.3
    """Its frequency in Hz; each joint has a phase of its own."""
    imus: tuple = ('root_link_imu_frame', 'head_imu_0', 'l_arm_ft_imu', 'r_arm_ft_imu')
    """Frames or inertial sensors of the URDF."""
    encoder_noise: float = 1e-4
    """rad"""
    velocity_noise: float = 1e-3
    """rad/s"""
    accelerometer_noise: float = 0.03
    """m/s^2"""
    gyroscope_noise: float = 2e-3
    """rad/s"""
    force_noise: float = 0.2
    """N"""
    torque_noise: float = 0.01
    """N m"""
    settle: float = 1.0
    """Seconds simulated before the first sample."""
    realtime: bool = True
    seed: int = 0
    epoch: int = 0
    """First stamp in ns; 0: now."""

    data: Any = field(default=None, init=False, repr=False)
    """The simulation's `MjData` while it is open."""

    def __post_init__(self) -> None:
        self.pushes = tuple(Push.parse(p) if isinstance(p, str) else p for p in self.pushes)
        try:
            import mujoco  # noqa: F401

            path = self.model
            if not path.endswith('.urdf'):
                import icub_models

                names = sorted(icub_models.get_robot_names())
                if path not in names:
                    raise EstimationError(f"icub-models has no robot '{path}'.{did_you_mean(path, names)}")
                path = icub_models.get_model_file(path)
        except ModuleNotFoundError as error:
            raise EstimationError(f'This device needs {error.name}: pip install mujoco icub-models.') from error
        self.urdf = path
        self._robot = read_urdf(path)
        self._period = 1e-3
        if not 1 <= self.rate <= 1000 or abs(1000 / self.rate - round(1000 / self.rate)) > 1e-9:
            raise EstimationError(f'rate is {self.rate} Hz; it must divide 1000 Hz, the rate of the simulation.')
        self._every = round(1000 / self.rate)
        self._compiled = build_model(self._robot, imus=self.imus, standing=self.standing, step=self._period, stiffness=100.0,
                                     leg_stiffness=1500.0, armature=0.02)  # fmt: skip
        m = self._compiled
        self.links = tuple(m.body(i).name for i in range(1, m.nbody))
        """Links that have a mass, in the order of the truth."""
        for push in self.pushes:
            if push.link not in self.links:
                raise EstimationError(f"Cannot push '{push.link}'.{did_you_mean(push.link, self.links)}")
        self.joints = tuple(m.actuator(i).name for i in range(m.nu))
        self._q = np.array([m.joint(j).qposadr[0] for j in self.joints])
        self._v = np.array([m.joint(j).dofadr[0] for j in self.joints])
        limits = np.array([self._limits(j) for j in self.joints])
        self._posture = np.clip([POSTURE.get(j, 0.0) for j in self.joints], limits[:, 0] + 0.05, limits[:, 1] - 0.05)
        phase = np.random.default_rng(7).uniform(0, 2 * np.pi, len(self.joints))
        self._phase, self._moving = phase, np.array([j in MOVING for j in self.joints], dtype=float)
        self._rng = np.random.default_rng(self.seed)

    def _limits(self, joint: str) -> tuple[float, float]:
        low, high = self._compiled.joint(joint).range
        return (low, high) if high > low else (-np.pi, np.pi)

    @property
    def channels(self) -> tuple[Channel, ...]:
        def three(x: float) -> tuple[float, ...]:
            return (x,) * 3

        joints = {'': (self.encoder_noise,) * len(self.joints), '/velocities': (self.velocity_noise,) * len(self.joints)}
        inertial = {'/accelerometer': three(self.accelerometer_noise), '/gyroscope': three(self.gyroscope_noise)}
        wrench = {'': three(self.force_noise) + three(self.torque_noise)}
        return (
            Channel('joint_states', 'sensor_msgs/msg/JointState', 'encoders', self.joints, rate=self.rate, noise=joints),
            *(Channel(f'imu/{n}/data_raw', 'sensor_msgs/msg/Imu', f'imu/{n}', frame=n, rate=self.rate, noise=inertial)
              for n in self.imus),
            *(Channel(f'ft/{s.name}/wrench', 'geometry_msgs/msg/WrenchStamped', f'ft/{s.name}/wrench', frame=s.child, rate=self.rate,
                      noise=wrench) for s in self._robot.sensors),
            Channel('truth/wrenches', 'multibody_estimation/msg/LinkWrenches', 'truth/wrenches', self.links, rate=self.rate),
        )  # fmt: skip

    def open(self) -> None:
        """Put the robot into its posture and let it settle."""
        import mujoco

        m = self._compiled
        self.data = d = mujoco.MjData(m)
        d.qpos[self._q] = self._posture
        if self.standing:
            mujoco.mj_kinematics(m, d)
            lowest = min(
                (d.geom_xpos[m.geom(f'{foot}_box').id] + d.geom_xmat[m.geom(f'{foot}_box').id].reshape(3, 3) @ (m.geom(f'{foot}_box').size * [a, b, c]))[2]
                for foot in self._robot.feet for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)
            )  # fmt: skip
            d.qpos[2] -= lowest
        self._clock = -self.settle
        for _ in range(round(self.settle / self._period)):
            self._advance()
        self._clock = 0.0
        self._pace = Pace(self.rate, self.realtime, self.epoch)

    def _act(self) -> None:
        """Servo targets and pushes of this instant."""
        m, d, now = self._compiled, self.data, self._clock
        wave = np.sin(2 * np.pi * self.frequency * now + self._phase) - np.sin(self._phase)
        d.ctrl[:] = self._posture + self.amplitude * self._moving * (wave if now > 0 else 0.0)
        d.xfrc_applied[:] = 0.0
        for push in self.pushes:
            share = push.share(now)
            if share:
                body = m.body(push.link).id
                arm = d.xpos[body] + d.xmat[body].reshape(3, 3) @ push.point - d.xipos[body]
                force = share * np.array(push.force)
                d.xfrc_applied[body] += np.concatenate([force, share * np.array(push.moment) + np.cross(arm, force)])

    def _advance(self) -> None:
        import mujoco

        # Positions of bodies are those of the last step; renew them so that a push acts at its point of this instant.
        mujoco.mj_kinematics(self._compiled, self.data)
        mujoco.mj_comPos(self._compiled, self.data)
        self._act()
        mujoco.mj_step(self._compiled, self.data)
        self._clock += self._period

    def read(self, timeout: float) -> list[Sample]:
        """Measure the next instant (in real time: wait for it), then simulate on to the one after."""
        import mujoco

        if self.data is None:
            raise DeviceLost('The simulated iCub is not open.')
        stamp = self._pace.wait(timeout)
        if stamp is None:
            return []
        mujoco.mj_kinematics(self._compiled, self.data)
        mujoco.mj_comPos(self._compiled, self.data)
        self._act()
        mujoco.mj_forward(self._compiled, self.data)
        mujoco.mj_rnePostConstraint(self._compiled, self.data)
        self._truth = self._state()
        samples = self._measure(stamp)
        for _ in range(self._every):
            self._advance()
        return samples

    def _noise(self, values: Any, *std: float) -> list[float]:
        values = np.asarray(values, dtype=float)
        return (values + np.repeat(std, len(values) // len(std)) * self._rng.normal(size=len(values))).tolist()

    def _measure(self, stamp: int) -> list[Sample]:
        d = self.data
        parts = {
            '': self._noise(d.qpos[self._q], self.encoder_noise),
            '/velocities': self._noise(d.qvel[self._v], self.velocity_noise),
        }
        out = [Sample('joint_states', stamp, parts)]
        for name in self.imus:
            a, w = d.sensor(f'{name}/accelerometer').data, d.sensor(f'{name}/gyroscope').data
            parts = {
                '/accelerometer': self._noise(a, self.accelerometer_noise),
                '/gyroscope': self._noise(w, self.gyroscope_noise),
            }
            out.append(Sample(f'imu/{name}/data_raw', stamp, parts))
        for sensor in self._robot.sensors:
            wrench = np.concatenate([d.sensor(f'{sensor.name}/force').data, d.sensor(f'{sensor.name}/torque').data])
            # MuJoCo gives what the parent exerts on the child.
            wrench = wrench if sensor.on_child else -wrench
            out.append(Sample(f'ft/{sensor.name}/wrench', stamp, {'': self._noise(wrench, self.force_noise, self.torque_noise)}))
        out.append(Sample('truth/wrenches', stamp, {'': self.external_wrenches().ravel().tolist()}))
        return out

    def external_wrenches(self) -> np.ndarray:
        """True wrench that the world exerts on each link now: force, moment about the link's origin, link axes; (nl, 6), N, N m."""
        m, d = self._compiled, self.data
        R = d.xmat[1:].reshape(-1, 3, 3)
        center = d.subtree_com[m.body_rootid[1:]]
        total = d.cfrc_ext[1:].copy()
        if not self.standing:
            total[0] += d.cfrc_int[1]
        force = total[:, 3:]
        moment = total[:, :3] + np.cross(center - d.xpos[1:], force)
        return np.concatenate([np.einsum('kji,kj->ki', R, force), np.einsum('kji,kj->ki', R, moment)], axis=1)

    def state(self) -> Mapping[str, np.ndarray]:
        """True state at the last sample.

        ``position``, ``velocity``, ``acceleration`` of the joints (rad, s); of the base in the world ``base_position``,
        ``base_rotation``, ``base_velocity`` and ``base_acceleration`` (of its origin, world axes, m, s), ``base_spin`` and
        ``base_spin_rate`` (its own axes, rad, s).
        """
        return self._truth

    def _state(self) -> dict[str, np.ndarray]:
        d = self.data
        v, a = (d.qvel, d.qacc) if self.standing else (np.zeros(6), np.zeros(6))
        return {
            'position': d.qpos[self._q].copy(), 'velocity': d.qvel[self._v].copy(), 'acceleration': d.qacc[self._v].copy(),
            'base_position': d.xpos[1].copy(), 'base_rotation': d.xmat[1].reshape(3, 3).copy(),
            'base_velocity': v[:3].copy(), 'base_spin': v[3:6].copy(), 'base_acceleration': a[:3].copy(), 'base_spin_rate': a[3:6].copy(),
        }  # fmt: skip

    def close(self) -> None:
        """Forget the simulation."""
        self.data = None
