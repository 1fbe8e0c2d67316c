# SPDX-License-Identifier: Apache-2.0
"""The main job from end to end on real DDS: a simulated Furuta pendulum is driven, recorded, identified and judged against its truth."""

import datetime
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rclpy.action import ActionClient
from std_srvs.srv import Trigger

from multibody_estimation import robots
from multibody_estimation.action import Identify
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import Fit
from multibody_estimation.identification.prediction import predict_windows
from multibody_estimation.nodes.client import Client
from multibody_estimation.nodes.processes import Processes
from multibody_estimation.recording.bag import read_bag
from multibody_estimation.srv import SaveWindow

__all__ = ['demo']

SECONDS, HELD_OUT, AHEAD = 10.0, 2.0, 0.5
FAR = 5.0
"""Standard deviations from the truth at which the demo fails; thirteen right estimates stay below it but once in a hundred thousand runs."""


def bar(done: float, width: int = 20) -> str:
    """A progress bar for 0 to 1."""
    full = round(width * min(max(done, 0.0), 1.0))
    return '█' * full + '░' * (width - full)


def show(text: str, *, end: bool = False) -> None:
    """Overwrite the line on a terminal; elsewhere only the last state is printed."""
    if sys.stdout.isatty():
        print(f'\r      {text}'.ljust(100), end='\n' if end else '', flush=True)
    elif end:
        print(f'      {text}', flush=True)


def demo(folder: Path) -> int:
    """Run it; returns the exit code: 0 only if every parameter is right."""
    domain = int(os.environ.get('ROS_DOMAIN_ID') or random.randint(1, 100))
    run = folder / datetime.datetime.now().strftime('%Y-%m-%dT%H-%M-%S')
    run.mkdir(parents=True, exist_ok=True)
    log = run / 'nodes.log'
    given = {'data_folder': str(run), 'device': 'simulated', 'params_file': str(_parameters(run))}
    with (
        log.open('wb') as out,
        Processes('furuta', given, output=out, ROS_DOMAIN_ID=str(domain)) as processes,
        Client('demo', domain_id=domain) as client,
    ):
        try:
            return _run(client, processes, run, domain)
        except EstimationError as error:
            print(f'\n{error} The nodes said:', file=sys.stderr)
            print(''.join(log.read_text(errors='replace').splitlines(keepends=True)[-8:]), file=sys.stderr)
            return 1


def _parameters(run: Path) -> Path:
    path = run / 'parameters.yaml'
    path.write_text(f'driver:\n  ros__parameters:\n    excitation_seconds: {SECONDS + HELD_OUT + 1.0}\n')
    return path


def _run(client: Client, processes: Processes, run: Path, domain: int) -> int:
    begin = time.monotonic()
    head = f'[4/4] Furuta pendulum on ROS 2 (domain {domain}, localhost): '
    print(f'{head}starting ...', end='\r' if sys.stdout.isatty() else '\n', flush=True)
    ready = ActionClient(client.node, Identify, '/estimator/identify')
    client.wait(ready.server_is_ready, 180.0, 'the estimator', processes.failed)
    ready.destroy()
    print(f'{head}{", ".join(processes.names)} up in {time.monotonic() - begin:.0f} s'.ljust(78), flush=True)

    answer = client.call(Trigger, '/driver/excite')
    if not answer.success:
        raise EstimationError(answer.message)
    began = time.monotonic()

    def feedback(state: Any) -> None:
        if state.phase == 'collecting':
            show(f'exciting {SECONDS:.1f} s  {bar(2 * state.progress)}')
        else:
            show(f'identifying      {state.phase}, cost {state.cost:.6g}')

    result = client.identify(seconds=SECONDS, feedback=feedback)
    time.sleep(max(0.0, HELD_OUT + SECONDS + 0.5 - (time.monotonic() - began)))
    saved = client.call(SaveWindow, '/recorder/save', filename='recording', seconds=SECONDS + HELD_OUT)
    if not saved.success:
        raise EstimationError(saved.message)
    return _judge(result, saved.path, run)


def _judge(result: Any, bag: str, run: Path) -> int:
    """Print what was found beside the truth; 0 if all of it is right."""
    if not result.success:
        raise EstimationError(f'The identification failed: {result.message}')
    window, estimate = read_bag(bag), result.estimate
    lost = sum(d.kind == 'gap' and d.signal == 'encoders' for d in window.defects)
    count = len(window['encoders'])
    show(f'exciting {SECONDS:.1f} s  {bar(1.0)}  {count} samples recorded, {lost} gaps', end=True)
    show(f'identifying      {estimate.iterations} iterations, cost {estimate.cost:.6g}', end=True)
    robot = robots.furuta()
    truth = {p.name: float(p.start) for p in robots.furuta(truth=True).parameters if p.start is not None}
    path = next(run.glob('*/fit.yaml'))
    fit = replace(Fit.load(path, robot), truth=truth)
    print(f'\n{fit}')
    unseen = window.cut(window.duration - HELD_OUT - 0.6, window.duration)
    held_out = predict_windows(fit, unseen, seconds=AHEAD)
    said = ', '.join(f'{joint} {1e3 * error:.1f} mrad' for joint, error in held_out.error.items())
    noise = 1e3 * float(np.max(robot.sensors[0].noise))
    print(
        f'  Checked on {HELD_OUT:g} s that it had not seen: angles {AHEAD:g} s ahead predicted to {said} (encoder noise {noise:.1f} mrad).'
    )
    off = [abs(v - truth[n]) / s for n, v, s in zip(estimate.names, estimate.values, estimate.std_devs)]
    wrong = [n for n, o in zip(estimate.names, off) if not o < FAR]
    if result.report_path:
        print(f'  Report: {os.path.relpath(result.report_path)}')
    if wrong:
        print(f'  Wrong: {", ".join(wrong)} lie more than {FAR:g} standard deviations from the truth.', file=sys.stderr)
        return 1
    print('  Next: make help')
    return 0
