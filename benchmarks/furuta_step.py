# SPDX-License-Identifier: Apache-2.0
"""A step of 1000 Furuta pendulums with friction against MuJoCo's `mj_step`; cost from 2 to 64 bodies; time to compile.

Both run on one core, in turns; the least processor time of several repeats counts, so that other work on the machine does not.
MuJoCo steps inside C (`nstep`), so no Python call is counted for it. The last line is one JSON object; the plot goes to results/furuta_step_scaling.png.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if hasattr(os, 'sched_setaffinity'):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})  # before JAX counts its threads

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.maximal.assemble import place
from multibody_estimation.maximal.model import State
from multibody_estimation.maximal.spook import step
from multibody_estimation.robots import mechanisms

BATCH, STEPS, H = 1000, 10, 2e-3
COMPILE = """
import time
from multibody_estimation._jax import jax, jnp
from multibody_estimation.maximal.spook import step
from multibody_estimation.robots import mechanisms
model = mechanisms.furuta()
state, u = model.rest_state(), jnp.ones(1)
jax.block_until_ready(state.velocity)
begin, cpu = time.perf_counter(), time.process_time()
jax.block_until_ready(jax.jit(step)(model, state, u, 1e-3))
print(time.perf_counter() - begin, time.process_time() - cpu)
"""
HEAD = f'<mujoco><option timestep="{H}"><flag contact="disable"/></option><worldbody>'
FURUTA = (
    f'{HEAD}<body><joint name="arm" axis="0 0 1" damping="0.0014" frictionloss="0.004"/>'
    '<inertial pos="0 0 0" mass="0.2" diaginertia="0.002 0.002 0.002"/>'
    '<body pos="0.2 0 0"><joint name="rod" axis="1 0 0" damping="0.0001" frictionloss="0.0005"/>'
    '<inertial pos="0 0 -0.15" mass="0.1" diaginertia="0.00075 0.000748 0.000004"/></body></body></worldbody>'
    '<actuator><motor joint="arm" gear="0.01"/></actuator></mujoco>'
)


def run(model, state, inputs):
    """States after ``inputs.shape[-1]`` steps."""

    def one(state, u):
        return step(model, state, u, H).state, None

    return jax.lax.scan(one, state, jnp.moveaxis(inputs, -1, 0))[0]


def seconds(f):
    """Processor time of one call."""
    begin = time.process_time()
    jax.block_until_ready(f())
    return time.process_time() - begin


def chain_xml(count):
    """The mechanism `mechanisms.chain` for MuJoCo."""
    rod = '<inertial pos="0 0 -0.125" mass="0.3" diaginertia="0.0015625 0.0015625 0.00001875"/>'
    inner = ''
    for i in reversed(range(count)):
        inner = f'<body pos="0 0 {0 if i == 0 else -0.25}"><joint axis="0 1 0" frictionloss="0.001"/>{rod}{inner}</body>'
    return f'{HEAD}{inner}</worldbody></mujoco>'


def mujoco_stepper(xml, inputs=0.0, spread=0.3, count=1000):
    """Return a function that makes ``count`` steps and takes the time of one, from random positions."""
    import mujoco

    m = mujoco.MjModel.from_xml_string(xml)
    d = mujoco.MjData(m)
    rng = np.random.default_rng(0)

    def timed():
        mujoco.mj_resetData(m, d)
        d.qpos[:] = rng.normal(size=m.nq) * spread
        d.ctrl[:] = inputs
        mujoco.mj_step(m, d, nstep=10)
        begin = time.process_time()
        mujoco.mj_step(m, d, nstep=count)
        return (time.process_time() - begin) / count

    return timed


def batched(repeats=15):
    """Seconds of one step of one of 1000 pendulums, and of one mj_step, measured in turns."""
    model = mechanisms.furuta()
    rng = np.random.default_rng(0)
    pose = place(model, jnp.asarray(rng.normal(size=(2, BATCH)) * 0.3))
    state = State(pose, jnp.zeros((2, 6, BATCH)))
    inputs = jnp.asarray(rng.normal(size=(1, BATCH, STEPS)) * 4)
    f = jax.jit(run)
    jax.block_until_ready(f(model, state, inputs))
    peer = mujoco_stepper(FURUTA, 4.0)
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(seconds(lambda: f(model, state, inputs)) / BATCH / STEPS)
        theirs.append(peer())
    return min(ours), min(theirs)


def scaling():
    """Seconds of a step of a chain with dry friction in every hinge, and of mj_step, by number of bodies."""
    table = []
    for count in (2, 4, 8, 16, 32, 64):
        row = [count]
        for friction in (0.0, 1e-3):
            model = mechanisms.chain(count, coulomb=friction)
            x = jnp.asarray(np.random.default_rng(0).normal(size=count) * 0.05)
            state = State(place(model, x), jnp.zeros((count, 6)))
            steps = max(4, 400 // count) if friction == 0 else max(4, 100 // count)
            inputs = jnp.zeros((0, steps))
            f = jax.jit(run)
            jax.block_until_ready(f(model, state, inputs))
            row.append(min(seconds(lambda f=f, m=model, s=state, u=inputs: f(m, s, u)) for _ in range(3)) / steps)
        peer = mujoco_stepper(chain_xml(count), spread=0.05, count=200)
        row.append(min(peer() for _ in range(3)))
        table.append(row)
        print(f'{row[0]:7d} {1e6 * row[1]:14.1f} {1e6 * row[2]:16.1f} {1e6 * row[3]:14.1f}', flush=True)
    return np.array(table)


def plot(table, path):
    """Draw the scaling."""
    import matplotlib

    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout='constrained')
    for k, label in ((1, 'joints only'), (2, 'dry friction in every hinge'), (3, 'mj_step with friction')):
        axes.loglog(table[:, 0], 1e6 * table[:, k], 'o-', label=label)
    axes.set(xlabel='bodies in a chain', ylabel='one step, us', title='Step of one mechanism on one core')
    axes.grid(True, which='both', alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def compile_times():
    """Seconds (wall, processor) from the first call of a jitted step to its result in a new process: no cache, then its cache.

    Processor time counts all threads, so on an idle machine the wall shows no more; on a busy one only it means something.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            'JAX_COMPILATION_CACHE_DIR': folder,
            'PYTHONPATH': os.pathsep.join(p or '.' for p in sys.path),
        }
        runs = [
            subprocess.run([sys.executable, '-c', COMPILE], env=environment, capture_output=True, text=True, check=True)
            for _ in range(2)
        ]
    return [tuple(map(float, r.stdout.split())) for r in runs]


def main():
    """Print the tables and the verdict."""
    ours, peer = batched()
    print(
        f'one of {BATCH} Furuta pendulums with friction: {1e6 * ours:.2f} us per step; mj_step: {1e6 * peer:.2f} us; ratio {ours / peer:.2f}'
    )
    (cold_wall, cold), (cached_wall, cached) = compile_times()
    print(f'first step of a new process, trace and compile: {cold:.2f} s of processor ({cold_wall:.2f} s wall) with an empty cache, '
          f'{cached:.2f} s ({cached_wall:.2f} s wall) with a filled one')  # fmt: skip
    print(' bodies   joints only, us  with friction, us   mj_step, us')
    table = scaling()
    path = Path('results') / 'furuta_step_scaling.png'
    plot(table, path)
    print(f'plot: {path}')
    print(json.dumps({'name': 'furuta_step', 'ours': ours, 'peers': {'mj_step': peer}, 'ratio': ours / peer, 'compile_cold': cold,
                      'compile_cached': cached, 'scaling': {int(r[0]): [float(x) for x in r[1:]] for r in table},
                      'holds': bool(ours <= 5 * peer and cold < 5 and cached < 1)}))  # fmt: skip


if __name__ == '__main__':
    main()
