"use strict";
// The page of a search: its history, and which values go together.

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);

function drawHistory() {
  const series = [
    { name: "complete", color: 0, points: true, x: data.numbers, y: data.complete },
    { name: "pruned", color: 7, dash: "none", points: true, x: data.numbers, y: data.pruned },
    { name: "best so far", color: 1, x: data.numbers, y: data.best },
  ].filter((each) => each.y.some(known));
  const ends = data.best.findLast(known);
  const label = `Scores of ${data.numbers.length} trials${known(ends) ? `; the best is ${plain(ends)}` : ""}.`;
  lineChart(find("history-chart"), { label, xName: "trial", series, xFormat: (x) => digits(x, 0), height: 320 });
}

// A line per trial over axes from 0 to 1: lines: {name, at, strength, texts, best}; axes: {name, ticks: [[at, text]]}.
function parallelChart(host, axes, lines) {
  let chosen = null;
  const tip = element("div", "tip", null);
  tip.hidden = true;
  tip.setAttribute("role", "status");
  const say = (index, x) => {
    chosen = index;
    for (const path of host.querySelectorAll(".trial")) path.classList.toggle("chosen", Number(path.dataset.index) === index);
    tip.hidden = index === null;
    if (index === null) return;
    tip.replaceChildren();
    element("div", "at", tip, lines[index].name);
    axes.forEach((axis, place) => {
      const row = element("div", "row", tip);
      element("i", "", row);
      element("span", "", row, axis.name);
      element("b", "", row, lines[index].texts[place]);
    });
    tip.style.transform = `translate(${Math.max(0, Math.min(x, host.clientWidth - tip.offsetWidth))}px, 8px)`;
  };
  const paint = () => {
    const width = host.clientWidth, height = 340, top = 34, bottom = height - 26;
    if (!width || host.painted === width) return;
    host.painted = width;
    const toX = (place) => 44 + (place / Math.max(axes.length - 1, 1)) * (width - 88);
    const toY = (at) => bottom - at * (bottom - top);
    const svg = node("svg", { height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    // The best ones are drawn last, above the others.
    lines.map((line, index) => [line, index]).sort(([a], [b]) => a.strength - b.strength).forEach(([line, index]) => {
      const d = pathOf(line.at.map((_, place) => toX(place)), line.at, (x) => x, toY);
      const style = `stroke:${line.best ? "var(--c1)" : "var(--c0)"};opacity:${(0.12 + 0.78 * line.strength).toFixed(2)}`;
      const path = node("path", { class: "trial", d, style, "data-index": index }, svg);
      path.addEventListener("pointerenter", (event) => say(index, event.clientX - host.getBoundingClientRect().left + 14));
      path.addEventListener("pointerleave", () => say(null));
    });
    axes.forEach((axis, place) => {
      const x = toX(place), anchor = place === 0 ? "start" : place === axes.length - 1 ? "end" : "middle";
      node("line", { class: "base", x1: x, x2: x, y1: top, y2: bottom }, svg);
      const edge = { start: x - 40, end: x + 40, middle: x }[anchor];
      const room = Math.floor((width - 88) / Math.max(axes.length - 1, 1) / 6.4);
      const name = axis.name.length > room ? `${axis.name.slice(0, Math.max(room - 1, 3))}…` : axis.name;
      node("title", {}, node("text", { x: edge, y: place % 2 ? 24 : 12, "text-anchor": anchor, style: "fill:var(--ink)" }, svg, name), axis.name);
      for (const [at, text] of axis.ticks) {
        node("text", { class: "tick", x: x + (anchor === "end" ? 6 : -6), y: toY(at) + 4, "text-anchor": anchor === "end" ? "start" : "end" }, svg, text);
      }
    });
    host.replaceChildren(svg, tip);
    if (chosen !== null) say(chosen, 0);
  };
  host.tabIndex = 0;
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", `${lines.length} trials over ${axes.map((axis) => axis.name).join(", ")}. Use the arrow keys to read them, from the best.`);
  host.addEventListener("keydown", (event) => {
    const order = lines.map((_, index) => index).sort((a, b) => lines[b].strength - lines[a].strength);
    const now = chosen === null ? -1 : order.indexOf(chosen), last = order.length - 1;
    const goals = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: last };
    if (event.key === "Escape") say(null);
    if (!(event.key in goals)) return;
    event.preventDefault();
    say(order[Math.min(last, Math.max(0, goals[event.key]))], 0);
  });
  host.addEventListener("blur", () => say(null));
  new ResizeObserver(paint).observe(host);
  paint();
}

drawHistory();
if (find("values-chart")) parallelChart(find("values-chart"), data.axes, data.lines);
document.documentElement.dataset.ready = String(Math.round(performance.now()));
