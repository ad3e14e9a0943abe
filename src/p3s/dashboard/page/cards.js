"use strict";
// One run from inside: its numbers, each learner's return, who guided whom, β, distances, pace, film.

const CHARTS = {
  returns: "Return of each learner",
  lineage: "Who guides whom",
  beta: "Pull β",
  distances: "Spread, its target, and change",
  pace: "Throughput",
};

function drawCards(list, changed) {
  const host = find("cards"), ids = list.map((run) => String(run.id));
  host.classList.toggle("single", list.length === 1);
  const old = [...host.children].map((card) => card.dataset.run);
  const anew = old.join() !== ids.join();
  if (anew) host.replaceChildren(...list.map((run) => [...host.children].find((card) => card.dataset.run === String(run.id)) || makeCard(run)));
  list.forEach((run, place) => { if (!changed || anew || changed.has(run.id)) fillCard(host.children[place], run); });
  // What no run here has would be a row of excuses.
  for (const name of ["beta", "distances"]) {
    const figures = [...host.querySelectorAll(`[data-part="${name}"]`)];
    const none = figures.every((figure) => figure.children[2].hidden);
    for (const figure of figures) figure.hidden = none;
  }
  host.style.setProperty("--parts", [...host.children[0].children].filter((part) => !part.hidden).length);
}

function makeCard(run) {
  const card = element("article", "card");
  card.dataset.run = run.id;
  for (const part of ["head wide", "numbers wide"]) element("div", part, card);
  for (const [name, title] of Object.entries(CHARTS)) {
    const figure = element("figure", "", card);
    figure.dataset.part = name;
    element("h4", "", figure, title);
    element("div", "strip-legend", figure);
    const chart = element("div", "chart", figure);
    chart.id = `run-${run.id}-${name}`;
    element("p", "none", figure).hidden = true;
  }
  element("div", "more", card);
  return card;
}

function fillCard(card, run) {
  const have = kept.get(run.id) || emptyRows(true);
  const rows = { evaluations: points(have.evaluations), lineage: points(have.lineage), metrics: points(have.metrics) };
  const view = { run, rows, events: have.lineage.events || [], now: have.metrics.now || null };
  view.learners = countLearners(view);
  fillHead(card, run);
  fillNumbers(card.children[1], view);
  fillWarnings(card.children[1], run);
  const draw = { returns: drawReturns, lineage: drawLineage, beta: drawBeta, distances: drawDistances, pace: drawPace };
  for (const [name, paint] of Object.entries(draw)) paint(card.querySelector(`[data-part="${name}"]`), view);
  fillMore(card.querySelector(".more"), view);
}

function countLearners({ run, rows, events }) {
  const seen = [run.learners];
  for (const row of rows.evaluations.slice(-1)) seen.push(row[7].length);
  for (const row of rows.metrics.slice(-1)) seen.push(row[2].length);
  for (const row of rows.lineage) seen.push((row[1] ?? -1) + 1);
  for (const [, , source, target] of events) seen.push((source ?? -1) + 1, target + 1);
  return seen.reduce((a, b) => Math.max(a, b));
}

// ------------------------------------------------------------------ numbers

function fillHead(card, run) {
  const head = card.children[0];
  head.replaceChildren();
  card.setAttribute("aria-label", nameOf(run));
  const top = element("div", "top", head), title = element("h3", "", top);
  swatch(title, run.id);
  element("span", "name", title, nameOf(run));
  element("span", `chip ${run.state}`, top, run.state);
  const how = element("div", "how", head, howFar(run));
  how.dataset.run = run.id;
  bar(head, run);
}

function howFar(run) {
  const parts = [`${digits(run.step, 0)} of ${digits(run.steps, 0)} steps`];
  if (known(run.rate)) parts.push(`${plain(run.rate)} steps per second`);
  const rest = left(run), text = timeOf(run);
  parts.push(rest !== null ? `about ${text}` : run.changed ? `last row ${text}` : text);
  return parts.join(" · ");
}

function fillNumbers(host, { run, rows, learners }) {
  host.replaceChildren();
  const last = rows.evaluations[rows.evaluations.length - 1] || [], review = rows.lineage[rows.lineage.length - 1] || [];
  const list = element("dl", "", host);
  const put = (name, value) => {
    const pair = element("div", "", list);
    element("dt", "", pair, name);
    element("dd", "", pair, known(value) ? value : "–");
  };
  const text = (value) => (known(value) ? plain(value) : null);
  put("score", text(last[3] ?? run.score));
  put("champion", text(last[5]));
  put("mean", text(last[4]));
  put("learners", digits(learners, 0));
  if (learners > 1) put("best learner", known(review[1]) ? String(review[1]) : null);
  if (known(review[2])) put("β", text(review[2]));
}

function fillWarnings(host, run) {
  if (!run.notes.length) return;
  const note = element("div", run.state === "failed" ? "note bad" : "note", host);
  const list = element("ul", "", note);
  for (const line of run.notes) element("li", "name", list, line);
}

// ------------------------------------------------------------------ charts

// Empty a figure's place with a sentence, or make room for its chart.
function ready(figure, reason) {
  const [, legend, chart, none] = figure.children;
  legend.hidden = chart.hidden = Boolean(reason);
  none.hidden = !reason;
  none.textContent = reason || "";
  return reason ? null : chart;
}

function tellLegend(figure, entries) {
  const legend = figure.children[1];
  legend.replaceChildren();
  for (const each of entries) {
    const entry = element("span", "", legend);
    if (each.color !== undefined) lineSample(entry, each);
    entry.append(each.name);
  }
}

function drawReturns(figure, { run, rows, learners }) {
  const training = find("returns").value === "metrics";
  const own = rows[training ? "metrics" : "evaluations"], place = training ? 2 : 7;
  figure.children[0].textContent = training ? "Return of each learner in training" : "Return of each learner, noiseless episodes";
  const series = [];
  for (let learner = 0; learner < learners; learner += 1) {
    series.push({ name: `learner ${learner}`, color: learner, width: 1.5, x: own.map((row) => row[0]), y: own.map((row) => row[place][learner] ?? null) });
  }
  if (!training) series.push({ name: "champion", color: learners, dash: "none", width: 2.8, x: own.map((row) => row[0]), y: own.map((row) => row[5]) });
  const drawn = series.filter((each) => each.y.some(known));
  const waiting = run.state === "running" ? " yet" : "";
  const chart = ready(figure, drawn.length ? null : training ? `No episode in training${waiting}.` : `No evaluation${waiting}.`);
  if (!chart) return;
  tellLegend(figure, drawn.length > SHORT_LEGEND ? [{ name: `${learners} learners: point at the chart to read them` }] : drawn);
  const ends = drawn.map((each) => `${each.name} is at ${plain(each.y.findLast(known))}`);
  lineChart(chart, { label: `Returns: ${ends.join(", ")}.`, xName: X_NAMES[0], series: drawn, height: 240, xFormat: (x) => digits(x, 0) });
}

function drawBeta(figure, { rows }) {
  const own = rows.lineage.filter((row) => known(row[2]));
  const chart = ready(figure, own.length ? null : rows.lineage.length ? "This scheme has no β." : "No review by a chief.");
  if (!chart) return;
  tellLegend(figure, [{ name: "how hard the others are pulled to the best, log scale" }]);
  const beta = { name: "β", color: 0, x: own.map((row) => row[0]), y: own.map((row) => row[2]) };
  lineChart(chart, { label: `β is at ${plain(beta.y[beta.y.length - 1])}.`, xName: X_NAMES[0], log: true, series: [beta], height: 200, xFormat: (x) => digits(x, 0) });
}

function drawDistances(figure, { rows }) {
  const x = rows.lineage.map((row) => row[0]);
  const series = [["spread", 3, 0, ""], ["target", 4, 1, "6 4"], ["change", 5, 2, "2 4"]]
    .map(([name, place, color, dash]) => ({ name, color, dash, x, y: rows.lineage.map((row) => row[place]) }))
    .filter((each) => each.y.some(known));
  const chart = ready(figure, series.length ? null : rows.lineage.length ? "This scheme measures no distances." : "No review by a chief.");
  if (!chart) return;
  tellLegend(figure, [...series, { name: "log scale" }]);
  const ends = series.map((each) => `${each.name} is at ${plain(each.y.findLast(known))}`);
  lineChart(chart, { label: `Distances: ${ends.join(", ")}.`, xName: X_NAMES[0], log: true, series, height: 200, xFormat: (value) => digits(value, 0) });
}

function drawPace(figure, { rows }) {
  const own = rows.metrics, pace = { name: "steps per second", color: 0, x: [], y: [] };
  for (let index = 1; index < own.length; index += 1) {
    const passed = own[index][1] - own[index - 1][1], steps = own[index][0] - own[index - 1][0];
    pace.x.push(own[index][0]);
    pace.y.push(passed > 0 && steps >= 0 ? steps / passed : null);
  }
  const chart = ready(figure, pace.y.some(known) ? null : "Too few rows to tell how fast it is.");
  if (!chart) return;
  tellLegend(figure, [{ name: "environment steps of all learners per second, evaluations included" }]);
  lineChart(chart, { label: `Throughput: ${plain(pace.y.findLast(known))} steps per second at the end.`, xName: X_NAMES[0], series: [pace], height: 200, xFormat: (x) => digits(x, 0) });
}

// ------------------------------------------------------------------ the rest

function fillMore(host, { run, now }) {
  const name = run.film ? `film/${run.id}/${run.film}` : "";
  if (host.dataset.film !== name) {
    host.dataset.film = name;
    host.replaceChildren();
    if (name) showFilm(host, name, run.film);
  }
  const old = host.querySelector("details"), open = Boolean(old && old.open);
  if (old) old.remove();
  if (!now || !now.recent.length) return;
  const details = element("details", "", host);
  details.open = open;
  element("summary", "", details, "Latest losses and training returns");
  const names = Object.keys(now.losses);
  const rows = now.recent.map((recent, index) => [`learner ${index}`, recent, ...names.map((each) => now.losses[each][index])]);
  table(details, ["", "training return", ...names.map((each) => each.replace("_", " "))], rows);
  if (now.shards.length) table(details, ["", "steps per second", "waits for others"], now.shards.map(([pace, waits], index) => [`shard ${index}`, pace, known(waits) ? `${Math.round(100 * waits)} %` : null]));
}

function showFilm(host, address, name) {
  const figure = element("figure", "", host);
  element("h4", "", figure, `Film of step ${digits(Number(name.slice(5, -4)), 0)}`);
  const film = element(name.endsWith(".gif") ? "img" : "video", "", figure);
  if (film.tagName === "VIDEO") Object.assign(film, { controls: true, loop: true, muted: true, playsInline: true, preload: "metadata" });
  else film.alt = "a film of the chosen learner";
  film.src = address;
}

function table(host, names, rows) {
  const scroll = element("div", "scroll", host), made = element("table", "", scroll);
  const head = element("tr", "", element("thead", "", made));
  for (const name of names) element("th", "", head, name).scope = "col";
  const body = element("tbody", "", made);
  for (const [first, ...values] of rows) {
    const row = element("tr", "", body);
    element("th", "", row, first).scope = "row";
    for (const value of values) element("td", "", row, typeof value === "string" ? value : known(value) ? plain(value) : "–");
  }
}

function swatch(parent, id) {
  const made = element("i", colors.has(id) ? "swatch" : "swatch off", parent);
  if (colors.has(id)) made.style.background = colorOf(colors.get(id));
  return made;
}

function bar(parent, run) {
  element("i", "", element("div", "bar", parent)).style.width = `${run.steps ? Math.min(100, (100 * run.step) / run.steps) : 100}%`;
}

function lineSample(parent, each) {
  const sample = node("svg", { viewBox: "0 0 26 8", "aria-hidden": "true", width: 26, height: 8 }, parent);
  const line = node("path", { d: "M1 4H25", style: `stroke:${colorOf(each.color)};stroke-width:${each.width || 2.2}` }, sample);
  if (dashOf(each) && dashOf(each) !== "none") line.setAttribute("stroke-dasharray", dashOf(each));
}
