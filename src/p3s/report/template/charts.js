"use strict";
// Charts as inline SVG: lines with bands; the pointer and the arrow keys read values.

const NAMESPACE = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 4", "2 4", "9 3 2 3"];
const NUM_COLORS = 8;
const HUGE = 1e10;
const MOST_TICKS = 50;
const MOST_READ = 16;

const colorOf = (index) => `var(--c${index % NUM_COLORS})`;
// The dash changes after every fourth color, so that curves differ by more than their color.
const dashOf = (each) => each.dash || DASHES[Math.floor(each.color / 4) % DASHES.length];

function node(name, attributes, parent, text) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

function element(name, className, parent, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

const known = (value) => value !== null && value !== undefined;

function digits(value, most) {
  return value.toLocaleString("en", { maximumFractionDigits: most });
}

function plain(value) {
  const size = Math.abs(value);
  if (size >= HUGE) return value.toExponential(2).replace("+", "");
  if (size >= 100 || size === 0) return digits(value, 0);
  if (size >= 1) return digits(value, 2);
  if (size >= 0.001) return digits(value, 4);
  return value.toExponential(2);
}

// The label of a tick; `most` is the largest tick of the axis, so that all share one unit.
function short(value, most) {
  const size = Math.abs(value);
  if (size >= HUGE) return value.toExponential(1).replace("+", "");
  if (size >= 1e6) return `${digits(value / 1e6, 2)}M`;
  if (most >= 1e4 && size > 0) return `${digits(value / 1e3, 1)}k`;
  return digits(value, most <= 1 ? 3 : 2);
}

function tickNames(ticks) {
  const most = Math.max(...ticks.map(Math.abs));
  return ticks.map((tick) => short(tick, most));
}

function timeUnit(most) {
  if (most < 180) return { name: "seconds", size: 1 };
  if (most < 3 * 3600) return { name: "minutes", size: 60 };
  return { name: "hours", size: 3600 };
}

function ticksBetween(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [], first = Math.ceil(low / step) * step;
  // Counted, since huge numbers swallow a small step.
  for (let index = 0; index < MOST_TICKS && first + index * step <= high + step * 1e-6; index += 1) {
    const tick = first + index * step;
    ticks.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
  }
  return ticks;
}

function logTicks(low, high) {
  const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / 6));
  const ticks = [];
  for (let power = first; power <= last; power += every) ticks.push(power);
  return ticks;
}

function powerOfTen(power) {
  return power >= -3 && power <= 4 ? String(+(10 ** power).toPrecision(1)) : `1e${power}`;
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (!known(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return x - xs[low] <= xs[high] - x ? low : high;
}

// A line chart in `host`. spec: {label, xName, xFormat, series, log, zero, range, marks, height};
// a series: {name, color, x, y, low, high, lines, around, counts, points}. Another call redraws the chart.
function lineChart(host, spec) {
  host.chart = host.chart || prepare(host);
  if (host.chart.spec && host.chart.spec.xName !== spec.xName) host.chart.at = null;
  host.chart.spec = spec;
  draw(host);
}

function prepare(host) {
  const state = { width: 0, at: null };
  host.tabIndex = 0;
  host.setAttribute("role", "group");
  state.tip = element("div", "tip", null);
  state.tip.hidden = true;
  state.tip.setAttribute("role", "status");
  new ResizeObserver(() => { if (host.clientWidth !== state.width) draw(host); }).observe(host);
  const move = (event) => {
    if (!state.toX) return;
    const box = host.getBoundingClientRect();
    read(host, state.fromX(event.clientX - box.left));
  };
  host.addEventListener("pointermove", move);
  host.addEventListener("pointerdown", move);
  // Lifting a finger also leaves the chart, but the value should stay readable.
  host.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") forget(host); });
  host.addEventListener("blur", () => forget(host));
  host.addEventListener("keydown", (event) => step(host, event));
  return state;
}

function step(host, event) {
  const state = host.chart, visible = state.spec.series.filter((each) => each.x.length);
  if (!visible.length) return;
  const xs = visible.reduce((a, b) => (a.x.length >= b.x.length ? a : b)).x;
  const now = state.at === null ? -1 : nearest(xs, state.at), last = xs.length - 1;
  const goals = { ArrowRight: now + 1, ArrowLeft: now < 0 ? last : now - 1, Home: 0, End: last };
  if (event.key === "Escape") forget(host);
  if (!(event.key in goals)) return;
  event.preventDefault();
  read(host, xs[Math.min(last, Math.max(0, goals[event.key]))]);
}

function forget(host) {
  const state = host.chart;
  state.at = null;
  state.tip.hidden = true;
  if (state.cursor) state.cursor.replaceChildren();
}

// Show the value of every series at the x nearest to the wanted one.
function read(host, wanted) {
  const state = host.chart, spec = state.spec;
  const series = spec.series.filter((each) => each.x.length);
  if (!series.length || !state.cursor) return;
  let x = null;
  for (const each of series) {
    const own = each.x[nearest(each.x, wanted)];
    if (x === null || Math.abs(own - wanted) < Math.abs(x - wanted)) x = own;
  }
  state.at = x;
  state.cursor.replaceChildren();
  node("line", { class: "guide", x1: state.toX(x), x2: state.toX(x), y1: state.top, y2: state.bottom }, state.cursor);
  state.tip.replaceChildren();
  element("div", "at", state.tip, `${spec.xFormat ? spec.xFormat(x) : plain(x)} ${spec.xName}`);
  const found = [];
  for (const each of series) {
    const index = nearest(each.x, x);
    const gap = each.x.length > 1 ? (each.x[each.x.length - 1] - each.x[0]) / (each.x.length - 1) : Infinity;
    if (Math.abs(each.x[index] - x) <= gap && known(each.y[index])) found.push([each, index]);
  }
  // Of very many the highest: a longer list would not fit on the screen.
  const many = found.length > MOST_READ;
  if (many) found.sort(([a, i], [b, j]) => b.y[j] - a.y[i]);
  for (const [each, index] of found.slice(0, MOST_READ)) {
    tipRow(state.tip, each, index);
    node("circle", { class: "dot", r: 4, cx: state.toX(each.x[index]), cy: state.toY(each.y[index]), style: `fill:${colorOf(each.color)}` }, state.cursor);
  }
  if (many) element("div", "at", state.tip, `and ${found.length - MOST_READ} below`);
  state.tip.hidden = false;
  const wide = state.tip.offsetWidth, left = state.toX(x) + 14;
  const place = left + wide > state.width ? Math.max(0, state.toX(x) - wide - 14) : left;
  state.tip.style.transform = `translate(${place}px, ${state.top + 4}px)`;
}

function tipRow(tip, each, index) {
  const row = element("div", "row", tip);
  element("i", "", row).style.background = colorOf(each.color);
  element("span", "", row, each.name);
  element("b", "", row, each.format ? each.format(each.y[index]) : plain(each.y[index]));
  const notes = [];
  if (each.low && known(each.low[index])) notes.push(`${plain(each.low[index])} to ${plain(each.high[index])}`);
  if (each.counts) notes.push(`${each.counts[index]} seed${each.counts[index] === 1 ? "" : "s"}`);
  if (notes.length) element("small", "", row, notes.join(" · "));
}

// The range of the values; wide intervals from few seeds may leave the chart.
function yRange(spec) {
  if (spec.range) return spec.range;
  const lists = spec.series.flatMap((each) => [each.y, ...(each.lines || each.around || [])]);
  const values = lists.flat().concat((spec.marks || []).map((mark) => mark.value));
  let [low, high] = extent(spec.log ? values.filter((value) => value > 0) : values);
  if (low > high) [low, high] = [spec.log ? 0.1 : 0, 1];
  if (spec.log) {
    [low, high] = [Math.log10(low), Math.log10(high)];
    return high - low < 1 ? [Math.floor(low - 0.1), Math.ceil(high + 0.1)] : [low - 0.1, high + 0.1];
  }
  const [bandLow, bandHigh] = extent(spec.series.flatMap((each) => (each.low ? [...each.low, ...each.high] : [])));
  const most = 0.25 * (high - low);
  low = Math.max(Math.min(low, bandLow), low - most);
  high = Math.min(Math.max(high, bandHigh), high + most);
  if (low > 0 && low < 0.5 * high) low = 0;
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  return [low === 0 ? 0 : low - room, high + room];
}

function pathOf(xs, ys, toX, toY) {
  let path = "", pen = "M";
  for (let index = 0; index < xs.length; index += 1) {
    if (!known(ys[index])) { pen = "M"; continue; }
    path += `${pen}${toX(xs[index]).toFixed(1)},${toY(ys[index]).toFixed(1)}`;
    pen = "L";
  }
  return path;
}

function bandOf(each, toX, toY) {
  const there = [], back = [];
  each.x.forEach((x, index) => {
    if (!known(each.low[index])) return;
    there.push(`${toX(x).toFixed(1)},${toY(each.high[index]).toFixed(1)}`);
    back.unshift(`${toX(x).toFixed(1)},${toY(each.low[index]).toFixed(1)}`);
  });
  return there.length > 1 ? `M${there.join("L")}L${back.join("L")}Z` : "";
}

function draw(host) {
  const state = host.chart, spec = state.spec;
  const width = state.width = host.clientWidth, height = spec.height || 250;
  if (!width) return;
  const [yLow, yHigh] = yRange(spec);
  let [xLow, xHigh] = extent(spec.series.flatMap((each) => [each.x[0], each.x[each.x.length - 1]]));
  if (xLow > 0 && (xLow < 0.3 * xHigh || xLow === xHigh)) xLow = 0;
  const yTicks = spec.log ? logTicks(yLow, yHigh) : ticksBetween(yLow, yHigh, 5);
  const yNames = spec.log ? yTicks.map(powerOfTen) : tickNames(yTicks);
  const left = 14 + 6.7 * Math.max(...yNames.map((name) => name.length), 1), right = 16;
  state.top = 12;
  state.bottom = height - 42;
  const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  state.toX = scale(xLow, xHigh, left, width - right);
  state.fromX = scale(left, width - right, xLow, xHigh);
  const linearY = scale(yLow, yHigh, state.bottom, state.top);
  state.toY = spec.log ? (value) => linearY(Math.log10(Math.max(value, 1e-300))) : linearY;

  const svg = node("svg", { height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.label });
  yTicks.forEach((tick, index) => {
    const y = linearY(tick);
    node("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }, svg);
    node("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, svg, yNames[index]);
  });
  node("line", { class: "base", x1: left, x2: width - right, y1: state.bottom, y2: state.bottom }, svg);
  const xTicks = Number.isFinite(xLow) && xHigh > xLow ? ticksBetween(xLow, xHigh, Math.max(2, Math.floor(width / 95))) : [];
  tickNames(xTicks).forEach((name, index) => {
    node("text", { x: state.toX(xTicks[index]), y: state.bottom + 17, "text-anchor": "middle" }, svg, name);
  });
  node("text", { class: "axis-name", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, svg, spec.xName);
  const clip = node("clipPath", { id: `clip-${host.id || host.dataset.panel}` }, svg);
  node("rect", { x: left, y: 0, width: Math.max(0, width - right - left), height: state.bottom }, clip);
  drawSeries(svg, spec, state, left, width - right, `url(#${clip.id})`);
  state.cursor = node("g", {}, svg);
  host.setAttribute("aria-label", `${spec.label} Use the arrow keys to read values.`);
  host.replaceChildren(svg, state.tip);
  state.tip.hidden = true;
  // Who reads a value goes on reading when the chart grows.
  if (state.at !== null) read(host, state.at);
}

function drawSeries(svg, spec, state, left, right, clip) {
  for (const mark of spec.marks || []) {
    const y = state.toY(mark.value);
    const looks = mark.policy ? { class: `reference ${mark.policy}` } : { class: "mark", style: `stroke:${colorOf(mark.color)}` };
    const line = node("line", { ...looks, x1: left, x2: right, y1: y, y2: y }, svg);
    node("title", {}, line, mark.name);
    // Idle at the left and random at the right: the two lines may lie close together.
    const place = mark.policy === "idle" ? { x: left + 4, "text-anchor": "start" } : { x: right - 4, "text-anchor": "end" };
    if (mark.policy) node("text", { class: "reference-name", y: y - 4, ...place }, svg, mark.policy);
  }
  for (const each of spec.series) {
    if (each.low) node("path", { class: "band", "clip-path": clip, d: bandOf(each, state.toX, state.toY), style: `fill:${colorOf(each.color)}` }, svg);
  }
  for (const each of spec.series) {
    for (const line of each.lines || []) {
      node("path", { class: "seed", d: pathOf(each.x, line, state.toX, state.toY), style: `stroke:${colorOf(each.color)}` }, svg);
    }
  }
  for (const each of spec.series) {
    if (each.points) {
      each.y.forEach((value, index) => {
        if (known(value)) node("circle", { class: "dot", r: 4, cx: state.toX(each.x[index]), cy: state.toY(value), style: `fill:${colorOf(each.color)}` }, svg);
      });
      continue;
    }
    const dash = dashOf(each);
    const single = each.y.filter(known).length === 1;
    const attributes = { class: "line", "data-series": each.name, d: pathOf(each.x, each.y, state.toX, state.toY), style: `stroke:${colorOf(each.color)}` };
    if (dash) attributes["stroke-dasharray"] = dash;
    if (each.width) attributes.style += `;stroke-width:${each.width}`;
    node("path", attributes, svg);
    if (single) {
      const index = each.y.findIndex(known);
      node("circle", { class: "dot", r: 4, cx: state.toX(each.x[index]), cy: state.toY(each.y[index]), style: `fill:${colorOf(each.color)}` }, svg);
    }
  }
}

// Estimates with their intervals, one row each. rows: {name, color, value, low, high}.
function intervalChart(host, rows, label) {
  const paint = () => {
    const width = host.clientWidth, each = 34, height = rows.length * each + 40;
    if (!width || host.painted === width) return;
    host.painted = width;
    const longest = Math.max(...rows.map((row) => row.name.length));
    const left = Math.min(width * 0.42, longest * 7 + 12), right = width - 16;
    let [low, high] = extent(rows.flatMap((row) => [row.value, row.low, row.high]));
    [low, high] = [Math.min(low, 0), Math.max(high, 1)];
    const toX = (value) => left + ((value - low) / (high - low)) * (right - left);
    const svg = node("svg", { height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    for (const tick of ticksBetween(low, high, Math.max(2, Math.floor((right - left) / 80)))) {
      node("line", { class: "grid", x1: toX(tick), x2: toX(tick), y1: 4, y2: height - 30 }, svg);
      node("text", { x: toX(tick), y: height - 12, "text-anchor": "middle" }, svg, short(tick, 1));
    }
    rows.forEach((row, index) => {
      const y = index * each + 24, color = colorOf(row.color);
      const room = Math.floor((left - 12) / 6.4);
      const name = row.name.length > room ? `${row.name.slice(0, room - 1)}…` : row.name;
      node("title", {}, node("text", { x: left - 12, y: y + 4, "text-anchor": "end", style: "fill:var(--ink)" }, svg, name), row.name);
      if (known(row.low)) {
        node("line", { x1: toX(row.low), x2: toX(row.high), y1: y, y2: y, style: `stroke:${color};stroke-width:9;stroke-linecap:round;opacity:.28` }, svg);
      }
      const dot = node("circle", { cx: toX(row.value), cy: y, r: 5.5, style: `fill:${color}` }, svg);
      node("title", {}, dot, `${row.name}: ${plain(row.value)}`);
    });
    host.replaceChildren(svg);
  };
  new ResizeObserver(paint).observe(host);
  paint();
}
