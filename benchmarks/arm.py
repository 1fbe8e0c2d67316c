# SPDX-License-Identifier: Apache-2.0
"""Inertial parameters, friction and rotor inertias of a UR5 from noisy encoders and torques, beside FIGAROH on the same signals.

Ratio: our error of the torques on a motion that nobody has seen, against the true model, over that of the best of FIGAROH's estimators
(ordinary and weighted least squares, each with the best of several cut-off frequencies of its filter, chosen by the truth: in its favour).
"""

import contextlib
import io
import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import arm_data

SECONDS = 25.0
CUTOFFS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Hz, of the Butterworth filter; 2 is FIGAROH's default, the motion ends at 0.5."""


def torques(
    path: Path, friction: tuple[np.ndarray, np.ndarray, np.ndarray], q: np.ndarray, v: np.ndarray, a: np.ndarray
) -> np.ndarray:
    """Joint torques (n, 6) by Pinocchio from a URDF, with viscous, dry friction and rotors."""
    import pinocchio as pin

    model = pin.buildModelFromUrdf(str(path))
    data = model.createData()
    rigid = np.array([pin.rnea(model, data, *sample) for sample in zip(q, v, a)])
    return rigid + friction[0] * v + friction[1] * np.sign(v) + friction[2] * a


def ours(folder: Path, window: Any, noise: np.ndarray) -> tuple[Path, tuple, float, float, Any]:
    """Identified URDF, friction, seconds of the first and of a second solve."""
    from multibody_estimation.identification.arm_identify import identify_arm
    from multibody_estimation.robots.urdf_writer import write_urdf

    robot = arm_data.robot(arm_data.start_model(), noise)
    began = time.perf_counter()
    fit = identify_arm(robot, [window], robot.parameters)
    first = time.perf_counter() - began
    began = time.perf_counter()
    fit = identify_arm(robot, [window], robot.parameters, problem=fit.problem)
    warm = time.perf_counter() - began
    (folder / 'ur5.urdf').write_text(arm_data.urdf_text())
    path = write_urdf(fit.robot.model, folder / 'ur5.urdf', folder / 'ur5.identified.urdf')
    friction = tuple(np.array([fit[f'{j}.{what}'] for j in arm_data.JOINTS]) for what in ('damping', 'coulomb', 'armature'))
    return path, friction, first, warm, fit


def figaroh(start: Path, window: Any, cutoff: float, weighted: bool, held: tuple) -> tuple[np.ndarray, Any, Any]:
    """Torques (n, 6) that FIGAROH predicts for held = (q, v, a), its base parameters and how they come from all."""
    import pinocchio as pin
    from figaroh.identification.base_identification import BaseIdentification as Base
    from figaroh.tools.qrdecomposition import QRDecomposer
    from figaroh.tools.regressor import RegressorBuilder, RegressorConfig, build_regressor_reduced, get_index_eliminate
    from scipy.signal import decimate

    model = pin.buildModelFromUrdf(str(start))
    builder = RegressorBuilder(
        SimpleNamespace(model=model, data=model.createData()), RegressorConfig(has_friction=True, has_actuator_inertia=True)
    )
    config = {'act_idxv': list(range(6))}
    t, y, tau = window.seconds('encoders'), window['encoders'].values, window['effort'].values
    # A torque is held from its stamp on: what acts at a stamp is the mean of two, half a sample late otherwise.
    tau = np.vstack([tau[:1], 0.5 * (tau[1:] + tau[:-1])])
    # As its examples do: filter positions, differentiate twice, cut the ends, decimate regressor and torque by ten.
    q, u = Base._apply_filters(None, y, tau, f_butter=cutoff, f_sample=arm_data.RATE)
    v = Base._differentiate_signal(None, t, q)
    a = Base._differentiate_signal(None, t, v)
    ends = slice(100, -100)
    q, v, a, u = q[ends], v[ends], a[ends], u[ends]
    names = [f'p{i}' for i in range(13 * 6)]
    W = builder.build_basic_regressor(q, v, a, config)
    drop, kept = get_index_eliminate(W, dict.fromkeys(names, 0.0), 0.001)
    W = build_regressor_reduced(W, drop)
    n = len(q)
    W = np.vstack([decimate(W[j * n : (j + 1) * n], 10, axis=0) for j in range(6)])
    u = np.concatenate([decimate(u[:, j], 10) for j in range(6)])
    decomposer = QRDecomposer(tolerance=1e-6, relative_tolerance=1e-4)
    base, _, _, phi, _ = decomposer.double_decomposition(u, W, list(kept), dict.fromkeys(names, 0.0))
    if weighted:
        spread = Base._calculate_joint_variances(SimpleNamespace(phi_base=phi), base, u, 6)[1]
        own = SimpleNamespace(_compute_wls_standard_deviations=lambda *_: None)
        phi = Base._solve_weighted_least_squares(own, base, u, spread)[0]
    index = list(decomposer.get_base_indices())
    new = build_regressor_reduced(builder.build_basic_regressor(*held, config), drop)
    return (new[:, index] @ phi).reshape(6, -1).T, phi, (new, index, drop)


def parameters(path: Path, friction: tuple) -> np.ndarray:
    """All parameters in the order of FIGAROH's regressor, (78,)."""
    import pinocchio as pin

    model = pin.buildModelFromUrdf(str(path))
    return np.concatenate([*(model.inertias[i].toDynamicParameters() for i in range(1, 7)), *friction])


def main() -> None:
    """Run both and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        window, clean = arm_data.measure(folder, 1, SECONDS)
        q, v, a = (x[:: 5 * arm_data.FINE] for x in arm_data.fourier(2, 20.0))
        true = folder / 'ur5_true.urdf'
        truth = (arm_data.DAMPING, arm_data.COULOMB, arm_data.ARMATURE)
        target = torques(true, truth, q, v, a)
        size = np.sqrt(np.mean(target**2, axis=0))

        def error(predicted: np.ndarray) -> float:
            return float(np.sqrt(np.mean(((predicted - target) / size) ** 2)))

        path, friction, first, warm, fit = ours(folder, window, clean['torque_noise'])
        mine = error(torques(path, friction, q, v, a))
        print(f'ours: torque error {100 * mine:.3f} % of rms; first solve {first:.1f} s, warm {warm:.1f} s, {fit.iterations} iterations, '
              f'{len(fit.names)} parameters, n = {len(window["encoders"])}, converged: {fit.converged}')  # fmt: skip
        from multibody_estimation.robots.urdf_writer import write_urdf

        start = write_urdf(arm_data.start_model(), folder / 'ur5.urdf', folder / 'ur5.start.urdf')
        print(f'start: torque error {100 * error(torques(start, (np.ones(6), np.ones(6), np.full(6, 0.1)), q, v, a)):.1f} %')
        results: list[tuple[float, str, Any, Any]] = []
        for weighted in (False, True):
            for cutoff in CUTOFFS:
                with contextlib.redirect_stdout(io.StringIO()):
                    predicted, phi, how = figaroh(start, window, cutoff, weighted, (q, v, a))
                label = f'{"weighted" if weighted else "ordinary"} least squares, {cutoff:g} Hz'
                results.append((error(predicted), label, phi, how))
                print(f'figaroh {label}: {100 * results[-1][0]:.3f} %')
        best = min(results, key=lambda r: r[0])
        new, index, drop = best[3]
        keep = [i for i in range(78) if i not in set(drop)]

        def regroup(everything: np.ndarray) -> np.ndarray:
            return np.linalg.lstsq(new[:, index], new @ everything[keep], rcond=None)[0]

        right = regroup(parameters(true, truth))
        scale = np.maximum(np.abs(right), 0.01 * np.abs(right).max())
        off = [float(np.median(np.abs(x - right) / scale)) for x in (regroup(parameters(path, friction)), best[2])]
        print(f'base parameters ({len(right)}), median relative error: ours {100 * off[0]:.2f} %, figaroh {100 * off[1]:.2f} %')
        ratio = mine / best[0]
        print(json.dumps({'name': 'arm', 'ours': {'torque_error': mine, 'base_parameters': off[0], 'seconds_warm': warm, 'seconds_first': first},
                          'peers': {'figaroh': {'torque_error': best[0], 'base_parameters': off[1], 'estimator': best[1]}}, 'ratio': ratio,
                          'holds': bool(ratio <= 1 and off[0] <= off[1] and warm < 20)}))  # fmt: skip


if __name__ == '__main__':
    main()
