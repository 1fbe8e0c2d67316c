# SPDX-License-Identifier: Apache-2.0
"""The YAML file that tells a legged robot's centroidal estimator what the URDF cannot say, and its schema.

    urdf: icub.urdf                     # beside this file, or icub-models:<robot> for one of that package
    contacts:                           # links that touch the ground; the signal is that of the wrench on the robot in that frame
      left:  {frame: l_sole, signal: ft/left/wrench, noise: [1, 1, 1, 0.03, 0.03, 0.03]}        # N and N m
      right: {frame: r_sole, signal: ft/right/wrench}
    imu: {frame: chest, signal: imu}    # use_orientation: true where its orientation is that of the robot in the world
    measure: [center_of_mass, contact_wrench, angular_momentum, acceleration]
    estimate: [external_wrench]         # also com_offset, wrench_bias, mass
    process: {force: 50, moment: 4}     # N/s^(1/2), N m/s^(1/2): how fast they change
    lag: 0.1                            # s, online

All but ``urdf`` and ``contacts`` may be left out. Noise that is not given is that of the recorded signals, where they state it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.centroidal.body import WholeBody
from multibody_estimation.centroidal.model import StateLayout
from multibody_estimation.centroidal.problem import ProcessNoise
from multibody_estimation.centroidal.recorded import MEASURES, Signals
from multibody_estimation.centroidal.robust import Loss
from multibody_estimation.errors import EstimationError
from multibody_estimation.schema import Flag, Number, Numbers, Text, read_yaml
from multibody_estimation.window import Window

__all__ = ['CentroidalSetup', 'load_centroidal_setup']


NOISES = {
    'encoders': Numbers,
    'velocities': Numbers,
    'gyroscope': Numbers,
    'accelerometer': Numbers,
    'orientation': Numbers,
    'placement': Number,
}
OPTIONS = tuple(f.name for f in fields(StateLayout))
SCHEMA: dict[str, Any] = {
    'urdf': Text,
    'joints': [Text],
    'contacts': {None: {'frame': Text, 'signal': Text, 'noise': Numbers}},
    'imu': {'frame': Text, 'signal': Text, 'use_orientation': Flag},
    'signals': {'encoders': Text, 'velocities': Text},
    'noise': NOISES,
    'level_ground': Flag,
    'flat_feet': Flag,
    'contact_force': Number,
    'measure': [MEASURES],
    'estimate': [OPTIONS],
    'process': {f.name: Number for f in fields(ProcessNoise)},
    'loss': ('none', 'huber', 'student'),
    'prior': {None: [Numbers]},
    'lag': Number,
}


@dataclass(frozen=True, eq=False)
class CentroidalSetup:
    """A robot, its sensors and what shall be estimated."""

    body: WholeBody
    signals: Signals
    measures: tuple[str, ...] = MEASURES[:4]
    process: ProcessNoise = field(default_factory=ProcessNoise)
    layout: StateLayout = field(default_factory=StateLayout)
    loss: Loss = field(default_factory=Loss)
    prior: Mapping[str, Any] = field(default_factory=dict)
    """(mean, standard deviation) by part of the first state."""
    lag: float = 0.1
    """How long later samples may still correct an online estimate, s."""
    given: frozenset[str] = frozenset()
    """Noises of the body that are meant as given; for the others, a recording's own wins."""

    def body_for(self, window: Window) -> WholeBody:
        """Return the body with the noises that the signals of a recording state, where none were given."""
        names = self.body.model.joint_names
        found: dict[str, Any] = {}
        for noise, signal in {
            'encoder_noise': self.signals.encoders, 'velocity_noise': self.signals.velocities,
            'gyroscope_noise': f'{self.signals.imu}/gyroscope', 'accelerometer_noise': f'{self.signals.imu}/accelerometer',
        }.items():  # fmt: skip
            if noise not in self.given and signal in window and window[signal].noise:
                known = dict(zip(window[signal].columns, window[signal].noise, strict=True))
                columns = names if noise in ('encoder_noise', 'velocity_noise') else window[signal].columns
                if set(columns) <= set(known):
                    found[noise] = jnp.array([known[c] for c in columns])
        if 'wrench_noise' not in self.given and all(s in window and len(window[s].noise) == 6 for s in self.signals.wrenches):
            found['wrench_noise'] = jnp.array([window[s].noise for s in self.signals.wrenches])
        return replace(self.body, **found)


def load_centroidal_setup(path: str | Path) -> CentroidalSetup:
    """Read and check a setup file."""
    from multibody_estimation.tree import find_urdf, load_urdf

    file = Path(path)
    if not file.is_file():
        raise EstimationError(f'{path}: there is no such file.')
    d = read_yaml(file, SCHEMA).values
    for key in ('urdf', 'contacts'):
        if not d.get(key):
            raise EstimationError(f"{path}: '{key}' is missing.")
    for name, contact in d['contacts'].items():
        for key in ('frame', 'signal'):
            if key not in contact:
                raise EstimationError(f"{path}: contacts.{name} has no '{key}'.")
    if 'imu' in d and 'frame' not in d['imu']:
        raise EstimationError(f"{path}: imu has no 'frame', the link or sensor of the URDF that it is.")
    try:
        model = load_urdf(find_urdf(d['urdf'], file.parent), floating=True, joints=d.get('joints'))
        noise = {_BODY_NOISE[k]: v for k, v in d.get('noise', {}).items()}
        stated = [c.get('noise') for c in d['contacts'].values()]
        if any(stated):
            noise['wrench_noise'] = [np.broadcast_to((2.0, 2.0, 2.0, 0.1, 0.1, 0.1) if s is None else s, 6) for s in stated]
        body = WholeBody.of(
            model, tuple(c['frame'] for c in d['contacts'].values()), imu=d.get('imu', {}).get('frame', ''),
            imu_orientation=d.get('imu', {}).get('use_orientation', False), level_ground=d.get('level_ground', True), flat_feet=d.get('flat_feet', True),
            contact_force=d.get('contact_force'), **noise,
        )  # fmt: skip
        layout = StateLayout(**dict.fromkeys(d.get('estimate', ()), True))
        for part, given in d.get('prior', {}).items():
            layout[part]
            if len(given) != 2:
                raise EstimationError(f'prior.{part}: mean and standard deviation are needed, {len(given)} entries were given.')
        lag = d.get('lag', 0.1)
        if not lag > 0:
            raise EstimationError(f'A lag of {lag} s: it must be above zero.')
        signals = Signals(
            tuple(c['signal'] for c in d['contacts'].values()), imu=d.get('imu', {}).get('signal', 'imu'), **d.get('signals', {})
        )
        return CentroidalSetup(
            body, signals, tuple(d.get('measure', MEASURES[:4])), ProcessNoise(**d.get('process', {})), layout,
            Loss(d.get('loss', 'none')), d.get('prior', {}), float(lag), frozenset(noise),
        )  # fmt: skip
    except EstimationError as error:
        raise EstimationError(str(error) if str(path) in str(error) else f'{path}: {error}') from None


_BODY_NOISE = {
    'encoders': 'encoder_noise', 'velocities': 'velocity_noise', 'gyroscope': 'gyroscope_noise',
    'accelerometer': 'accelerometer_noise', 'orientation': 'orientation_noise', 'placement': 'placement_noise',
}  # fmt: skip
