# SPDX-License-Identifier: Apache-2.0
"""Maximum-a-posteriori dynamics of the iCub, 728 variables: our sweep against iDynTree's BerdySparseMAPSolver, in one run.

    python -m benchmarks.icub_map

Both solve the same problem (force/torque sensors, accelerometers, gyroscopes, joint accelerations, external wrenches, diagonal priors)
from joint positions and velocities to the estimate, kinematics included. Blocks of both are timed in turn, the least time of each
counts: the machine may be busy.
"""

import json
import os
import time

os.environ.setdefault('OMP_NUM_THREADS', '1')

import numpy as np

MODEL = 'iCubGazeboV2_7'
CONTACTS = ('l_foot', 'r_foot', 'l_hand', 'r_hand', 'root_link')
LIMITS = {'single': 0.05, 'batch': 0.02, 'jax_single': 0.5, 'jax_batch': 0.3, 'marginals_single': 2.0, 'marginals_batch': 2.0}


class Quiet:
    """Silence what C++ prints."""

    def __enter__(self):
        self.out, self.err, null = os.dup(1), os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)

    def __exit__(self, *_):
        os.dup2(self.out, 1), os.dup2(self.err, 2)


class Berdy:
    """iDynTree's solver with all sensors of the model, all joint accelerations and all external wrenches."""

    def __init__(self, urdf: str, base: str = ''):
        import idyntree.bindings as idt

        self.idt = idt
        with Quiet():
            loader = idt.ModelLoader()
            assert loader.loadModelFromFile(urdf)
            self.model = m = loader.model().copy()
            if base:
                m.setDefaultBaseLink(m.getLinkIndex(base))
            o = idt.BerdyOptions()
            o.berdyVariant = idt.BERDY_FLOATING_BASE
            o.includeAllJointAccelerationsAsSensors, o.includeAllJointTorquesAsSensors = True, False
            o.includeAllNetExternalWrenchesAsSensors = o.includeAllNetExternalWrenchesAsDynamicVariables = True
            if base:
                o.baseLink = base
            self.helper = h = idt.BerdyHelper()
            assert h.init(m, o)
            self.solver = idt.BerdySparseMAPSolver(h)
            self.solver.initialize()
        self.variables, self.equations, self.size = (
            h.getNrOfDynamicVariables(),
            h.getNrOfDynamicEquations(),
            h.getNrOfSensorsMeasurements(),
        )
        self.n = m.getNrOfDOFs()
        self.q, self.dq = idt.JointPosDoubleArray(m), idt.JointDOFsDoubleArray(m)
        self.w, self.y, self.found = idt.Vector3(), idt.VectorDynSize(self.size), idt.VectorDynSize(self.variables)
        self.base = m.getLinkIndex(base) if base else 0
        self.joints = [m.getJointName(j) for j in range(m.getNrOfJoints()) if m.getJoint(j).getNrOfDOFs() == 1]
        offset = {m.getJointName(j): m.getJoint(j).getDOFsOffset() for j in range(m.getNrOfJoints())}
        self.joints.sort(key=offset.get)

    def diagonal(self, values):
        M = self.idt.SparseMatrixColMajor(len(values), len(values))
        for i, x in enumerate(values):
            M.setValue(i, i, float(x))
        return M

    def priors(self, equation, variable, measurement, mean):
        """Set variances and the mean of the variables."""
        s = self.solver
        s.setDynamicsConstraintsPriorCovariance(self.diagonal(equation))
        s.setDynamicsRegularizationPriorCovariance(self.diagonal(variable))
        s.setMeasurementsPriorCovariance(self.diagonal(measurement))
        s.setDynamicsRegularizationPriorExpectedValue(self.idt.VectorDynSize.FromPython(mean))

    def load(self, q, dq, w, y):
        for k in range(self.n):
            self.q.setVal(k, float(q[k])), self.dq.setVal(k, float(dq[k]))
        for k in range(3):
            self.w.setVal(k, float(w[k]))
        for k in range(self.size):
            self.y.setVal(k, float(y[k]))

    def step(self):
        self.solver.updateEstimateInformationFloatingBase(self.q, self.dq, self.base, self.w, self.y)
        self.solver.doEstimate()

    def solve(self, *sample):
        self.load(*sample)
        self.step()
        self.solver.getLastEstimate(self.found)
        return self.found.toNumPy().copy()

    def sensors(self):
        """Name and rows of each sensor of its measurement vector, in our names."""
        i = self.idt
        words = {i.SIX_AXIS_FORCE_TORQUE_SENSOR: '{}', i.ACCELEROMETER_SENSOR: '{}', i.GYROSCOPE_SENSOR: '{}',
                 i.DOF_ACCELERATION_SENSOR: 'joint_acceleration/{}', i.NET_EXT_WRENCH_SENSOR: 'external/{}'}  # fmt: skip
        return [(words[s.type].format(s.id), s.type, s.range.offset, s.range.size) for s in self.helper.getSensorsOrdering()]

    def variable_rows(self):
        """Kind (6 acceleration, 4 external wrench, 2 joint wrench, 5 joint acceleration), name and first row of each variable."""
        return [(e.type, e.id, e.range.offset) for e in self.helper.getDynamicVariablesOrdering()]


def our_setup(model, berdy, variance, equation, prior, mean=0.0):
    """The same problem in our words: constant variances."""
    from multibody_estimation.wrench import Prior, WrenchSensor, WrenchSetup, joint_sensors, model_sensors
    from multibody_estimation.wrench.tree_nodes import build_nodes

    std = float(np.sqrt(variance))
    sensors = list(model_sensors(model, {'force_torque': std, 'accelerometer': std, 'gyroscope': std}))
    sensors += joint_sensors(model, 'joint_acceleration', std)
    links = [model.link_names[k] for k in build_nodes(model, WrenchSetup(())).links]
    sensors += [WrenchSensor(f'external/{link}', 'external_wrench', link, std) for link in links]
    by_name = {s.name: s for s in sensors}
    ordered = [by_name[name] for name, *_ in berdy.sensors()]
    wide = Prior(float(np.sqrt(prior)), mean)
    noise = {'*': float(np.sqrt(equation))}
    return WrenchSetup(
        tuple(ordered), floating=True, contacts=dict.fromkeys(links, wide), equation_noise=noise, motion_noise=noise,
        joint_acceleration={'*': wide}, acceleration={'*': wide}, joint_wrench={'*': wide},
    )  # fmt: skip


def our_vector(program, berdy, found, k=0):
    """Our estimate in iDynTree's order."""
    link = {name: i for i, name in enumerate(program.link_names)}
    out = np.zeros(berdy.variables)
    child = {name: i for i, name in enumerate(program.nodes.joint_names) if name}
    for kind, name, at in berdy.variable_rows():
        if kind == 6:
            out[at : at + 6] = found.accelerations[k, link[name]]
        elif kind == 4:
            out[at : at + 6] = found.external_wrenches[k, link[name]]
        elif kind == 2:
            out[at : at + 6] = found.joint_wrenches[k, child[name]]
        else:
            out[at] = found.joint_accelerations[k, program.joint_names.index(name)]
    return out


def least(actions, rounds, seconds):
    """Least time per call of each action, in turn."""
    best = dict.fromkeys(actions, np.inf)
    end = time.perf_counter() + seconds
    for r in range(rounds):
        for name, (action, inner) in actions.items():
            begin = time.perf_counter()
            for _ in range(inner):
                action()
            best[name] = min(best[name], (time.perf_counter() - begin) / inner)
        if time.perf_counter() > end and r >= 4:
            break
    return best


def main() -> None:
    """Print the table and one JSON object."""
    try:
        import icub_models
        import idyntree.bindings  # noqa: F401
    except ModuleNotFoundError as error:
        print(f'{error.name} is not installed: pip install idyntree icub-models.')
        print(json.dumps({'name': 'icub_map', 'ours': None, 'peers': {}, 'ratio': None, 'holds': None}))
        return
    from multibody_estimation._jax import jax, jnp
    from multibody_estimation.kernels import available
    from multibody_estimation.tree import load_urdf
    from multibody_estimation.wrench import compile_wrench, solve
    from multibody_estimation.wrench.posterior import block, compiled

    urdf = str(icub_models.get_model_file(MODEL))
    berdy = Berdy(urdf)
    berdy.priors(
        np.full(berdy.equations, 1e-4), np.full(berdy.variables, 1e4), np.full(berdy.size, 1e-3), np.full(berdy.variables, 1e-4)
    )
    model = load_urdf(urdf, floating=True, joints=berdy.joints)
    program = compile_wrench(model, our_setup(model, berdy, 1e-3, 1e-4, 1e4, 1e-4))
    rng = np.random.default_rng(0)
    N = 1000
    q, dq, w, y = (
        0.3 * rng.normal(size=(N, berdy.n)),
        0.3 * rng.normal(size=(N, berdy.n)),
        0.1 + 0.1 * rng.normal(size=(N, 3)),
        rng.normal(size=(N, berdy.size)),
    )
    found = solve(program, q, dq, w, y)
    worst = max(
        np.abs(our_vector(program, berdy, found, k) - berdy.solve(q[k], dq[k], w[k], y[k])).max() for k in range(0, N, 50)
    )
    print(
        f'{berdy.variables} variables, {berdy.equations} equations, {berdy.size} measurements; largest difference from iDynTree {worst:.1e}'
    )
    chosen = tuple(block(program, ('external_wrench', link)) for link in CONTACTS)
    one, many = (tuple(jnp.asarray(x[:n]) for x in (q, dq, w, y)) for n in (1, N))

    def call(data, select=(), twin=False):
        run = compiled(program.layout, select, False, twin)
        begin = time.perf_counter()
        jax.block_until_ready(run(program.table, *data, None, None))
        print(
            f'  first call, {len(data[0])} samples, {"JAX" if twin else "kernel"}{", marginals" if select else ""}: {time.perf_counter() - begin:.2f} s',
            flush=True,
        )
        return lambda: jax.block_until_ready(run(program.table, *data, None, None))

    berdy.load(q[0], dq[0], w[0], y[0])
    kernel = available('wrench_sweep')
    fast = {'idyntree': (berdy.step, 10)}
    if kernel:
        fast |= {'single': (call(one), 50), 'marginals_single': (call(one, chosen), 50), 'batch': (call(many), 1)}
        fast |= {'marginals_batch': (call(many, chosen), 1)}
    slow = {'idyntree': (berdy.step, 10), 'jax_single': (call(one, twin=True), 20), 'jax_batch': (call(many, twin=True), 1)}
    times = least(slow, rounds=15, seconds=20)
    peer = times.pop('idyntree')
    times |= least(fast, rounds=300, seconds=40)
    times['idyntree'] = min(peer, times['idyntree'])
    for name in times:
        times[name] /= N if name.endswith('batch') else 1
    ratios = {name: times[name] / times['idyntree'] for name in ('single', 'batch', 'jax_single', 'jax_batch') if name in times}
    if kernel:
        ratios |= {f'marginals_{x}': times[f'marginals_{x}'] / times[x] for x in ('single', 'batch')}
    for name, seconds in times.items():
        print(
            f'{name:<18} {1e6 * seconds:9.1f} us per sample'
            + (f'   ratio {ratios[name]:.4f}, at most {LIMITS[name]}' if name in ratios else '')
        )
    holds = kernel and worst < 1e-10 and all(ratios[name] <= limit for name, limit in LIMITS.items())
    print(json.dumps({
        'name': 'icub_map', 'ours': times.get('single', times['jax_single']), 'peers': {'idyntree': times['idyntree']},
        'ratio': ratios.get('single', ratios['jax_single']), 'holds': bool(holds) if kernel else None,
        'ratios': ratios, 'limits': LIMITS, 'difference': worst, 'microseconds': {k: 1e6 * v for k, v in times.items()},
    }))  # fmt: skip


if __name__ == '__main__':
    main()
