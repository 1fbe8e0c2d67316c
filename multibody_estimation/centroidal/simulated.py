# SPDX-License-Identifier: Apache-2.0
"""A humanoid's walk with exact truth: what its encoders, IMU and feet would read, and its true centroidal motion.

The base and the soles follow given smooth paths; the twelve leg angles come from inverse kinematics solved to rounding, their
rates and accelerations from the exact Jacobians, so that soles on the ground do not move at all. The center of mass follows a
linear inverted pendulum whose zero-moment point goes from foot to foot (S. Kajita et al., ICRA 2003, as one boundary-value
problem), so that the contact forces are those of a walk. Rates of momentum, hence the total contact wrench, are computed by
pinocchio: an implementation that shares nothing with `tree`. A wrench over two standing feet is split in proportion to a load
that moves smoothly from one to the other; only the sum matters to the center of mass.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import make_interp_spline

from multibody_estimation.centroidal.footsteps import pendulum, plan, smooth
from multibody_estimation.errors import EstimationError
from multibody_estimation.window import Signal, Window

__all__ = ['Walk', 'icub_urdf', 'record', 'simulate_walk']

LEG = ('hip_pitch', 'hip_roll', 'hip_yaw', 'knee', 'ankle_pitch', 'ankle_roll')
STANDING = (0.35, 0.0, 0.0, -0.7, -0.35, 0.0)
GRAVITY = np.array([0.0, 0.0, -9.81])
START = 100.0  # s: a stamp of zero means that there is none
NOISE: dict[str, Any] = {
    'encoders': 2e-4, 'joint_velocities': 0.01, 'imu/accelerometer': 0.03, 'imu/gyroscope': 2e-3, 'imu/orientation': 1e-3,
    'wrench': (1.0, 1.0, 1.0, 0.03, 0.03, 0.03),
}  # fmt: skip
"""Standard deviations of the simulated sensors: rad, rad/s, m/s^2, rad/s, rad, N and N m."""


@dataclass(frozen=True, eq=False)
class Walk:
    """True motion of n samples in world axes: x forward, z up, the ground at z = 0, the first stance around the origin."""

    time: np.ndarray
    """s; (n,)."""
    joint_names: tuple[str, ...]
    positions: np.ndarray
    """Joint angles, rad; (n, nj)."""
    velocities: np.ndarray
    accelerations: np.ndarray
    base_position: np.ndarray
    """m; (n, 3)."""
    base_rotation: np.ndarray
    """Base to world; (n, 3, 3)."""
    states: np.ndarray
    """c, p, L, f (contact and push together), Ldot, as `StateLayout` has them; (n, 15)."""
    push: np.ndarray
    """Force of the push and its moment about the center of mass, N and N m; (n, 6)."""
    soles: np.ndarray
    """Origins of left and right sole, m; (n, 2, 3)."""
    load: np.ndarray
    """Share of the contact wrench that each foot bears; (n, 2)."""
    wrenches: np.ndarray
    """Contact wrench on each sole in the sole's axes about its origin, N and N m; (n, 2, 6)."""
    imu: np.ndarray
    """Specific force, m/s^2, and angular velocity, rad/s, in the IMU's axes; (n, 6)."""
    imu_rotation: np.ndarray
    """IMU to world; (n, 3, 3)."""
    mass: float


def icub_urdf(robot: str = 'iCubGazeboV2_5') -> Path:
    """Path of a URDF that the package icub-models brings."""
    try:
        import icub_models
    except ImportError:
        raise EstimationError('The simulated walk needs the iCub of the package icub-models: pip install icub-models.') from None
    return Path(icub_models.get_model_file(robot))


def simulate_walk(
    urdf: str | Path | None = None,
    *,
    steps: int = 4,
    step_time: float = 0.8,
    double_support: float = 0.25,
    length: float = 0.06,
    period: float = 0.005,
    push: tuple[float, float, tuple[float, float, float]] | None = None,
    soles: tuple[str, str] = ('l_sole', 'r_sole'),
    imu: str = 'chest',
) -> Walk:
    """Walk straight on, arms and trunk swinging; by default the iCub.

    Args:
        urdf: of a humanoid with the iCub's leg joints l_hip_pitch ... r_ankle_roll; soles with x forward and z up.
        steps: number of them; the last one closes up.
        step_time: of one step, s, with its double support of ``double_support`` s.
        length: of a step, m.
        period: between samples, s.
        push: (begin s, duration s, force N in world axes) on the IMU's link, unknown to the feet's sensors.
        soles: links of the left and right sole.
        imu: link that carries the IMU.
    """
    try:
        import pinocchio as pin
    except ImportError:
        raise EstimationError('The simulated walk is computed by pinocchio: pip install pin.') from None
    model = pin.buildModelFromUrdf(str(urdf or icub_urdf()), pin.JointModelFreeFlyer())
    data = model.createData()
    frame = [model.getFrameId(name) for name in (*soles, imu)]
    names = tuple(model.names[2:])
    column = {name: model.joints[model.getJointId(name)].idx_v for name in names}
    legs = [np.array([column[f'{side}_{j}'] for j in LEG]) for side in 'lr']
    mass = pin.computeTotalMass(model)

    # Standing: knees bent, soles level at z = 0, the middle of the feet below the center of mass.
    q = pin.neutral(model)
    for leg in legs:
        q[leg + 1] = STANDING
    pin.framesForwardKinematics(model, data, q)
    upright = data.oMf[frame[0]].rotation.T.copy()
    feet = [upright @ data.oMf[f].translation for f in frame[:2]]
    middle, width = (feet[0] + feet[1]) / 2, feet[0][1] - feet[1][1]
    q[:3], q[3:7] = -middle, pin.Quaternion(upright).coeffs()
    standing = q.copy()
    height = pin.centerOfMass(model, data, q)[2]

    time = np.arange(int(round((1.6 + steps * step_time) / period)) + 1) * period
    sole_paths, load = plan(time, steps, step_time, double_support, length, 0.03, width)
    goal = pendulum(time, np.einsum('ni,nix->nx', load, sole_paths[0])[:, :2], height)
    begin, end = 0.3, time[-1] - 0.3
    ramp = (smooth((time - begin) / 0.5)[0] - smooth((time - end + 0.5) / 0.5)[0]) * np.ones_like(time)
    slow, fast = np.pi / step_time, 2 * np.pi / step_time

    def path(knots):
        """Quintic spline through values at the samples: value and two derivatives."""
        spline = make_interp_spline(time[::4], knots[::4], k=5)
        return np.stack([spline(time), spline(time, 1), spline(time, 2)])

    swing = path(np.stack([0.03 * ramp * np.sin(slow * time), 0.02 * ramp * np.sin(fast * time)], axis=1))  # roll, pitch, rad
    bounce = path(0.004 * ramp * np.sin(fast * time))
    sway = {
        'torso_yaw': 0.08, 'torso_roll': 0.03, 'l_shoulder_pitch': 0.25, 'r_shoulder_pitch': -0.25, 'l_elbow': 0.15,
        'r_elbow': -0.15, 'neck_pitch': 0.05,
    }  # fmt: skip
    upper = {column[j]: path(a * ramp * np.sin(slow * time)) for j, a in sway.items() if j in column}
    rest = {column['l_elbow']: 0.5, column['r_elbow']: 0.5} if 'l_elbow' in column else {}

    ex, ey = np.eye(3)[0], np.eye(3)[1]

    def follow(base, guess):
        """Positions, velocities and accelerations of the whole body for a path of the base (3, n, 3)."""
        n = len(time)
        Q, V, A = np.zeros((n, model.nq)), np.zeros((n, model.nv)), np.zeros((n, model.nv))
        for k in range(n):
            (roll, pitch), (roll_1, pitch_1), (roll_2, pitch_2) = swing[:, k]
            Rx, Ry = pin.exp3(ex * roll), pin.exp3(ey * pitch)
            R = Ry @ Rx @ upright
            turn = upright.T @ (ex * roll_1 + Rx.T @ ey * pitch_1)
            turn_1 = upright.T @ (ex * roll_2 + Rx.T @ ey * pitch_2 - np.cross(ex * roll_1, Rx.T @ ey * pitch_1))
            q, v, a = guess.copy(), np.zeros(model.nv), np.zeros(model.nv)
            q[:3], q[3:7] = base[0, k], pin.Quaternion(R).coeffs()
            v[:3], v[3:6] = R.T @ base[1, k], turn
            a[:3], a[3:6] = R.T @ base[2, k] - np.cross(turn, v[:3]), turn_1
            for i, (value, rate, bend) in upper.items():
                q[i + 1], v[i], a[i] = standing[i + 1] + rest.get(i, 0.0) + value[k], rate[k], bend[k]
            for side, leg in enumerate(legs):
                target = pin.SE3(np.eye(3), sole_paths[0, k, side])
                for _ in range(12):
                    pin.computeJointJacobians(model, data, q)
                    pin.updateFramePlacement(model, data, frame[side])
                    error = pin.log6(data.oMf[frame[side]].actInv(target)).vector
                    jacobian = pin.getFrameJacobian(model, data, frame[side], pin.LOCAL)[:, leg]
                    q[leg + 1] += np.linalg.solve(jacobian, error)
                    if np.abs(error).max() < 1e-12:
                        break
                else:
                    raise EstimationError(
                        f'The {soles[side]} cannot reach its place at {time[k]:.3f} s: take shorter steps (length={length} m).'
                    )
            pin.computeJointJacobians(model, data, q)
            for side, leg in enumerate(legs):
                full = pin.getFrameJacobian(model, data, frame[side], pin.LOCAL)
                v[leg] = np.linalg.solve(full[:, leg], np.r_[sole_paths[1, k, side], 0, 0, 0] - full[:, :6] @ v[:6])
            pin.forwardKinematics(model, data, q, v, a)
            for side, leg in enumerate(legs):
                full = pin.getFrameJacobian(model, data, frame[side], pin.LOCAL)
                drift = pin.getFrameAcceleration(model, data, frame[side], pin.LOCAL).vector
                a[leg] = np.linalg.solve(full[:, leg], np.r_[sole_paths[2, k, side], 0, 0, 0] - drift)
            Q[k], V[k], A[k], guess = q, v, a, q
        return Q, V, A

    base = np.zeros((3, len(time), 3))
    base[:, :, 2] = bounce
    base[0, :, 2] += standing[2]
    correction = standing[:2] - pin.centerOfMass(model, data, standing)[:2] + np.zeros((len(time), 2))
    for last in (False, False, True):  # the legs' swing moves the center of mass within the body: two rounds put it on its path
        base[:, :, :2] = path(goal + correction)
        Q, V, A = follow(base, standing)
        if not last:
            correction += goal - np.array([pin.centerOfMass(model, data, q)[:2] for q in Q])

    n = len(time)
    states, wrenches, pushed, readings, imu_rotation = (
        np.zeros((n, 15)),
        np.zeros((n, 2, 6)),
        np.zeros((n, 6)),
        np.zeros((n, 6)),
        np.zeros((n, 3, 3)),
    )
    for k in range(n):
        pin.computeCentroidalMomentumTimeVariation(model, data, Q[k], V[k], A[k])
        pin.updateFramePlacements(model, data)
        c = pin.centerOfMass(model, data, Q[k])
        force = data.dhg.linear - mass * GRAVITY
        states[k] = np.r_[c, data.hg.linear, data.hg.angular, force, data.dhg.angular]
        placed = data.oMf[frame[2]]
        if push is not None:
            rise, fall = (smooth((time[k] - t) / 0.1)[0] for t in (push[0], push[0] + push[1]))
            pushed[k, :3] = np.array(push[2]) * (rise - fall)
            pushed[k, 3:] = np.cross(placed.translation - c, pushed[k, :3])
        contact = force - pushed[k, :3]
        at = sole_paths[0, k]
        moment = data.dhg.angular - pushed[k, 3:] - sum(np.cross(at[i] - c, load[k, i] * contact) for i in range(2))
        wrenches[k] = load[k][:, None] * np.r_[contact, moment]
        specific = pin.getFrameClassicalAcceleration(model, data, frame[2], pin.LOCAL).linear - placed.rotation.T @ GRAVITY
        readings[k] = np.r_[specific, pin.getFrameVelocity(model, data, frame[2], pin.LOCAL).angular]
        imu_rotation[k] = placed.rotation
    rotation = np.array([pin.Quaternion(q[3:7]).toRotationMatrix() for q in Q])
    return Walk(
        time,
        names,
        Q[:, 7:],
        V[:, 6:],
        A[:, 6:],
        Q[:, :3],
        rotation,
        states,
        pushed,
        sole_paths[0],
        load,
        wrenches,
        readings,
        imu_rotation,
        mass,
    )


def record(
    walk: Walk, *, seed: int = 0, noise: dict | None = None, feet: tuple[str, str] = ('l_sole', 'r_sole'), imu: str = 'chest'
) -> Window:
    """Return what would have been recorded: noisy ``encoders``, ``joint_velocities``, ``imu/...`` and ``ft/left/wrench``, ``ft/right/wrench``."""
    from scipy.spatial.transform import Rotation

    rng, noise = np.random.default_rng(seed), NOISE | dict(noise or {})

    def make(name, clean, unit, columns, size, frame=''):
        values = clean + rng.normal(size=clean.shape) * np.asarray(size)
        return Signal.from_seconds(name, START + walk.time, values, columns=columns, unit=unit, frame=frame, noise=size)

    xyz, wrench = ('x', 'y', 'z'), ('fx', 'fy', 'fz', 'tx', 'ty', 'tz')
    turned = Rotation.from_matrix(walk.imu_rotation) * Rotation.from_rotvec(
        rng.normal(size=(len(walk.time), 3)) * noise['imu/orientation']
    )
    signals = [
        make('encoders', walk.positions, 'rad', walk.joint_names, noise['encoders']),
        make('joint_velocities', walk.velocities, 'rad/s', walk.joint_names, noise['joint_velocities']),
        make('imu/accelerometer', walk.imu[:, :3], 'm/s^2', xyz, noise['imu/accelerometer'], imu),
        make('imu/gyroscope', walk.imu[:, 3:], 'rad/s', xyz, noise['imu/gyroscope'], imu),
        Signal.from_seconds('imu/orientation', START + walk.time, turned.as_quat(), columns=('x', 'y', 'z', 'w'), frame=imu),
        *(make(f'ft/{side}/wrench', walk.wrenches[:, i], 'N, N m', wrench, noise['wrench'], feet[i]) for i, side in enumerate(('left', 'right'))),
    ]  # fmt: skip
    return Window.gather(signals, source=f'simulated walk, seed {seed}')
