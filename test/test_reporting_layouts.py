# SPDX-License-Identifier: Apache-2.0
"""Layouts for rviz2, PlotJuggler and Foxglove: every topic they name is one that the nodes publish, every field one that it has."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
LAYOUTS = sorted((ROOT / 'config' / 'layouts').iterdir())
ARRAYS = {'joint_states'}


@pytest.fixture(scope='module')
def published() -> dict[str, str]:
    """Topic to message type, of the systems furuta and icub: channels of their devices, and what the nodes' sources publish."""
    from multibody_estimation.hardware.driver import APPLIED
    from multibody_estimation.hardware.simulated import Simulated

    channels = [(c.topic, c.message_type) for c in Simulated().channels]
    channels.append((APPLIED, 'multibody_estimation/msg/ActuatorCommand'))
    pytest.importorskip('mujoco', reason='mujoco is not installed: what the iCub publishes is not known')
    pytest.importorskip('icub_models', reason='icub-models is not installed: what the iCub publishes is not known')
    from multibody_estimation.hardware.mujoco_icub import MujocoIcub

    channels += [(c.topic, c.message_type) for c in MujocoIcub().channels]
    out = {f'/{topic}': kind for topic, kind in channels}
    homes = {
        'JointState': 'sensor_msgs',
        'DiagnosticArray': 'diagnostic_msgs',
        'TFMessage': 'tf2_msgs',
        'WrenchStamped': 'geometry_msgs',
    }
    for source in (ROOT / 'multibody_estimation' / 'nodes').glob('*.py'):
        for kind, topic in re.findall(r"create_publisher\((\w+), '([^']+)'", source.read_text()):
            node = '/recorder' if source.stem == 'recorder' else '/estimator'
            out[topic.replace('~', node)] = f'{homes.get(kind, "multibody_estimation")}/msg/{kind}'
    # One topic for each contact of the setup that the iCub comes with.
    assert re.search(
        r"create_publisher\(WrenchStamped, f'~/wrench/\{link\}'", (ROOT / 'multibody_estimation/nodes/wrenching.py').read_text()
    )
    setup = yaml.safe_load((ROOT / 'multibody_estimation/wrench/icub.yaml').read_text())
    return out | {f'/estimator/wrench/{link}': 'geometry_msgs/msg/WrenchStamped' for link in setup['contacts']}


def named(path: Path) -> list[tuple[str, str]]:
    """Topics of a layout, each with the field that is drawn ('' where the whole message is)."""
    text = path.read_text()
    if path.suffix == '.rviz':
        displays = yaml.safe_load(text)['Visualization Manager']['Displays']
        found = [(d['Topic']['Value'], '') for d in displays if 'Topic' in d]
        return found + [('/tf', '') for d in displays if d['Class'].endswith('/TF')]
    if path.suffix == '.xml':
        return [(c.get('name'), 'curve') for c in ET.fromstring(text).iter('curve')]
    out = []
    for panel in json.loads(text)['configById'].values():
        out += [tuple(p['value'].partition('.')[::2]) for p in panel.get('paths', ())]
        out += [(panel[key], '') for key in ('topicPath', 'topicToRender') if panel.get(key)]
        out += [(topic, '') for topic in panel.get('topics', ())]
    return out


def has(kind: str, parts: list[str]) -> bool:
    """Whether a message type has a field, given as the names on the way to it."""
    if not parts:
        return True
    package, _, name = kind.split('/')
    cls = getattr(__import__(f'{package}.msg', fromlist=[name]), name)
    fields = cls.get_fields_and_field_types()
    first = re.sub(r'\[\d+\]$', '', parts[0])
    if first not in fields:
        return False
    inner = re.sub(r'^sequence<(.*?)(, \d+)?>$|\[\d+\]$', r'\1', fields[first])
    return len(parts) == 1 if '/' not in inner else has('{}/msg/{}'.format(*inner.split('/')), parts[1:])


@pytest.mark.parametrize('path', LAYOUTS, ids=lambda p: p.name)
def test_every_topic_and_field_of_a_layout_exists(path, published):
    pytest.importorskip('multibody_estimation.msg', reason='the messages of this package are not built: `make build`')
    found = named(path)
    assert found
    for name, field in found:
        if field == 'curve':
            topic = max((t for t in published if name.startswith(f'{t}/')), key=len, default='')
            assert topic, f'{path.name}: no topic for {name}'
            parts = name[len(topic) + 1 :].split('/')
            if published[topic] == 'sensor_msgs/msg/JointState':  # PlotJuggler names these by joint
                parts = parts[1:]
        else:
            topic, parts = name, [p for p in field.split('.') if p]
        assert topic in published, f'{path.name}: nobody publishes {topic}'
        if published[topic] != 'tf2_msgs/msg/TFMessage':
            assert has(published[topic], parts), f'{path.name}: {published[topic]} has no {parts}'


@pytest.mark.parametrize('path', [p for p in LAYOUTS if p.suffix == '.json'], ids=lambda p: p.name)
def test_every_panel_of_a_foxglove_layout_has_its_place(path):
    document = json.loads(path.read_text())

    def placed(node):
        return [node] if isinstance(node, str) else placed(node['first']) + placed(node['second'])

    assert sorted(placed(document['layout'])) == sorted(document['configById'])


def test_there_is_a_layout_of_each_kind_for_each_robot():
    names = {p.name for p in LAYOUTS}
    assert {f'{robot}{end}' for robot in ('furuta', 'icub') for end in ('.rviz', '_plotjuggler.xml', '_foxglove.json')} <= names


def test_a_field_that_is_not_there_is_noticed(published):
    pytest.importorskip('multibody_estimation.msg', reason='the messages of this package are not built: `make build`')
    assert has('multibody_estimation/msg/LinkWrenches', ['wrenches[0]', 'force', 'x'])
    assert not has('multibody_estimation/msg/LinkWrenches', ['wrenches[0]', 'forces', 'x'])
    assert not has('multibody_estimation/msg/MultibodyState', ['efort[0]'])
    assert '/estimator/nothing' not in published
