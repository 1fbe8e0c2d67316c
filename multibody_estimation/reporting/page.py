# SPDX-License-Identifier: Apache-2.0
"""`Report`: one self-contained HTML page with a verdict on top, sections with text, tables and figures; no network, no library."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from multibody_estimation.reporting.figures import Figure
from multibody_estimation.reporting.writing import write_file

__all__ = ['Cell', 'Finding', 'Report', 'Section', 'Verdict', 'bullets', 'listing', 'number', 'paragraph', 'table']

MARKS = {'good': '✓', 'look': '!', 'bad': '✗', '': '·'}
WORDS = {'good': 'good', 'look': 'look at this', 'bad': 'wrong', '': 'note'}
HINT = (
    'Figures: drag to zoom, double-click to see all; by keyboard, Tab to a figure, then ← → for the cursor, + − to zoom, '
    '0 to see all. Names in a legend switch curves off and on.'
)


@dataclass(frozen=True)
class Finding:
    """One sentence of a verdict."""

    level: str
    """``good``, ``look``, ``bad`` or empty."""
    sentence: str


@dataclass(frozen=True)
class Verdict:
    """What the run is worth, in words."""

    headline: str
    findings: tuple[Finding, ...] = ()

    @property
    def level(self) -> str:
        """The worst of the findings."""
        levels = {f.level for f in self.findings}
        return next((level for level in ('bad', 'look', 'good') if level in levels), '')

    @property
    def html(self) -> str:
        rows = ''.join(
            f'<li><span class="mark {f.level}" role="img" aria-label="{WORDS[f.level]}">{MARKS[f.level]}</span>{escape(f.sentence)}</li>'
            for f in self.findings
        )
        return f'<div class="verdict {self.level}"><p>{escape(self.headline)}</p><ul>{rows}</ul></div>'


@dataclass(frozen=True)
class Section:
    """A heading with HTML (strings that are already escaped) and figures below it."""

    title: str
    body: tuple[str | Figure, ...]


@dataclass(frozen=True)
class Cell:
    """A cell of a table with a class (``look``, ``good``, ``bad``) and small print."""

    text: str
    level: str = ''
    small: str = ''


def number(value: float | None, digits: int = 4) -> str:
    """A number for people; a dash where there is none, ∞ where it has no end."""
    if value is None or value != value:
        return '–'
    if abs(value) == float('inf'):
        return '∞' if value > 0 else '−∞'
    text = f'{value:.{digits}g}'
    if 'e' in text:
        head, power = text.split('e')
        text = f'{head}e{int(power)}'
    return text.replace('-', '−')


def paragraph(text: str, kind: str = '') -> str:
    """Text as a paragraph."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f'<p>{escape(text)}</p>'


def bullets(texts: Iterable[str]) -> str:
    """Sentences as a list."""
    return '<ul>' + ''.join(f'<li>{escape(t)}</li>' for t in texts) + '</ul>'


def listing(text: str, title: str = '') -> str:
    """Text as it is, folded away where it has a title."""
    body = f'<pre tabindex="0">{escape(text)}</pre>'
    return f'<details><summary>{escape(title)}</summary>{body}</details>' if title else body


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    marked: Iterable[int] = (),
    words: Iterable[int] = (),
    plain: Iterable[int] = (),
) -> str:
    """A table that becomes cards on a narrow screen.

    words: columns of text (others are numbers); marked: rows to look at; plain: columns that need no name on a card.
    """
    words, marked, plain = {0, *words}, set(marked), {0, *plain}
    top = ''.join(f'<th scope="col"{"" if j in words else " class=n"}>{escape(h)}</th>' for j, h in enumerate(head))
    lines = []
    for i, row in enumerate(rows):
        cells = []
        for j, item in enumerate(row):
            cell = item if isinstance(item, Cell) else Cell(item)
            inner = escape(cell.text)
            if cell.level:
                inner = f'<span class="tag {cell.level}">{inner}</span>'
            if cell.small:
                inner += f' <small>{escape(cell.small)}</small>'
            label = f' data-label="{escape(head[j])}"' if j not in plain else ''
            cells.append(f'<td{label}{"" if j in words else " class=n"}>{inner}</td>')
        lines.append(f'<tr{" class=look" if i in marked else ""}>{"".join(cells)}</tr>')
    return f'<table class="cards"><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


def _asset(name: str) -> str:
    return files('multibody_estimation.reporting').joinpath('assets', name).read_text(encoding='utf-8')


@dataclass(frozen=True)
class Report:
    """A page; `save` writes it."""

    title: str
    subtitle: str
    verdict: Verdict
    sections: tuple[Section, ...]

    @cached_property
    def html(self) -> str:
        """The whole page."""
        figures: dict[str, dict] = {}
        parts = []
        for k, section in enumerate(self.sections):
            parts.append(f'<section id="s{k}"><h2>{escape(section.title)}</h2>')
            row: list[Figure] = []
            for item in (*section.body, ''):
                if isinstance(item, Figure):
                    row.append(item)
                    continue
                parts.append(_figures(row, figures))
                parts.append(item)
                row = []
            parts.append('</section>')
        links = ''.join(f'<a href="#s{k}">{escape(s.title)}</a>' for k, s in enumerate(self.sections))
        # '<' is written as an escape so that no text in the data can end the script element.
        data = json.dumps(figures, separators=(',', ':'), allow_nan=False).replace('<', '\\u003c')
        scripts = ''.join(f'<script>{_asset(name)}</script>' for name in ('plots.js', 'scenes.js'))
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<link rel="icon" href="data:,"><title>{escape(self.title)}</title><style>{_asset("report.css")}</style></head><body><main>'
            f'<h1>{escape(self.title)}</h1><p class="sub">{escape(self.subtitle)}</p>{self.verdict.html}'
            f'<nav aria-label="Sections">{links}</nav><p class="note hint">{escape(HINT)}</p>'
            f'<noscript><p>The figures need JavaScript, which is in this file; tables and text do not.</p></noscript>'
            f'{"".join(parts)}</main><script type="application/json" id="figures">{data}</script>{scripts}</body></html>\n'
        )

    def save(self, path: str | Path) -> Path:
        """Write the page; an unwritable folder or a full disk is said with its name."""
        return write_file(path, self.html)


def _figures(row: Sequence[Figure], known: dict[str, dict]) -> str:
    """A row of figures in the grid; their specifications go into ``known``."""
    if not row:
        return ''
    out = []
    for figure in row:
        name = f'f{len(known)}'
        known[name] = figure.spec
        caption = f'<figcaption>{escape(figure.caption)}</figcaption>' if figure.caption else ''
        about = f'{figure.title}. {figure.caption}'.strip()
        # A scene and a matrix have their own stops for the keyboard, or none.
        reach = f' tabindex="0" role="application" aria-label="{escape(about)}"' if figure.spec['kind'] == 'lines' else ''
        out.append(
            f'<figure><b>{escape(figure.title)}</b><div class="canvas" data-figure="{name}"{reach}></div>{caption}</figure>'
        )
    single = ' single' if any(f.wide for f in row) or len(row) == 1 else ' three' if len(row) == 3 else ''
    return f'<div class="figures{single}">{"".join(out)}</div>'
