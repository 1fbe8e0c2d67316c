# SPDX-License-Identifier: Apache-2.0
"""A UR5 in MuJoCo with friction and rotor inertias, measured with noise, and its URDF with masses and centres of mass 30 % off."""

import re
from pathlib import Path
from typing import Any

import numpy as np

import multibody_estimation as me
from multibody_estimation import tree

__all__ = ['ARMATURE', 'COULOMB', 'DAMPING', 'JOINTS', 'fourier', 'measure', 'robot', 'start_model', 'urdf_text']

RATE, FINE = 200.0, 10
DAMPING = np.array([8.0, 9.0, 6.0, 2.0, 1.5, 1.0])
COULOMB = np.array([6.0, 8.0, 5.0, 2.0, 1.5, 1.2])
ARMATURE = np.array([0.9, 1.0, 0.7, 0.2, 0.15, 0.1])
JOINTS = ('shoulder_pan_joint', 'shoulder_lift_joint', 'elbow_joint', 'wrist_1_joint', 'wrist_2_joint', 'wrist_3_joint')
LINKS = ('shoulder_link', 'upper_arm_link', 'forearm_link', 'wrist_1_link', 'wrist_2_link', 'wrist_3_link')
ENCODER, TORQUE = 1e-4, 0.01
"""rad; share of each joint's largest torque."""


def urdf_text() -> str:
    """The UR5 of example-robot-data without its meshes."""
    import example_robot_data

    places = [Path(example_robot_data.__file__).parents[k] for k in range(6)]
    found = next(f for p in places for f in p.glob('share/example-robot-data/robots/ur_description/urdf/ur5_robot.urdf'))
    text = found.read_text()
    for tag in ('visual', 'collision', 'gazebo', 'transmission'):
        text = re.sub(rf'<{tag}\b[^>]*?(/>|>.*?</{tag}>)', '', text, flags=re.S)
    return text


def fourier(seed: int, seconds: float, amplitude: float = 0.9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, velocities, accelerations (n, 6) of random finite Fourier series at RATE * FINE, ramped in over a second."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE) * FINE + 1) / (RATE * FINE)
    k = np.arange(1, 6)[:, None] * 2 * np.pi * 0.1
    q, v, a = np.zeros((3, len(t), 6))
    for j in range(6):
        s, c = rng.standard_normal((2, 5, 1))
        scale = amplitude / np.sqrt(((s**2 + c**2) / 2).sum())
        q[:, j] = scale * (s * np.sin(k * t) + c * np.cos(k * t)).sum(0)
        v[:, j] = scale * (k * (s * np.cos(k * t) - c * np.sin(k * t))).sum(0)
        a[:, j] = -scale * (k**2 * (s * np.sin(k * t) + c * np.cos(k * t))).sum(0)
    q += np.array([0.0, -1.2, 0.8, 0.0, 0.5, 0.0])
    return q, v, a


def measure(folder: Path, seed: int, seconds: float, noise: int | None = 0) -> tuple[me.Window, dict[str, np.ndarray]]:
    """Play a motion in MuJoCo with computed torques at 200 Hz; the window, and the clean signals."""
    import mujoco

    path = folder / 'ur5_true.urdf'
    path.write_text(urdf_text())
    model: Any = mujoco.MjModel.from_xml_path(str(path))
    order = [model.joint(n).id for n in JOINTS]
    assert order == list(range(6))
    model.dof_damping[:], model.dof_frictionloss[:], model.dof_armature[:] = DAMPING, COULOMB, ARMATURE
    model.jnt_limited[:] = 0
    model.opt.timestep, model.opt.integrator = 1 / RATE / FINE, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    data = mujoco.MjData(model)
    want, want_v, want_a = fourier(seed, seconds)
    count = (len(want) - 1) // FINE + 1
    data.qpos[:], data.qvel[:] = want[0], want_v[0]
    q, tau = np.zeros((count, 6)), np.zeros((count, 6))
    P, D = 400.0, 40.0
    M, bias = np.zeros((6, 6)), np.zeros(6)
    for k in range(count):
        q[k] = data.qpos
        i = k * FINE
        mujoco.mj_forward(model, data)
        mujoco.mj_fullM(model, M, data.qM) if hasattr(data, 'qM') else mujoco.mj_fullM(model, data, M)
        bias[:] = data.qfrc_bias
        a = want_a[i] + P * (want[i] - data.qpos) + D * (want_v[i] - data.qvel)
        tau[k] = M @ a + bias + DAMPING * data.qvel + COULOMB * np.tanh(want_v[i] / 0.02)
        data.qfrc_applied[:] = tau[k]
        for _ in range(FINE):
            mujoco.mj_step(model, data)
    t = np.arange(count) / RATE
    rng = np.random.default_rng(noise)
    sigma = TORQUE * np.abs(tau).max(axis=0)
    y, u = q + ENCODER * rng.standard_normal(q.shape), tau + sigma * rng.standard_normal(tau.shape)
    window = me.Window.gather([
        me.Signal.from_seconds('encoders', t, y, columns=JOINTS, unit='rad'),
        me.Signal.from_seconds('effort', t, u, columns=JOINTS, unit='N m'),
    ])  # fmt: skip
    return window, {'time': t, 'position': q, 'torque': tau, 'torque_noise': sigma}


def start_model(seed: int = 7) -> tree.Model:
    """The URDF with masses and centres of mass 30 % off."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'ur5.urdf'
        path.write_text(urdf_text())
        model = tree.load_urdf(path)
    sign = np.sign(np.random.default_rng(seed).standard_normal((len(model.link_names), 4)))
    return model.replace(
        mass=np.asarray(model.mass) * (1 + 0.3 * sign[:, 0]),
        center_of_mass=np.asarray(model.center_of_mass) * (1 + 0.3 * sign[:, 1:]),
    )


def robot(model: tree.Model, noise: np.ndarray) -> me.Robot:
    """All inertial parameters, friction and rotor inertias of six joints: 78 numbers."""
    from multibody_estimation.identification.inertia import log_cholesky
    from multibody_estimation.identification.observations import Encoder, Input

    model = model.replace(
        friction_velocity=np.full(6, 0.01), damping=np.full(6, 1.0), coulomb=np.full(6, 1.0), armature=np.full(6, 0.1)
    )
    inputs = [Input('effort', j, noise=float(s)) for j, s in zip(JOINTS, noise)]
    parameters = [me.Parameter(n, x, scale=0.3) for link in LINKS for n, x in log_cholesky(model, link).items()]
    for j in JOINTS:
        parameters += [me.Parameter(f'{j}.damping', 1.0, lower=0.0, scale=1.0), me.Parameter(f'{j}.coulomb', 1.0, lower=0.0, scale=1.0),
                       me.Parameter(f'{j}.armature', 0.1, lower=0.0, scale=0.1)]  # fmt: skip
    return me.Robot('ur5', model, tuple(inputs), (Encoder(joints=JOINTS, noise=ENCODER),), tuple(parameters))
