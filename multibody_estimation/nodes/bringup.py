# SPDX-License-Identifier: Apache-2.0
"""The systems that can be brought up: which nodes, with which parameters. `ros2 launch` and `multibody-estimation up` read this one table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['SYSTEMS', 'Argument', 'NodeSpec', 'System', 'config_file', 'resolve']


@dataclass(frozen=True)
class Argument:
    """One argument of a launch file, given as name:=value."""

    name: str
    default: str
    meaning: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeSpec:
    """One process."""

    executable: str
    """Name of the node in `nodes.start.NODES`; also the name it has in the graph."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """Parameter files; later ones win, and ``parameters`` win over all."""
    namespace: str = ''
    lifecycle: bool = False


@dataclass(frozen=True)
class System:
    """Nodes that belong together."""

    meaning: str
    arguments: tuple[Argument, ...]
    nodes: Callable[[Mapping[str, str]], list[NodeSpec]]


COMMON = (
    Argument('namespace', '', 'Namespace of all nodes; empty for none.'),
    Argument('use_sim_time', 'false', 'Take the time from /clock.', ('true', 'false')),
    Argument('params_file', '', 'Parameter file of your own; its entries win over those of the package.'),
    Argument('data_folder', 'data', 'Folder below which bags, fits and reports are written.'),
)
DEVICES = ('simulated', 'serial', 'replay', 'external')


def config_file(name: str) -> str:
    """Path of a file of config/, in the source tree or where the package is installed."""
    package = Path(__file__).resolve().parents[1]
    for folder in [package.parent / 'config', *(p / 'share' / 'multibody_estimation' / 'config' for p in package.parents)]:
        if (folder / name).is_file():
            return str(folder / name)
    raise EstimationError(f'config/{name} is not installed beside {package}. Install the package again.')


def _spec(executable: str, chosen: Mapping[str, str], config: str, **parameters: Any) -> NodeSpec:
    files = (config_file(config), *([chosen['params_file']] if chosen['params_file'] else []))
    shared = {'use_sim_time': chosen['use_sim_time'] == 'true'}
    if executable != 'driver':
        shared['data_folder'] = chosen['data_folder']
    return NodeSpec(executable, shared | parameters, files, chosen['namespace'], executable == 'estimator')


def _furuta(chosen: Mapping[str, str]) -> list[NodeSpec]:
    config, device = 'furuta.yaml', chosen['device']
    if device == 'serial' and not chosen['port']:
        raise EstimationError('device:=serial needs a port, e.g. port:=/dev/ttyACM0.')
    if device == 'replay' and not chosen['bag']:
        raise EstimationError('device:=replay needs a bag, e.g. bag:=rosbags/furuta_chirp.')
    driver: dict[str, Any] = {'subscribers': 2} if device == 'replay' else {}
    driver |= {
        'device': device,
        'port': chosen['port'],
        'bag': chosen['bag'],
        'speed': float(chosen['speed']),
        'excitation': chosen['excitation'],
    }
    nodes = [] if device == 'external' else [_spec('driver', chosen, config, robot=chosen['robot'], **driver)]
    return [
        *nodes,
        _spec('recorder', chosen, config),
        _spec('estimator', chosen, config, robot=chosen['robot'], mode=chosen['mode']),
    ]


def _replay(chosen: Mapping[str, str]) -> list[NodeSpec]:
    if not chosen['bag']:
        raise EstimationError('replay needs a bag, e.g. bag:=rosbags/furuta_chirp.')
    return [
        _spec('driver', chosen, 'furuta.yaml', device='replay', bag=chosen['bag'], speed=float(chosen['speed'])),
        _spec('estimator', chosen, 'furuta.yaml', robot=chosen['robot'], mode=chosen['mode']),
    ]


def _icub(chosen: Mapping[str, str]) -> list[NodeSpec]:
    config, device = 'icub.yaml', chosen['device']
    if device == 'replay' and not chosen['bag']:
        raise EstimationError('device:=replay needs a bag, e.g. bag:=icub_walk/bag.')
    driver: dict[str, Any] = {'device': device}
    if device == 'replay':
        driver |= {'bag': chosen['bag'], 'speed': float(chosen['speed']), 'options': ['']}
    estimator = {'setup': chosen['setup']} if chosen['setup'] else {}
    nodes = [] if device == 'external' else [_spec('driver', chosen, config, **driver)]
    return [*nodes, _spec('recorder', chosen, config), _spec('estimator', chosen, config, mode=chosen['mode'], **estimator)]


def _calibration(chosen: Mapping[str, str]) -> list[NodeSpec]:
    config, device = 'calibration.yaml', chosen['device']
    if device == 'can' and not chosen['port']:
        raise EstimationError('device:=can needs the channel of the bus, e.g. port:=can0.')
    if device == 'replay' and not chosen['bag']:
        raise EstimationError('device:=replay needs a bag with strain and imu topics.')
    driver: dict[str, Any] = {'device': device, 'port': chosen['port'], 'bag': chosen['bag']}
    if device == 'simulated_strain':
        driver['options'] = [f'name={chosen["sensor"]}']
    nodes = [] if device == 'external' else [_spec('driver', chosen, config, **driver)]
    return [*nodes, _spec('calibrator', chosen, config, sensor=chosen['sensor'])]


ROBOT = Argument('robot', 'furuta', 'Robot of the package by name, or the path of a robot file.')
BAG = Argument('bag', '', 'Bag folder to replay.')
SPEED = Argument('speed', '1.0', 'Replay speed; 0 as fast as possible.')

SYSTEMS: dict[str, System] = {
    'furuta': System(
        'Furuta pendulum: driver, recorder, estimator',
        (
            Argument('device', 'simulated', 'What the driver speaks to; external starts no driver.', DEVICES),
            Argument('port', '', 'Serial port of device:=serial.'),
            ROBOT,
            Argument('mode', 'identify', 'Mode of the estimator.', ('identify', 'track')),
            Argument('excitation', '', 'Motion to play at start-up: sines, chirp, a trajectory file, or nothing.'),
            BAG,
            SPEED,
            *COMMON,
        ),
        _furuta,
    ),
    'replay': System(
        'A recorded bag through the estimator',
        (BAG, SPEED, ROBOT, Argument('mode', 'identify', 'Mode of the estimator.', ('identify', 'track')), *COMMON),
        _replay,
    ),
    'icub': System(
        'iCub-like humanoid: driver, recorder, estimator of wrenches',
        (
            Argument(
                'device', 'mujoco', 'What the driver speaks to; external starts no driver.', ('mujoco', 'replay', 'external')
            ),
            Argument('mode', 'wrench', 'Mode of the estimator.', ('wrench', 'centroidal')),
            Argument('setup', '', 'Setup file of the mode; empty takes that of config/icub.yaml.'),
            BAG,
            SPEED,
            *COMMON,
        ),
        _icub,
    ),
    'calibration': System(
        'Force/torque sensor: driver and calibrator',
        (
            Argument(
                'device',
                'simulated_strain',
                'What the driver speaks to; external starts no driver.',
                ('simulated_strain', 'can', 'replay', 'external'),
            ),
            Argument('sensor', 'sensor', 'Name of the sensor; its topics are ft/<sensor>/strain and so on.'),
            Argument('port', '', 'CAN channel of device:=can.'),
            BAG,
            *COMMON,
        ),
        _calibration,
    ),
}
"""Systems by name; launch/<name>.launch.py brings up the same."""


def resolve(system: str, given: Mapping[str, str]) -> list[NodeSpec]:
    """Check the arguments of a system and return its nodes."""
    if system not in SYSTEMS:
        raise EstimationError(f"There is no system '{system}'.{did_you_mean(system, SYSTEMS)}")
    known = {a.name: a for a in SYSTEMS[system].arguments}
    for name, value in given.items():
        if name not in known:
            raise EstimationError(f"'{name}' is no argument of {system}.{did_you_mean(name, known)}")
        if known[name].choices and value not in known[name].choices:
            raise EstimationError(f"{name} is '{value}'; it can be {', '.join(known[name].choices)}.")
    chosen = {name: given.get(name, argument.default) for name, argument in known.items()}
    if chosen['params_file'] and not Path(chosen['params_file']).is_file():
        raise EstimationError(f"params_file '{chosen['params_file']}' does not exist.")
    try:
        return SYSTEMS[system].nodes(chosen)
    except ValueError as error:
        if isinstance(error, EstimationError):
            raise
        raise EstimationError(f'{system}: speed must be a number ({error}).') from error
