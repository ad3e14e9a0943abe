"use strict";
// The dashboard: asks for what is new, keeps it, and draws it with the report's charts.

const find = (id) => document.getElementById(id);
const POLL = 2000, IDLE_POLL = 10000, RETRY = 4000, AGAIN = 60;
const MOST_DETAILS = 4, FIRST_SHOWN = 4, SHORT_LEGEND = 16;
const X_NAMES = ["environment steps", "updates over all learners", ""];
const RANK = { running: 0, failed: 1, stopped: 2, complete: 3 };

const runs = new Map();    // id -> what the list says of a run
const kept = new Map();  // id -> {since, full, evaluations, lineage, metrics}
const shown = new Set();   // ids of ticked runs
const colors = new Map();  // id -> color of a ticked run
const page = { since: 0, skew: 0, chosen: false, timer: 0, asking: false, fresh: 0, order: [] };

// ------------------------------------------------------------------ asking

function question() {
  const asked = new URLSearchParams({ since: page.since });
  drawnRuns().forEach((id, place) => {
    const full = place < MOST_DETAILS;
    const have = kept.get(id);
    // A curve that becomes a card begins anew: its other rows were never sent.
    if (!have || (full && !have.full)) kept.set(id, emptyRows(full));
    asked.append(kept.get(id).full ? "run" : "curve", `${id}:${kept.get(id).since}`);
  });
  return asked;
}

const emptyRows = (full) => ({ since: 0, full, evaluations: {}, lineage: {}, metrics: {} });

async function poll() {
  clearTimeout(page.timer);
  if (page.asking || document.hidden) return;
  page.asking = true;
  let news = null, wait = RETRY, state = "lost";
  const asked = question();
  try {
    const response = await fetch(`rows?${asked}`, { cache: "no-store" });
    if (response.status === 200) news = await response.json();
    if (response.ok) state = "live";
    else if (response.status === 403) state = "over";
  } catch { /* the dashboard has ended, or is about to begin again */ }
  page.asking = false;
  if (state === "live") {
    const busy = [...runs.values()].some((run) => run.state === "running");
    wait = busy || runs.size === 0 ? POLL : IDLE_POLL;
    page.fresh = Date.now();
  }
  if (news) take(news, asked);
  else tellTimes();
  if (news && (news.more || stale())) wait = AGAIN;
  tellState(state);
  if (state !== "over") page.timer = setTimeout(poll, wait);
}

// Whether there are ticked runs of which nothing was asked yet.
const stale = () => drawnRuns().some((id, place) => !kept.has(id) || (place < MOST_DETAILS && !kept.get(id).full));

function tellState(state) {
  const texts = { live: "live", lost: "no answer: has the dashboard ended?", over: "this address is no longer valid: use the one that p3s dashboard printed last" };
  find("live").classList.toggle("lost", state !== "live");
  if (find("live").textContent !== texts[state]) find("live").textContent = texts[state];
  document.documentElement.dataset.ready = state;
}

function take(news, asked) {
  for (const run of news.runs) runs.set(run.id, run);
  if (news.all) {
    const all = new Set(news.all);
    for (const id of runs.keys()) if (!all.has(id)) { runs.delete(id); shown.delete(id); kept.delete(id); }
    find("title").textContent = news.title;
    tellNotes(news.notes);
  }
  page.since = news.now;
  page.skew = news.time - Date.now() / 1000;
  const changed = new Set(news.runs.map((run) => run.id));
  for (const name of ["run", "curve"]) {
    for (const pair of asked.getAll(name)) {
      const id = Number(pair.split(":")[0]), have = kept.get(id);
      if (have) have.since = news.now;
    }
  }
  for (const [id, streams] of Object.entries(news.rows)) {
    const have = kept.get(Number(id));
    if (!have) continue;
    changed.add(Number(id));
    for (const [name, more] of Object.entries(streams)) add(have[name], more);
  }
  chooseFirst();
  drawAll(changed);
}

function add(record, more) {
  if (more.anew || !record.rows) Object.assign(record, { rows: [], events: [], tail: null });
  record.rows.push(...(more.rows || []));
  record.events.push(...(more.events || []));
  if (more.rows || more.tail) record.tail = more.tail || null;
  if (more.now) record.now = more.now;
}

const points = (record) => (record.rows ? (record.tail ? [...record.rows, record.tail] : record.rows) : []);

// ------------------------------------------------------------------ which runs

function sorted() {
  return [...runs.values()].sort((a, b) => RANK[a.state] - RANK[b.state] || a.env.localeCompare(b.env) || a.method.localeCompare(b.method) || a.seed - b.seed || a.id - b.id);
}

const drawnRuns = () => page.order.filter((id) => shown.has(id));

function chooseFirst() {
  page.order = sorted().map((run) => run.id);
  if (page.chosen || !runs.size) return;
  const newest = [...runs.values()].sort((a, b) => RANK[a.state] - RANK[b.state] || b.changed - a.changed || a.id - b.id);
  for (const run of newest.slice(0, FIRST_SHOWN)) show(run.id, true);
  page.chosen = true;
}

function show(id, visible) {
  if (!visible) { shown.delete(id); colors.delete(id); return; }
  if (shown.has(id)) return;
  shown.add(id);
  const taken = new Set(colors.values());
  let color = 0;
  while (taken.has(color)) color += 1;
  colors.set(id, color);
}

function matches(run) {
  const words = find("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${nameOf(run)} ${run.folder}`.toLowerCase();
  return (!find("state").value || run.state === find("state").value) && words.every((word) => text.includes(word));
}

const nameOf = (run) => `${run.method} on ${run.env}, seed ${run.seed}`;

// ------------------------------------------------------------------ the list

function duration(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${digits(seconds / 3600, 1)} h` : `${Math.round(seconds / 86400)} days`;
}

const left = (run) => (run.state === "running" && run.rate > 0 && run.step < run.steps ? (run.steps - run.step) / run.rate : null);

function timeOf(run) {
  const rest = left(run);
  if (rest !== null) return `${duration(rest)} left`;
  if (!run.changed) return "no row yet";
  return `${duration(Date.now() / 1000 + page.skew - run.changed)} ago`;
}

// Times go on where nothing else is new.
function tellTimes() {
  for (const cell of document.querySelectorAll("td.time")) cell.textContent = timeOf(runs.get(Number(cell.dataset.run)));
  for (const line of document.querySelectorAll(".how")) line.textContent = howFar(runs.get(Number(line.dataset.run)));
}

function drawList() {
  const body = find("table").tBodies[0];
  const list = page.order.map((id) => runs.get(id)).filter((run) => run && matches(run));
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.run : null;
  body.replaceChildren(...list.map(listRow));
  if (!list.length) element("td", "left", element("tr", "", body), "No run matches.").colSpan = 8;
  const box = focused && body.querySelector(`input[data-run="${Number(focused)}"]`);
  if (box) box.focus();
  const cards = Math.min(drawnRuns().length, MOST_DETAILS);
  find("details-hint").textContent = drawnRuns().length > MOST_DETAILS ? `The first ${cards} of the ${drawnRuns().length} ticked ones are shown from inside, too.` : "";
}

function listRow(run) {
  const row = element("tr");
  const head = element("th", "", row);
  head.scope = "row";
  const label = element("label", "", head);
  const box = element("input", "", label);
  box.type = "checkbox";
  box.checked = shown.has(run.id);
  box.dataset.run = run.id;
  box.addEventListener("change", () => { show(run.id, box.checked); chosen(); });
  swatch(label, run.id);
  const name = element("span", "name", label, run.method);
  element("small", "name", name, run.folder);
  element("td", "left env name", row, run.env);
  element("td", "", row, String(run.seed)).dataset.name = "seed";
  const state = element("td", "left", row);
  element("span", `chip ${run.state}`, state, run.state);
  if (run.notes.length) element("small", "warn", state, run.notes.length === 1 ? "1 warning" : `${run.notes.length} warnings`);
  const steps = element("td", "left steps", row, `${digits(run.step, 0)} of ${digits(run.steps, 0)}`);
  bar(steps, run);
  element("td", "", row, known(run.score) ? plain(run.score) : "–").dataset.name = "score";
  element("td", "", row, known(run.rate) ? plain(run.rate) : "–").dataset.name = "steps per second";
  element("td", "time", row, timeOf(run)).dataset.run = run.id;
  return row;
}

function tellNotes(notes) {
  find("notes").hidden = !notes.length;
  const list = find("notes").querySelector("ul");
  list.replaceChildren();
  for (const note of notes) element("li", "", list, note);
}

function tellCounts() {
  const counts = Object.keys(RANK).map((state) => [[...runs.values()].filter((run) => run.state === state).length, state]);
  const parts = counts.filter(([count]) => count).map(([count, state]) => `${digits(count, 0)} ${state}`);
  find("counts").textContent = parts.join(" · ") || "no runs yet";
  const running = counts[0][0];
  document.title = `${running ? `${running} running · ` : ""}p3s dashboard`;
}

// ------------------------------------------------------------------ learning curves

function xUnit(kind, most) {
  return kind === 2 ? timeUnit(most) : { name: X_NAMES[kind], size: 1 };
}

function drawCurves() {
  const host = find("panels"), drawn = drawnRuns().map((id) => runs.get(id));
  const envs = [...new Set(drawn.map((run) => run.env))];
  const old = [...host.children].map((figure) => figure.dataset.env);
  if (old.join("\n") !== envs.join("\n")) {
    host.replaceChildren(...envs.map((env, place) => {
      const figure = element("figure");
      figure.dataset.env = env;
      element("h3", "name", figure, env);
      const chart = element("div", "chart", figure);
      chart.dataset.panel = place;
      element("p", "hint", figure);
      return figure;
    }));
  }
  host.classList.toggle("wide", envs.length === 1);
  envs.forEach((env, place) => drawPanel(host.children[place], drawn.filter((run) => run.env === env), envs.length));
  const legend = find("legend");
  legend.replaceChildren();
  if (drawn.length > SHORT_LEGEND) element("span", "hint", legend, `${drawn.length} runs: the list above has their colors.`);
  else for (const run of drawn) {
    const entry = element("span", "", legend);
    entry.setAttribute("role", "listitem");
    lineSample(entry, { color: colors.get(run.id) });
    element("span", "name", entry, nameOf(run));
  }
}

function drawPanel(figure, drawn, panels) {
  const kind = Number(find("x-axis").value), measure = Number(find("measure").value);
  const lines = drawn.map((run) => [run, points((kept.get(run.id) || emptyRows()).evaluations)]).filter(([, rows]) => rows.length);
  const unit = xUnit(kind, extent(lines.flatMap(([, rows]) => rows.map((row) => row[kind])))[1]);
  const series = lines.map(([run, rows]) => ({ name: nameOf(run), color: colors.get(run.id), x: rows.map((row) => row[kind] / unit.size), y: rows.map((row) => row[measure]) }))
    .filter((each) => each.y.some(known));
  const [chart, hint] = [figure.children[1], figure.children[2]];
  chart.hidden = !series.length;
  const missing = drawn.length - series.length;
  hint.textContent = !missing ? "" : series.length ? `${missing} of ${drawn.length} runs: nothing to draw yet.` : "No evaluation yet.";
  if (!series.length) return;
  const ends = series.map((each) => `${each.name} is at ${plain(each.y.findLast(known))}`);
  lineChart(chart, { label: `Learning curves on ${figure.dataset.env}: ${ends.join("; ")}.`, xName: unit.name, series, height: panels === 1 ? 340 : 250, xFormat: (x) => digits(x, kind === 2 ? 1 : 0) });
}

// ------------------------------------------------------------------ everything

function drawAll(changed) {
  tellCounts();
  const some = runs.size > 0, ticked = drawnRuns();
  find("empty").hidden = some;
  find("runs").hidden = !some;
  find("curves").hidden = find("details").hidden = !ticked.length;
  drawList();
  if (!ticked.length) return;
  if (!changed || ticked.some((id) => changed.has(id))) drawCurves();
  drawCards(ticked.slice(0, MOST_DETAILS).map((id) => runs.get(id)), changed);
}

function chosen() {
  drawAll(null);
  poll();
}

for (const id of ["x-axis", "measure", "returns"]) find(id).addEventListener("change", () => drawAll(null));
for (const id of ["filter", "state"]) find(id).addEventListener("input", drawList);
find("all").addEventListener("click", () => { page.order.filter((id) => matches(runs.get(id))).forEach((id) => show(id, true)); chosen(); });
find("none").addEventListener("click", () => { page.order.filter((id) => matches(runs.get(id))).forEach((id) => show(id, false)); chosen(); });
document.addEventListener("visibilitychange", poll);
poll();
