"use strict";
// The page: fills the charts from the embedded data and redraws them when a control changes.

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const hidden = new Set();
const X_NAMES = { steps: "environment steps", updates: "updates over all learners", seconds: "" };

function axis(kind, most) {
  if (kind !== "seconds") return { name: X_NAMES[kind], size: 1 };
  return timeUnit(most);
}

function describe(panel, series) {
  const ends = series.map((each) => {
    const last = each.y.findLastIndex(known);
    if (last < 0) return `${each.name} has no value`;
    const interval = each.low && known(each.low[last]) ? `, 95 % interval ${plain(each.low[last])} to ${plain(each.high[last])}` : "";
    return `${each.name} ends at ${plain(each.y[last])}${interval}`;
  });
  const references = (panel.references || []).map((mark) => `; ${mark.name}`).join("");
  return `Learning curves on ${panel.name}: ${ends.join("; ") || "no curves shown"}${references}.`;
}

function drawPanel(host) {
  const panel = data.panels[Number(host.dataset.panel)];
  const kind = find("x-axis").value;
  const measure = find("measure") ? find("measure").value : "score";
  const everySeed = find("seeds") ? find("seeds").checked : false;
  const shown = panel.series.filter((each) => !hidden.has(each.name) && each.y[measure]);
  const unit = axis(kind, extent(shown.flatMap((each) => each.x[kind]))[1]);
  const series = shown.map((each) => {
    const y = each.y[measure];
    return { name: each.name, color: each.color, x: each.x[kind].map((x) => x / unit.size), y: y.mean, low: everySeed ? null : y.low,
      high: y.high, lines: everySeed ? y.lines : null, around: y.lines, counts: each.counts, width: each.width, dash: each.dash };
  });
  const marks = measure === "score" ? (panel.paper || []).filter((mark) => !hidden.has(mark.method)) : [];
  lineChart(host, { label: describe(panel, series), xName: unit.name, series, marks: marks.concat(panel.references || []),
    height: data.panels.length === 1 ? 380 : 250, xFormat: (x) => digits(x, 1) });
}

function drawPanels() {
  for (const host of document.querySelectorAll("[data-panel]")) drawPanel(host);
  if (data.profile) drawProfile();
}

function drawProfile() {
  const series = data.profile.series.filter((each) => !hidden.has(each.name)).map((each) => ({ ...each, x: data.profile.x }));
  const label = "Performance profiles: the fraction of runs above each normalized score. The table below has the aggregates.";
  lineChart(find("profile"), { label, xName: "normalized score", series, range: [0, 1], xFormat: (x) => digits(x, 2) });
}

function buildLegend() {
  const entries = new Map(data.panels.flatMap((panel) => panel.series.map((each) => [each.name, each])));
  for (const [name, each] of entries) {
    const button = element("button", "", find("legend"));
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    const swatch = node("svg", { viewBox: "0 0 22 10", "aria-hidden": "true" }, button);
    const line = node("line", { x1: 1, x2: 21, y1: 5, y2: 5, style: `stroke:${colorOf(each.color)};stroke-width:3` }, swatch);
    if (dashOf(each)) line.setAttribute("stroke-dasharray", dashOf(each));
    element("span", "", button, name);
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      drawPanels();
    });
  }
}

function drawStrip(run) {
  const host = find("strip"), legend = find("strip-legend");
  legend.replaceChildren();
  const learners = [...new Set(run.strip.map((part) => part[2]))].sort((a, b) => a - b);
  for (const learner of learners) {
    const entry = element("span", "", legend);
    element("i", "swatch", entry).style.background = colorOf(learner);
    entry.append(`learner ${learner}`);
  }
  const reign = new Map();
  for (const [from, to, best] of run.strip) reign.set(best, (reign.get(best) || 0) + to - from);
  const whole = [...reign.values()].reduce((a, b) => a + b, 0) || 1;
  const parts = learners.map((each) => `learner ${each} ${Math.round((100 * reign.get(each)) / whole)} % of the time`);
  host.setAttribute("aria-label", `Best learner over time: ${parts.join(", ")}.`);
  host.setAttribute("role", "img");
  paintStrip(host, run);
}

function paintStrip(host, run) {
  const width = host.clientWidth, height = 56;
  if (!width || !run.strip.length) return;
  const first = run.strip[0][0], last = run.strip[run.strip.length - 1][1];
  const toX = (x) => ((x - first) / (last - first || 1)) * width;
  const svg = node("svg", { height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  for (const [from, to, best] of run.strip) {
    const rect = node("rect", { x: toX(from), y: 0, width: Math.max(0.6, toX(to) - toX(from) + 0.3), height: 30, style: `fill:${colorOf(best)}` }, svg);
    node("title", {}, rect, `learner ${best} from ${digits(from, 0)} to ${digits(to, 0)} steps`);
  }
  for (const tick of ticksBetween(first, last, Math.max(2, Math.floor(width / 110)))) {
    const x = toX(tick), anchor = x < 20 ? "start" : x > width - 20 ? "end" : "middle";
    node("text", { x, y: 50, "text-anchor": anchor }, svg, short(tick, last));
  }
  host.replaceChildren(svg);
}

function drawChief() {
  const run = data.chief[Number(find("chief-run").value)];
  drawStrip(run);
  find("chief-charts").hidden = !run.beta;
  if (!run.beta) return;
  const last = (list) => list.findLast(known);
  const common = { xName: "environment steps", log: true, xFormat: (x) => digits(x, 0) };
  lineChart(find("beta"), { ...common, label: `β over time, ending at ${plain(last(run.beta) ?? 0)}.`,
    series: [{ name: "β", color: 0, x: run.steps, y: run.beta }] });
  const distances = [["spread", 0, ""], ["target", 1, "6 4"], ["change", 2, "2 4"]]
    .filter(([name]) => run[name].some(known))
    .map(([name, color, dash]) => ({ name, color, dash, x: run.steps, y: run[name] }));
  const ends = distances.map((each) => `${each.name} ends at ${plain(last(each.y))}`);
  lineChart(find("distances"), { ...common, label: `Distances over time: ${ends.join(", ")}.`, series: distances });
}

buildLegend();
for (const id of ["x-axis", "measure", "seeds"]) if (find(id)) find(id).addEventListener("change", drawPanels);
drawPanels();
if (data.iqm) intervalChart(find("iqm"), data.iqm, `Interquartile means: ${data.iqm.map((row) => `${row.name} ${plain(row.value)}`).join(", ")}.`);
if (data.chief.length) {
  data.chief.forEach((run, index) => { element("option", "", find("chief-run"), run.name).value = index; });
  find("chief-run").closest(".controls").hidden = data.chief.length === 1;
  find("chief-run").addEventListener("change", drawChief);
  new ResizeObserver(() => paintStrip(find("strip"), data.chief[Number(find("chief-run").value)])).observe(find("strip"));
  drawChief();
}
document.documentElement.dataset.ready = String(Math.round(performance.now()));
