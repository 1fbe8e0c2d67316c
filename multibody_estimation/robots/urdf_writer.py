# SPDX-License-Identifier: Apache-2.0
"""A URDF with other numbers: only the values that changed differ, every other byte stays as it was."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from multibody_estimation import tree
from multibody_estimation.errors import EstimationError
from multibody_estimation.geometry.spatial import rotation_from_rpy

__all__ = ['write_urdf']

INERTIA = ('ixx', 'ixy', 'ixz', 'iyy', 'iyz', 'izz')
SAME = 1e-14
"""Relative difference below which a number has not changed."""


@dataclass
class Element:
    """A start tag and where it stands in the text (bytes)."""

    begin: int
    end: int
    """First byte after the start tag."""
    close: int
    """First byte of the end tag; that of the start tag's end for an empty element."""
    attributes: Mapping[str, str]
    empty: bool


def _elements(text: bytes) -> dict[tuple[str, ...], Element]:
    """Every element that matters, by path: ('link', name, 'inertial', 'mass') and so on."""
    found: dict[tuple[str, ...], Element] = {}
    stack: list[tuple[str, ...]] = []
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        begin = parser.CurrentByteIndex
        end = _tag_end(text, begin)
        path = (
            *(stack[-1] if stack else ()),
            *((tag, attributes.get('name', '')) if len(stack) == 1 and tag in ('link', 'joint') else (tag,)),
        )
        stack.append(path)
        found.setdefault(path, Element(begin, end, end, attributes, text[begin:end].rstrip().endswith(b'/>')))

    def finish(tag: str) -> None:
        path = stack.pop()
        if not found[path].empty and found[path].close == found[path].end:
            found[path].close = parser.CurrentByteIndex

    parser.StartElementHandler, parser.EndElementHandler = start, finish
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise EstimationError(f'The URDF cannot be read: {error}.') from None
    return {path[1:]: element for path, element in found.items()}


def _tag_end(text: bytes, begin: int) -> int:
    """First byte after a start tag; a > inside quotes does not end it."""
    quote = 0
    for i in range(begin, len(text)):
        c = text[i]
        if quote:
            quote = 0 if c == quote else quote
        elif c in b'"\'':
            quote = c
        elif c == ord('>'):
            return i + 1
    return len(text)


def _number(x: float) -> str:
    return repr(float(x) + 0.0)


class _Text:
    """Replacements in a text, applied at the end from back to front."""

    def __init__(self, text: bytes) -> None:
        self.text, self.elements = text, _elements(text)
        self.changes: list[tuple[int, int, bytes]] = []
        self.tags: dict[tuple[str, ...], dict[str, str]] = {}
        self.inserted: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, str]]] = {}

    def set(self, path: tuple[str, ...], attribute: str, value: str) -> None:
        """Set an attribute; an element that is not there is made inside its parent."""
        if path in self.elements:
            self.tags.setdefault(path, {})[attribute] = value
        else:
            self.inserted.setdefault(path[:-1], {}).setdefault(path, {})[attribute] = value

    def done(self, comment: str) -> bytes:
        for path, attributes in self.tags.items():
            e = self.elements[path]
            tag = self.text[e.begin : e.end].decode()
            for name, value in attributes.items():
                pattern = re.compile(rf'(\s{re.escape(name)}\s*=\s*)("[^"]*"|\'[^\']*\')')
                there = pattern.search(tag)
                if there:
                    quote = there[2][0]
                    tag = f'{tag[: there.start()]}{there[1]}{quote}{value}{quote}{tag[there.end() :]}'
                else:
                    tag = re.sub(r'(\s*/?>)$', f' {name}="{value}"\\1', tag)
            self.changes.append((e.begin, e.end, tag.encode()))
        for parent, made in self.inserted.items():
            if parent not in self.elements or self.elements[parent].empty:
                raise EstimationError(
                    f'The URDF has no <{parent[-1] if len(parent) != 2 else parent[0]}> with content to take {made}.'
                )
            new = ''.join(
                f'<{path[-1]} {" ".join(f"{k}={chr(34)}{v}{chr(34)}" for k, v in a.items())}/>' for path, a in made.items()
            )
            self.changes.append((self.elements[parent].close, self.elements[parent].close, new.encode()))
        top = self.elements[()]
        self.changes.append((top.end, top.end, f'\n<!-- {comment} -->'.encode()))
        out = self.text
        for begin, end, change in sorted(self.changes, reverse=True):
            out = out[:begin] + change + out[end:]
        return out


def write_urdf(model: Any, source: str | Path, path: str | Path, *, origin: str = '') -> Path:
    """Write the URDF ``source`` with the numbers of a model (or of a fit's robot) to ``path``.

    Mass, centre of mass and inertia of links, origin, damping and dry friction of joints are written where they differ; numbers that a URDF has no
    place for (rotor inertia, Stribeck, delays) stand in the fit. origin: where the numbers come from, for the comment at the top.
    """
    model = getattr(getattr(model, 'robot', model), 'model', getattr(model, 'robot', model))
    source, path = Path(source), Path(path)
    raw = source.read_bytes()
    old = tree.load_urdf(source, joints=list(model.joint_names))
    if old.link_names != model.link_names or old.structure.parents != model.structure.parents:
        raise EstimationError(
            f'{source} is not the URDF of {model.name}: their links differ, or the model is held by another base link than the root.'
        )
    text = _Text(raw)
    for i, link in enumerate(model.link_names):
        _write_link(text, link, i, old, model)
        joint = model.structure.link_joint_names[i]
        for what, attribute in (('placement', 'xyz'), ('placement_rpy', 'rpy')):
            if joint and _differs(getattr(old, what)[i], getattr(model, what)[i]):
                text.set(('joint', joint, 'origin'), attribute, ' '.join(_number(x) for x in np.asarray(getattr(model, what)[i])))
    for j, joint in enumerate(model.joint_names):
        for what, attribute in (('damping', 'damping'), ('coulomb', 'friction')):
            if _differs(getattr(old, what)[j], getattr(model, what)[j]):
                text.set(('joint', joint, 'dynamics'), attribute, _number(getattr(model, what)[j]))
    said = f'identified by multibody_estimation{f" from {origin}" if origin else ""}'.replace('--', '- -')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.done(said))
    return path


def _write_link(text: _Text, link: str, i: int, old: tree.Model, new: tree.Model) -> None:
    at = ('link', link, 'inertial')
    if _differs(old.mass[i], new.mass[i]):
        text.set((*at, 'mass'), 'value', _number(new.mass[i]))
    if _differs(old.center_of_mass[i], new.center_of_mass[i]):
        text.set((*at, 'origin'), 'xyz', ' '.join(_number(x) for x in np.asarray(new.center_of_mass[i])))
    if _differs(old.inertia[i], new.inertia[i]):
        turned = text.elements.get((*at, 'origin'))
        rpy = [float(x) for x in (turned.attributes.get('rpy', '') if turned else '').split()] or [0.0, 0.0, 0.0]
        # The file has the inertia in the axes of the inertial frame.
        R = np.asarray(rotation_from_rpy(np.array(rpy)))
        I = R.T @ np.asarray(new.inertia[i]) @ R
        for name, x in zip(INERTIA, (I[0, 0], I[0, 1], I[0, 2], I[1, 1], I[1, 2], I[2, 2])):
            text.set((*at, 'inertia'), name, _number(x))


def _differs(a: Any, b: Any) -> bool:
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return bool((np.abs(a - b) > SAME * max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0))).any())
