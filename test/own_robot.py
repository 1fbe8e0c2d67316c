# SPDX-License-Identifier: Apache-2.0
"""Recordings of the example robots, made by MuJoCo from their URDF with other numbers: an independent oracle."""

from pathlib import Path

import mujoco
import numpy as np

import multibody_estimation as me

ROBOTS = Path(__file__).resolve().parent.parent / 'examples' / 'robots'
RATE, FINE = 200.0, 10

TRUTH = {
    'cart_pole': {'cart.mass': 0.6, 'pole.center_of_mass.z': -0.2, 'pole.inertia.yy': 2e-3, 'slide.damping': 0.8, 'slide.coulomb': 0.3,
                  'hinge.damping': 3e-4},
    'double_pendulum': {'upper.center_of_mass.z': -0.12, 'upper.inertia.yy': 1.6e-3,
                        'lower.inertia.yy': 1.2e-3, 'shoulder.damping': 3e-3, 'elbow.damping': 1.5e-3},
    'two_joint_arm': {'upper_arm.center_of_mass.x': 0.13, 'upper_arm.inertia.yy': 2.8e-3, 'forearm.center_of_mass.x': 0.13,
                      'forearm.inertia.yy': 1.6e-3, 'shoulder.damping': 0.02, 'elbow.damping': 2e-3},
}  # fmt: skip


def simulate(name: str, seconds: float = 6.0, seed: int = 0) -> me.Window:
    """Encoders and, where there is a motor, the command, at 200 Hz."""
    model = mujoco.MjModel.from_xml_path(str(ROBOTS / f'{name}.urdf'))
    for key, value in TRUTH[name].items():
        part, field, *axis = key.split('.')
        if field in ('damping', 'coulomb'):
            dof = model.jnt_dofadr[model.joint(part).id]
            (model.dof_damping if field == 'damping' else model.dof_frictionloss)[dof] = value
            continue
        body = model.body(part).id
        if field == 'mass':
            model.body_mass[body] = value
        elif field == 'center_of_mass':
            model.body_ipos[body, 'xyz'.index(axis[0])] = value
        else:
            # MuJoCo keeps the moments in principal axes, which it has sorted.
            turn = np.zeros(9)
            mujoco.mju_quat2Mat(turn, model.body_iquat[body])
            turn = turn.reshape(3, 3)
            whole = turn @ np.diag(model.body_inertia[body]) @ turn.T
            whole['xyz'.index(axis[0][0]), 'xyz'.index(axis[0][1])] = value
            assert np.allclose(whole, np.diag(np.diag(whole)))
            model.body_inertia[body], model.body_iquat[body] = np.diag(whole), (1, 0, 0, 0)
    mujoco.mj_setConst(model, data := mujoco.MjData(model))
    model.opt.timestep, model.opt.integrator = 1 / RATE / FINE, mujoco.mjtIntegrator.mjINT_RK4
    driven = {'cart_pole': 'slide', 'two_joint_arm': 'shoulder'}.get(name)
    count = int(seconds * RATE) + 1
    t = np.arange(count) / RATE
    strength = {'slide': 2.5, 'shoulder': 0.5}.get(driven, 0.0)
    u = (
        strength * (np.cos(2 * np.pi * (0.7 * t + 0.1 * t**2)) + 0.5 * np.sin(2 * np.pi * 0.9 * t + 1.0))
        if driven
        else np.zeros(count)
    )
    data.qpos[:] = {'double_pendulum': (1.2, -0.6)}.get(name, (0.0, 0.1))
    q = np.zeros((count, model.nq))
    for k in range(count):
        q[k] = data.qpos
        if driven:
            data.qfrc_applied[model.jnt_dofadr[model.joint(driven).id]] = u[k]
        for _ in range(FINE):
            mujoco.mj_step(model, data)
    assert all(abs(q[:, i]).max() < model.jnt_range[i, 1] for i in range(model.njnt) if model.jnt_limited[i]), 'a stop was hit'
    noise = np.array([2e-4, 1e-3]) if name == 'cart_pole' else np.array([1e-3, 1e-3])
    joints = tuple(model.joint(i).name for i in range(model.njnt))
    y = q + noise * np.random.default_rng(seed).standard_normal(q.shape)
    signals = [me.Signal.from_seconds('encoders', t, y, columns=joints, unit='rad')]
    if driven:
        signals.append(me.Signal.from_seconds('command', t, u[:, None], columns=(driven,), unit='N m'))
    return me.Window.gather(signals, source=f'MuJoCo {name}', truth=TRUTH[name])
