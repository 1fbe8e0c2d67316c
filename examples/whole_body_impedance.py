# SPDX-License-Identifier: Apache-2.0
"""Whole-body impedance control, torques = -Kp (q - rest) - Kd dq + g(q): `python examples/whole_body_impedance.py [URDF]`."""

import re
import sys
from pathlib import Path

import numpy as np

from multibody_estimation import tree
from multibody_estimation._jax import jax

path = Path(sys.argv[1] if len(sys.argv) > 1 else __import__('icub_models').get_model_file('iCubGazeboV2_7'))
model = tree.load_urdf(path)
rest, start = (np.clip(x, model.lower + 0.05, model.upper - 0.05) for x in (np.zeros(model.nv), np.full(model.nv, -0.3)))
impedance = jax.jit(lambda time, q, dq: -30.0 * (q - rest) - 3.0 * dq + tree.gravity_torques(model, q))  # N m/rad, N m s/rad
motion = tree.simulate(model, start, np.zeros(model.nv), 3.0, step=1e-3, command=impedance)
print(f'{model}: own integrator, {np.abs(motion.position[-1] - rest).max():.1e} rad from rest after 3 s')
try:
    import mujoco
except ImportError:
    sys.exit('mujoco is not installed; with it the same controller runs there too: pip install mujoco')
robot = mujoco.MjModel.from_xml_string(re.sub(r'<(visual|collision)\b.*?</\1>', '', path.read_text(), flags=re.S))
data, at, robot.opt.timestep = mujoco.MjData(robot), [robot.joint(n).qposadr[0] for n in model.joint_names], 1e-3
data.qpos[at], apart = start, 0.0
for q in motion.position[1:]:
    data.qfrc_applied[at] = impedance(data.time, data.qpos[at], data.qvel[at])
    mujoco.mj_step(robot, data)
    apart = max(apart, np.abs(data.qpos[at] - q).max())
print(f'MuJoCo: {np.abs(data.qpos[at] - rest).max():.1e} rad from rest after 3 s, the two at most {apart:.1e} rad apart')
