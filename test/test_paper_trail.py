# SPDX-License-Identifier: Apache-2.0
"""The papers beside the code say what is true: policy against the nodes' sources, citation, quality declaration."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
NODES = ROOT / 'multibody_estimation' / 'nodes'
FILES = {
    'driver': ['driver.py'],
    'recorder': ['recorder.py'],
    'estimator': ['estimator.py', 'identifying.py', 'tracking.py', 'wrenching.py', 'momentum.py', 'transforms.py'],
    'calibrator': ['calibrator.py'],
}


def allowed(node: str, tag: str, right: str) -> set[str]:
    profile = ET.parse(ROOT / 'config' / 'sros2_policy.xml').getroot().find(f".//profile[@node='{node}']")
    groups = [g for g in profile.findall(f'{tag}s') if g.get(right) == 'ALLOW']
    return {e.text for g in groups for e in g.findall(tag)}


def source(node: str) -> str:
    return '\n'.join((NODES / name).read_text() for name in FILES[node])


@pytest.mark.parametrize('node', FILES)
def test_the_policy_names_what_the_source_of_a_node_offers(node):
    text = source(node)
    published = set(re.findall(r"create_publisher\(\s*\w+, '([^']+)'", text))
    devices = {'joint_states', 'applied_command'} if node == 'driver' else set()  # channels of the device
    assert allowed(node, 'topic', 'publish') == published | devices
    services = allowed(node, 'service', 'reply')
    assert set(re.findall(r"create_service\(\s*\w+, '([^']+)'", text)) <= services
    for name in services | allowed(node, 'action', 'execute'):
        assert f"'{name}'" in text, f'the {node} has no {name}'
    assert len(re.findall(r'ActionServer\(', text)) == len(allowed(node, 'action', 'execute'))


def test_every_node_has_a_profile_of_its_own():
    from multibody_estimation.nodes.start import NODES as names

    profiles = [p.get('node') for p in ET.parse(ROOT / 'config' / 'sros2_policy.xml').getroot().iter('profile')]
    assert sorted(profiles) == sorted(names)


def test_the_citation_names_the_sources_and_this_version():
    import multibody_estimation

    cited = yaml.safe_load((ROOT / 'CITATION.cff').read_text(encoding='utf-8'))
    assert cited['version'] == multibody_estimation.__version__ and cited['license'] == 'Apache-2.0'
    assert len(cited['references']) == 3 and all(r['title'] and r['authors'] for r in cited['references'])


def test_files_that_the_papers_name_exist():
    for paper in ('QUALITY_DECLARATION.md', 'CONTRIBUTING.md', 'SECURITY.md'):
        for name in re.findall(r'`([\w./]+\.(?:md|rst|py|xml))`', (ROOT / paper).read_text()):
            assert (ROOT / name).exists(), f'{paper} names {name}'
