# SPDX-License-Identifier: Apache-2.0
"""Inverse dynamics and mass matrix of the iCub (38 degrees of freedom), batch of 1000, against one pinocchio call per sample.

    python -m benchmarks.icub_dynamics

Also printed: the JAX twins, forward dynamics, the latency of a single call, and the time to compile all algorithms with an empty and with
a filled cache. Must: at most 2 pinocchio calls per sample, aim 1; compile under 10 s cold, under 2 s from the cache.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

SAMPLES, REPEATS = 1000, 9
COMPILE = """
import time
import icub_models
from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
model = tree.load_urdf(str(icub_models.get_model_file('iCubGazeboV2_7')), floating=True)
q, v = jnp.asarray(tree.neutral_position(model)), jnp.ones(model.nv)
def everything(q, v, a):
    return (tree.forward_kinematics(model, q), tree.velocities(model, q, v), tree.accelerations(model, q, v, a),
            tree.jacobian(model, q, 'l_hand'), tree.inverse_dynamics(model, q, v, a), tree.mass_matrix(model, q),
            tree.forward_dynamics(model, q, v, a), tree.centroidal_momentum_matrix(model, q),
            tree.centroidal_momentum_rate(model, q, v, a), tree.joint_torque_regressor(model, q, v, a))
start = time.perf_counter()
jax.block_until_ready(jax.jit(everything)(q, v, v))
print(time.perf_counter() - start)
"""


def best(function, per=1):
    """Least of a few timings [us per sample]; the machine is shared."""
    function()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e6 * min(times) / per


def compile_times():
    """Trace and compile all algorithms [s] in fresh processes, with an empty and then with the filled cache."""
    times = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            environment = os.environ | {'JAX_COMPILATION_CACHE_DIR': cache}
            done = subprocess.run(
                [sys.executable, '-c', COMPILE], env=environment, capture_output=True, text=True, timeout=120, check=True
            )
            times.append(float(done.stdout.split()[-1]))
    return times


def main():
    try:
        import icub_models
        import pinocchio as pin
    except ImportError as error:
        print(f'{error.name} is not installed: pip install -e .[bench]')
        print(json.dumps({'name': 'icub_dynamics', 'ours': None, 'peers': None, 'ratio': None, 'holds': None}))
        return
    from multibody_estimation import tree
    from multibody_estimation._jax import jax, jnp
    from multibody_estimation.kernels import tree_dynamics
    from multibody_estimation.tree import dynamics

    path = str(icub_models.get_model_file('iCubGazeboV2_7'))
    peer = pin.buildModelFromUrdf(path, pin.JointModelFreeFlyer())
    data = peer.createData()
    model = tree.load_urdf(path, floating=True, joints=list(peer.names)[2:])
    rng = np.random.default_rng(0)
    Q = np.array([pin.integrate(peer, pin.neutral(peer), 0.5 * rng.normal(size=peer.nv)) for _ in range(SAMPLES)])
    V, A = rng.normal(size=(2, SAMPLES, peer.nv))
    q, v, a = jnp.asarray(Q[:, [0, 1, 2, 6, 3, 4, 5, *range(7, peer.nq)]]), jnp.asarray(V), jnp.asarray(A)

    def each(call):
        def loop():
            for s in range(SAMPLES):
                call(s)

        return loop

    def batch(function):
        program = jax.jit(jax.vmap(lambda *x: function(model, *x)))
        return lambda *x: jax.block_until_ready(program(*x))

    rnea, crba, aba = batch(tree.inverse_dynamics), batch(tree.mass_matrix), batch(tree.forward_dynamics)
    twin_rnea = batch(lambda m, q, v, a: dynamics._inverse_dynamics(m, q, v, a, np.zeros((0, 6))))
    twin_crba = batch(dynamics._mass_matrix)
    upper = np.triu(pin.crba(peer, data, Q[5])).copy()
    pairs = [
        (rnea(q, v, a)[5], pin.rnea(peer, data, Q[5], V[5], A[5])),
        (aba(q, v, a)[5], pin.aba(peer, data, Q[5], V[5], A[5])),
        (np.triu(crba(q)[5]), upper),
    ]
    off = max(float(np.abs(x - y).max() / max(1.0, np.abs(y).max())) for x, y in pairs)

    peers = {
        'rnea': best(each(lambda s: pin.rnea(peer, data, Q[s], V[s], A[s])), SAMPLES),
        'crba': best(each(lambda s: pin.crba(peer, data, Q[s])), SAMPLES),
        'aba': best(each(lambda s: pin.aba(peer, data, Q[s], V[s], A[s])), SAMPLES),
    }
    ours = {
        'rnea': best(lambda: rnea(q, v, a), SAMPLES),
        'crba': best(lambda: crba(q), SAMPLES),
        'aba': best(lambda: aba(q, v, a), SAMPLES),
        'rnea twin': best(lambda: twin_rnea(q, v, a), SAMPLES),
        'crba twin': best(lambda: twin_crba(q), SAMPLES),
    }
    single = {
        'rnea': jax.jit(lambda q, v, a: tree.inverse_dynamics(model, q, v, a)),
        'crba': jax.jit(lambda q, v, a: tree.mass_matrix(model, q)),
        'aba': jax.jit(lambda q, v, a: tree.forward_dynamics(model, q, v, a)),
    }
    x = q[0], v[0], a[0]
    latency = {n: best(each(lambda s, f=f: jax.block_until_ready(f(*x))), SAMPLES) for n, f in single.items()}
    cold, cached = compile_times()

    print(
        f'{model}; kernels {"compiled" if tree_dynamics.ready() else "not built: the JAX twins serve"}; greatest difference {off:.1e}'
    )
    print(f'{"us per sample":14} {"pinocchio call":>14} {"ours, batch":>12} {"ratio":>6} {"JAX twin":>9} {"single call":>12}')
    for n in ('rnea', 'crba', 'aba'):
        twin = f'{ours[n + " twin"]:9.2f}' if n + ' twin' in ours else f'{"":9}'
        print(f'{n:14} {peers[n]:14.2f} {ours[n]:12.2f} {ours[n] / peers[n]:6.2f} {twin} {latency[n]:12.1f}')
    print(f'compile all algorithms: {cold:.1f} s cold (must 10), {cached:.1f} s from the cache (must 2)')
    ratio = max(ours[n] / peers[n] for n in ('rnea', 'crba'))
    print(json.dumps({
        'name': 'icub_dynamics', 'ours': {'us per sample': ours, 'us single call': latency, 'compile s': [cold, cached]}, 'peers': {'pinocchio us': peers},
        'ratio': ratio, 'holds': bool(ratio <= 2 and cold < 10 and cached < 2 and off < 1e-10)}))  # fmt: skip


if __name__ == '__main__':
    main()
