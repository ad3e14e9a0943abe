"use strict";
// Lineage as lines through time: a lane per learner, thick while it is the best; copies cross over.
// A lane has the color of the learner that its policy descends from.

const LANE = 22, DENSE = 6;

function drawLineage(figure, view) {
  const { rows, events, learners } = view;
  const alone = learners < 2 && !events.length;
  const chart = ready(figure, alone ? "One learner: nobody guides it." : rows.lineage.length || events.length ? null : "No review by a chief.");
  if (!chart) return;
  const guides = rows.lineage.some((row) => known(row[2]));
  const legend = [{ name: guides ? "thick: the best, which guides the others" : "thick: the best" }];
  if (events.some((event) => event[1] === "copy")) legend.push({ name: "▸ a copy takes over" });
  if (events.some((event) => event[1] === "replaced")) legend.push({ name: "× had diverged, was replaced" });
  if (events.some((event) => event[1] === "child")) legend.push({ name: "○ a child of the elite" });
  tellLegend(figure, legend);
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", describeLineage(view));
  chart.paint = () => paintLineage(chart, view);
  if (!chart.watched) {
    chart.watched = new ResizeObserver(() => { if (chart.clientWidth !== chart.painted) chart.paint(); });
    chart.watched.observe(chart);
  }
  chart.paint();
}

function describeLineage({ rows, events }) {
  const best = rows.lineage.findLast((row) => known(row[1]));
  const count = (kind) => events.filter((event) => event[1] === kind).length;
  return `Lineage: ${best ? `learner ${best[1]} is best` : "nobody is best yet"}; ${count("copy")} copies, ${count("replaced")} replaced, ${count("child")} children.`;
}

// From whom each lane descends: pieces of lanes as {lane, from, to, color}, and the color of every event.
function descent(events, learners, first, last) {
  const pieces = [], given = [], origin = [...Array(learners).keys()], begun = Array(learners).fill(first);
  for (let index = 0; index < events.length;) {
    const step = events[index][0], before = [...origin];
    for (; index < events.length && events[index][0] === step; index += 1) {
      const [, , source, target] = events[index];
      given.push(source === null ? origin[target] : before[source]);
      if (source === null || before[source] === origin[target]) continue;
      pieces.push({ lane: target, from: begun[target], to: step, color: origin[target] });
      origin[target] = before[source];
      begun[target] = step;
    }
  }
  origin.forEach((color, lane) => pieces.push({ lane, from: begun[lane], to: last, color }));
  return { pieces, given };
}

function paintLineage(chart, { run, rows, events, learners }) {
  const width = chart.painted = chart.clientWidth, height = learners * LANE + 46;
  if (!width) return;
  const first = 0, last = Math.max(run.step, ...rows.lineage.slice(-1).map((row) => row[0]), ...events.slice(-1).map((event) => event[0]), 1);
  const from = 64, to = width - 16;
  const toX = (step) => from + ((step - first) / (last - first)) * (to - from);
  const toY = (lane) => 14 + lane * LANE;
  const svg = node("svg", { height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const { pieces, given } = descent(events, learners, first, last);
  for (let lane = 0; lane < learners; lane += 1) node("text", { x: from - 10, y: toY(lane) + 4, "text-anchor": "end" }, svg, `learner ${lane}`);
  for (const piece of pieces) laneLine(svg, "lane", piece, piece.from, piece.to, toX, toY);
  paintReigns(svg, rows.lineage, pieces, last, toX, toY);
  paintEvents(svg, events, given, toX, toY, (to - from) / Math.max(1, events.length) < DENSE);
  const bottom = learners * LANE + 8;
  node("line", { class: "base", x1: from, x2: to, y1: bottom, y2: bottom }, svg);
  const ticks = ticksBetween(first, last, Math.max(2, Math.floor(width / 110)));
  tickNames(ticks).forEach((name, index) => node("text", { x: toX(ticks[index]), y: bottom + 16, "text-anchor": "middle" }, svg, name));
  node("text", { class: "axis-name", x: (from + to) / 2, y: height - 4, "text-anchor": "middle" }, svg, X_NAMES[0]);
  chart.replaceChildren(svg);
}

function laneLine(svg, className, piece, from, to, toX, toY) {
  return node("line", { class: className, x1: toX(from), x2: toX(to), y1: toY(piece.lane), y2: toY(piece.lane), style: `stroke:${colorOf(piece.color)}` }, svg);
}

// A choice holds until the next review; the thin upright line hands over from one guide to the next.
function paintReigns(svg, reviews, pieces, last, toX, toY) {
  const chosen = reviews.filter((row) => known(row[1])), reigns = [];
  chosen.forEach((row, index) => {
    const end = index + 1 < chosen.length ? chosen[index + 1][0] : last, latest = reigns[reigns.length - 1];
    if (latest && latest.lane === row[1]) latest.to = end;
    else reigns.push({ lane: row[1], from: row[0], to: end });
  });
  reigns.slice(1).forEach((reign, index) => node("line", { class: "baton", x1: toX(reign.from), x2: toX(reign.from), y1: toY(reigns[index].lane), y2: toY(reign.lane) }, svg));
  for (const reign of reigns) {
    for (const piece of pieces.filter((each) => each.lane === reign.lane && each.to >= reign.from && each.from <= reign.to)) {
      const line = laneLine(svg, "reign", piece, Math.max(piece.from, reign.from), Math.min(piece.to, reign.to), toX, toY);
      node("title", {}, line, `learner ${reign.lane} is best from ${digits(reign.from, 0)} to ${digits(reign.to, 0)} steps`);
    }
  }
}

function paintEvents(svg, events, given, toX, toY, dense) {
  events.forEach(([step, kind, source, target], index) => {
    const x = toX(step), y = toY(target), color = colorOf(given[index]);
    const group = node("g", dense ? { opacity: 0.45 } : {}, svg);
    const what = source === null ? "has a new policy" : `takes over from learner ${source}`;
    node("title", {}, group, `step ${digits(step, 0)}: learner ${target} ${what}`);
    if (source !== null) node("line", { class: "gift", x1: x, x2: x, y1: toY(source), y2: y, style: `stroke:${color}` }, group);
    const up = source !== null && source > target ? 1 : -1;
    if (kind === "replaced") node("path", { class: "cross", d: `M${x - 4},${y - 4}l8,8m0,-8l-8,8` }, group);
    else if (source === null) node("circle", { r: 3.5, cx: x, cy: y, style: `fill:var(--paper);stroke:${color};stroke-width:1.5` }, group);
    else if (!dense) node("path", { d: `M${x},${y}l-4,${7 * up}h8Z`, style: `fill:${color}` }, group);
  });
}
