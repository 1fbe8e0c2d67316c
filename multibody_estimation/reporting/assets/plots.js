// SPDX-License-Identifier: Apache-2.0
// Figures drawn as SVG at the width they have; zoom, cursor and legend work by mouse and by keyboard. No library, no network.
'use strict';
const read = (text) => { const b = atob(text), u = new Uint8Array(b.length); for (let i = 0; i < b.length; i++) u[i] = b.charCodeAt(i); return new Float32Array(u.buffer); };
const make = (tag, parent, properties = {}) => { const e = Object.assign(document.createElement(tag), properties); parent?.append(e); return e; };
const clean = (text) => String(text).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
const groups = {};
const redraws = [];

function told(v, step) {
  if (!Number.isFinite(v)) return '–';
  if (v === 0 || Math.abs(v) < 1e-9 * step) return '0';
  const a = Math.abs(v);
  if (a >= 1e5 || a < 1e-3) {
    const digits = Math.max(0, Math.min(4, Math.floor(Math.log10(a)) - Math.floor(Math.log10(step || a))));
    return v.toExponential(digits).replace('e+', 'e').replace('-', '−').replace('e-', 'e−');
  }
  const digits = step ? Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) : Math.max(0, 3 - Math.floor(Math.log10(a)));
  return v.toFixed(Math.min(digits, 8)).replace('-', '−');
}

function ticks(low, high, count, log) {
  if (log) {
    const out = [], skip = Math.max(1, Math.ceil((high - low) / count));
    for (let k = Math.ceil(low); k <= high; k += skip) out.push(k);
    return { at: out, step: 1 };
  }
  const raw = (high - low) / Math.max(count, 1), base = 10 ** Math.floor(Math.log10(raw));
  const step = base * [1, 2, 5, 10].find((m) => m * base >= raw * 0.999), at = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) at.push(k * step);
  return { at, step };
}

const first = (x, value) => { let a = 0, b = x.length; while (a < b) { const m = (a + b) >> 1; if (x[m] < value) a = m + 1; else b = m; } return a; };

/** Path of a line; where many samples share a pixel only the first, lowest, highest and last of them are drawn. */
function path(x, y, from, to, px, py) {
  let out = '', column = NaN, low, high, last, broken = true;
  const flush = () => { if (!Number.isNaN(column) && low !== high) out += `V${low.toFixed(1)}V${high.toFixed(1)}V${last.toFixed(1)}`; };
  for (let i = from; i < to; i++) {
    if (!Number.isFinite(y[i])) { flush(); column = NaN; broken = true; continue; }
    const u = px(x[i]), v = py(y[i]), c = Math.round(2 * u);
    if (c === column && !broken) { low = Math.min(low, v); high = Math.max(high, v); last = v; continue; }
    flush();
    out += `${broken ? 'M' : 'L'}${u.toFixed(1)} ${v.toFixed(1)}`;
    broken = false; column = c; low = high = last = v;
  }
  flush();
  return out;
}

function drawn(s, px, py, view, zero) {
  const color = `var(--c${s.color})`, ordered = s.type !== 'bars' && s.type !== 'stems';
  const from = ordered ? Math.max(0, first(s.x, view[0]) - 1) : 0, to = ordered ? Math.min(s.x.length, first(s.x, view[1]) + 1) : s.x.length;
  if (s.type === 'band') {
    // One piece for each stretch without a gap.
    let d = '', begin = from;
    const whole = (i) => Number.isFinite(s.y[i]) && Number.isFinite(s.y2[i]);
    while (begin < to) {
      if (!whole(begin)) { begin++; continue; }
      let end = begin;
      while (end < to && whole(end)) end++;
      d += path(s.x, s.y, begin, end, px, py);
      for (let i = end - 1; i >= begin; i--) d += `L${px(s.x[i]).toFixed(1)} ${py(s.y2[i]).toFixed(1)}`;
      d += 'Z';
      begin = end;
    }
    return d && `<path class="band" d="${d}" fill="${color}" opacity=".22"/>`;
  }
  if (s.type === 'points') {
    let d = '';
    for (let i = from; i < to; i++) if (Number.isFinite(s.y[i])) d += `M${px(s.x[i]).toFixed(1)} ${py(s.y[i]).toFixed(1)}h0`;
    return `<path d="${d}" stroke="${color}" stroke-width="${s.width || 3}" stroke-linecap="round" fill="none" opacity="${s.width ? 1 : .65}"/>`;
  }
  if (s.type === 'bars') {
    let out = '';
    const w = Math.abs(px(s.x[1] ?? 1) - px(s.x[0] ?? 0));
    for (let i = 0; i < s.x.length; i++) {
      const v = py(s.y[i]);
      out += `<rect x="${(px(s.x[i]) - w / 2 + .5).toFixed(1)}" y="${Math.min(v, zero).toFixed(1)}" width="${Math.max(w - 1, 1).toFixed(1)}" height="${Math.abs(zero - v).toFixed(1)}" fill="${color}" opacity=".55"/>`;
    }
    return out;
  }
  if (s.type === 'stems') {
    let d = '';
    for (let i = 0; i < s.x.length; i++) if (Number.isFinite(s.y[i])) d += `M${px(s.x[i]).toFixed(1)} ${zero.toFixed(1)}V${py(s.y[i]).toFixed(1)}`;
    return `<path d="${d}" stroke="${color}" stroke-width="2" fill="none"/>` + drawn({ ...s, type: 'points', width: 6 }, px, py, [-Infinity, Infinity], zero);
  }
  const d = path(s.x, s.y, from, to, px, py);
  return d && `<path d="${d}" stroke="${color}" stroke-width="1.6" fill="none" stroke-linejoin="round"${s.dash ? ' stroke-dasharray="5 3"' : ''}/>`;
}

function lines(box, spec) {
  const clip = `clip${redraws.length}`;
  for (const s of spec.series) {
    for (const k of ['x', 'y', 'y2']) if (s[k]) s[k] = read(s[k]);
    if (spec.y.log) s.y = s.y.map(Math.log10);
  }
  const group = groups[spec.link || clip] ??= { view: null, cursor: null, members: [] };
  const legend = make('div', null, { className: 'legend' });
  box.before(legend);
  const answer = make('output', null);
  box.after(answer);
  const whole = () => {
    let a = Infinity, b = -Infinity;
    for (const s of spec.series) for (const v of s.x) { if (v < a) a = v; if (v > b) b = v; }
    if (spec.series.some((s) => s.type === 'bars' || s.type === 'stems')) { const pad = spec.x.names ? .6 : (b - a) / spec.series[0].x.length || .5; a -= pad; b += pad; }
    return a < b ? [a, b] : [a - .5, b + .5];
  };
  const all = whole();
  let scale = null;
  const shown = () => spec.series.filter((s) => !s.off);

  function draw() {
    const view = group.view && group.view[1] > all[0] && group.view[0] < all[1] ? group.view : all;
    const w = Math.max(box.clientWidth, 200), h = spec.height || Math.min(Math.max(w * .34, 190), 270);
    let low = Infinity, high = -Infinity;
    const reach = (s, y) => {
      const sorted = s.type === 'line' || s.type === 'band' || s.type === 'points';
      const a = sorted ? Math.max(0, first(s.x, view[0]) - 1) : 0, b = sorted ? Math.min(y.length, first(s.x, view[1]) + 1) : y.length;
      for (let i = a; i < b; i++) { const v = y[i]; if (v < low) low = v; if (v > high) high = v; }
    };
    for (const s of shown()) if (s.type !== 'band') reach(s, s.y);
    // A band far wider than what it surrounds would flatten everything else: it is cut.
    const [l, u] = [low, high];
    for (const s of shown()) if (s.type === 'band') { reach(s, s.y); reach(s, s.y2); }
    if (l < u && !spec.y.whole) { low = Math.max(low, l - 5 * (u - l)); high = Math.min(high, u + 5 * (u - l)); }
    if (shown().some((s) => s.type === 'bars' || s.type === 'stems')) { low = Math.min(low, 0); high = Math.max(high, 0); }
    for (const m of spec.marks || []) if (m.type === 'h' && m.keep) { low = Math.min(low, m.at); high = Math.max(high, m.at); }
    if (!(low < high)) { const pad = Math.abs(low) * .1 || 1; low = Number.isFinite(low) ? low - pad : 0; high = Number.isFinite(high) ? high + pad : 1; }
    const room = (high - low) * .06; if (!(low === 0)) low -= room; if (!(high === 0)) high += room;
    const ty = ticks(low, high, Math.max(4, h / 40), spec.y.log);
    const labels = ty.at.map((v) => spec.y.log ? `10^${v}` : told(v, ty.step));
    const left = Math.max(...labels.map((t) => t.length), 2) * 6.8 + 34, right = 10, top = 8, bottom = spec.x.names ? 24 : 40;
    const px = (v) => left + (v - view[0]) / (view[1] - view[0]) * (w - left - right), py = (v) => top + (high - v) / (high - low) * (h - top - bottom);
    scale = { left, right, w, view, px };
    let out = `<svg viewBox="0 0 ${w} ${h}" aria-hidden="true"><defs><clipPath id="${clip}"><rect x="${left}" y="${top}" width="${w - left - right}" height="${h - top - bottom}"/></clipPath></defs>`;
    ty.at.forEach((v, i) => {
      const label = spec.y.log ? `10<tspan dy="-5" font-size="9">${v}</tspan>` : labels[i];
      out += `<path class="grid" d="M${left} ${py(v).toFixed(1)}H${w - right}"/><text x="${left - 6}" y="${(py(v) + 4).toFixed(1)}" text-anchor="end">${label}</text>`;
    });
    if (spec.x.names) spec.x.names.forEach((name, i) => { out += `<text x="${px(i).toFixed(1)}" y="${h - bottom + 16}" text-anchor="middle">${clean(name)}</text>`; });
    else {
      const tx = ticks(view[0], view[1], Math.max(2, (w - left) / 75));
      for (const v of tx.at) out += `<path class="grid" d="M${px(v).toFixed(1)} ${top}V${h - bottom}"/><text x="${px(v).toFixed(1)}" y="${h - bottom + 16}" text-anchor="middle">${told(v, tx.step)}</text>`;
      out += `<text x="${(left + w - right) / 2}" y="${h - 4}" text-anchor="middle">${clean(spec.x.label)}</text>`;
    }
    out += `<text transform="translate(12 ${(top + h - bottom) / 2}) rotate(-90)" text-anchor="middle">${clean(spec.y.label)}</text><g clip-path="url(#${clip})">`;
    for (const s of spec.shades || []) out += `<rect class="shade" x="${px(s.from).toFixed(1)}" y="${top}" width="${Math.max(px(s.to) - px(s.from), 0).toFixed(1)}" height="${h - top - bottom}"/>`;
    const zero = Math.min(Math.max(py(0), top), h - bottom);
    for (const kind of ['band', 'bars', 'points', 'stems', 'line']) for (const s of shown()) if (s.type === kind) out += drawn(s, px, py, view, zero);
    for (const m of spec.marks || []) out += m.type === 'h' ? `<path class="mark-line" d="M${left} ${py(m.at).toFixed(1)}H${w - right}"/>` : `<path class="mark-line" d="M${px(m.at).toFixed(1)} ${top}V${h - bottom}"/>`;
    out += `<path class="cursor" visibility="hidden" d="M0 ${top}V${h - bottom}"/></g><path class="axis" d="M${left} ${top}V${h - bottom}H${w - right}"/></svg>`;
    box.innerHTML = out;
    point();
  }

  function point() {
    const line = box.querySelector('.cursor'), t = group.cursor;
    if (!line || t === null || t < scale.view[0] || t > scale.view[1]) { line?.setAttribute('visibility', 'hidden'); answer.textContent = ''; return; }
    line.setAttribute('visibility', 'visible');
    line.setAttribute('transform', `translate(${scale.px(t).toFixed(1)} 0)`);
    const parts = [spec.x.names ? spec.x.names[Math.round(t)] ?? '' : `${spec.x.label} ${told(t, (scale.view[1] - scale.view[0]) / 500)}`];
    for (const s of shown()) {
      if (s.type === 'band' || !s.x.length) continue;
      let i = Math.min(first(s.x, t), s.x.length - 1);
      if (i > 0 && t - s.x[i - 1] < s.x[i] - t) i--;
      const gap = s.x.length > 1 ? 2 * (s.x[s.x.length - 1] - s.x[0]) / (s.x.length - 1) : 1;
      if (Math.abs(s.x[i] - t) <= gap) parts.push(`${s.name} ${told(spec.y.log ? 10 ** s.y[i] : s.y[i])}`);
    }
    answer.textContent = parts.join(' · ');
  }

  const all_of = (what) => { for (const m of group.members) m[what](); };
  const zoom = (factor) => {
    const [a, b] = scale.view, c = group.cursor !== null && group.cursor >= a && group.cursor <= b ? group.cursor : (a + b) / 2;
    const v = [c - (c - a) * factor, c + (b - c) * factor];
    group.view = v[1] - v[0] >= all[1] - all[0] ? null : v;
    all_of('draw');
  };
  for (const name of new Set(spec.series.map((s) => s.group || s.name))) {
    const members = spec.series.filter((s) => (s.group || s.name) === name), b = make('button', legend, { type: 'button' });
    b.setAttribute('aria-pressed', 'true');
    make('i', b, { className: members.at(-1).dash ? 'dash' : members.at(-1).type }).style.setProperty('--own', `var(--c${members.at(-1).color})`);
    b.append(name);
    b.onclick = () => { const off = !members[0].off; for (const s of members) s.off = off; b.setAttribute('aria-pressed', String(!off)); draw(); };
  }
  const value = (e) => { const r = box.getBoundingClientRect(); return scale.view[0] + (e.clientX - r.left - scale.left) / (r.width - scale.left - scale.right) * (scale.view[1] - scale.view[0]); };
  let began = null;
  box.onpointermove = (e) => { group.cursor = value(e); all_of('point'); };
  box.onpointerleave = () => { group.cursor = null; all_of('point'); };
  box.onpointerdown = (e) => { if (e.pointerType === 'mouse') began = value(e); };
  box.onpointerup = (e) => {
    const end = value(e);
    if (began !== null && Math.abs(end - began) > .02 * (scale.view[1] - scale.view[0])) { group.view = [Math.min(began, end), Math.max(began, end)]; all_of('draw'); }
    began = null;
  };
  box.ondblclick = () => { group.view = null; all_of('draw'); };
  box.onkeydown = (e) => {
    const [a, b] = scale.view, by = (b - a) * (e.shiftKey ? .1 : .01);
    if (e.key === 'ArrowLeft' || e.key === 'ArrowRight') {
      group.cursor = Math.min(Math.max((group.cursor ?? (a + b) / 2) + (e.key === 'ArrowLeft' ? -by : by), all[0]), all[1]);
      if (group.cursor < a || group.cursor > b) { const m = group.cursor < a ? group.cursor - a : group.cursor - b; group.view = [a + m, b + m]; all_of('draw'); }
      all_of('point');
    } else if (e.key === '+' || e.key === '=') zoom(.6);
    else if (e.key === '-') zoom(1 / .6);
    else if (e.key === '0' || e.key === 'Escape') { group.view = null; group.cursor = null; all_of('draw'); }
    else return;
    e.preventDefault();
  };
  group.members.push({ draw, point });
  redraws.push(draw);
  draw();
}

function matrix(box, spec) {
  const v = read(spec.values), rows = spec.rows, columns = spec.columns;
  const color = (x) => { const t = Math.min(Math.abs(x) / spec.high, 1); return `<rect fill="var(--${x < 0 ? 'c0' : 'c1'})" opacity="${(t * .75).toFixed(2)}"`; };
  function draw() {
    const room = Math.max(box.clientWidth, 200), long = Math.max(...rows.map((r) => r.length)) * 6.8 + 12;
    // Whole names where there is room for them beside cells that can hold their numbers.
    const wide = long + columns.length * 34 <= room, names = wide ? rows : spec.short;
    const left = wide ? long : Math.max(...names.map((r) => r.length)) * 7 + 14, top = 22;
    const w = Math.min(room, left + columns.length * 46), size = (w - left) / columns.length, tall = Math.min(size, 30), h = top + rows.length * tall + 4;
    let out = `<svg viewBox="0 0 ${w} ${h}" style="max-width:${w}px" aria-hidden="true">`;
    columns.forEach((c, j) => { out += `<text x="${(left + (j + .5) * size).toFixed(1)}" y="${top - 7}" text-anchor="middle">${clean(c)}</text>`; });
    rows.forEach((r, i) => {
      const y = top + i * tall;
      out += `<text x="${left - 6}" y="${(y + tall / 2 + 4).toFixed(1)}" text-anchor="end">${clean(names[i])}</text>`;
      for (let j = 0; j < columns.length; j++) {
        const x = v[i * columns.length + j], at = left + j * size;
        if (!Number.isFinite(x)) { out += `<text x="${(at + size / 2).toFixed(1)}" y="${(y + tall / 2 + 4).toFixed(1)}" text-anchor="middle">·</text>`; continue; }
        out += `${color(x)} x="${(at + .5).toFixed(1)}" y="${(y + .5).toFixed(1)}" width="${(size - 1).toFixed(1)}" height="${(tall - 1).toFixed(1)}" rx="2"><title>${clean(r)}, ${clean(columns[j])}: ${told(x)}</title></rect>`;
        if (size >= 30) out += `<text x="${(at + size / 2).toFixed(1)}" y="${(y + tall / 2 + 4).toFixed(1)}" text-anchor="middle" style="font-size:11px;fill:var(--ink)" pointer-events="none">${x.toFixed(2).replace('-', '−').replace('0.', '.')}</text>`;
      }
    });
    box.innerHTML = out + '</svg>';
  }
  redraws.push(draw);
  draw();
}
