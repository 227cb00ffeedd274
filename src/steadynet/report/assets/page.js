"use strict";
// Everything shown is set as text, never as HTML: nothing in a file can become a part of the page.
const DATA = JSON.parse(document.getElementById("data").textContent);
const GALLERY = DATA.gallery;
const WORDS = { unsat: "proved", sat: "refuted", timeout: "time-out", unknown: "unknown", error: "error" };
const LOOKS = { unsat: "good", sat: "bad", HOLDS: "good", DOES_NOT_HOLD: "bad" };
const AT_ONCE = 60; // cards

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const badge = (key, text) => make("span", { class: `badge ${LOOKS[key] || "open"}` }, text || key);
const outcomeBadge = (name) => badge(name, DATA.outcomes[name]);
const slug = (name) => "s-" + Array.from(name, (letter) => (/[\w-]/.test(letter) ? letter : "_")).join("");
const unique = (values) => [...new Set(values)];

function remembered(key, value) {
  try {
    if (value !== undefined) sessionStorage.setItem(key, value);
    return sessionStorage.getItem(key);
  } catch { return null; }
}

// Filters: selects that call back

function choice(label, key, options, onchange) {
  const select = make("select", { "aria-label": label, "data-filter": label }, make("option", { value: "" }, "all"));
  for (const [value, text] of options) select.append(make("option", { value }, text));
  const before = remembered(key);
  if (before && options.some(([value]) => value === before)) select.value = before;
  select.addEventListener("change", () => { remembered(key, select.value); onchange(); });
  return { select, element: make("label", {}, label, select), get value() { return select.value; },
    set value(value) { select.value = value; remembered(key, select.value); } };
}

const pairs = (values) => unique(values).map((value) => [String(value), String(value)]);

// Tables

function tableView(table, heading) {
  const state = { column: null, down: true };
  const body = make("tbody");
  const rows = table.rows;
  const columns = [
    { label: "Model", words: true, of: (row) => row.model },
    { label: "Method", words: true, of: (row) => row.method },
    { label: "ε", of: (row) => row.eps },
  ];
  table.metrics.forEach((metric, number) => {
    columns.push({ label: metric.label, of: (row) => row.entries[number]?.value, number, down: metric.higher });
    if (table.paper) columns.push({ label: "paper", paper: true, of: (row) => row.entries[number]?.paper, number, down: metric.higher });
  });
  const filters = {
    model: choice("model", `${table.name}/model`, pairs(rows.map((row) => row.model)), draw),
    method: choice("method", `${table.name}/method`, pairs(rows.map((row) => row.method)), draw),
    radius: choice("radius", `${table.name}/radius`, pairs(rows.map((row) => row.radius).filter(Boolean)), draw),
  };
  const heads = columns.map((column) => {
    const classes = (column.words ? "words" : "") + (column.paper ? " paper" : "");
    return make("th", { class: classes, scope: "col" }, make("button", { onclick: () => sort(column) }, column.label));
  });
  function sort(column) {
    state.down = state.column === column ? !state.down : Boolean(column.down);
    state.column = column;
    heads.forEach((head, number) => {
      if (columns[number] === column) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    draw();
  }
  function draw() {
    let shown = rows.filter((row) => ["model", "method", "radius"].every((key) => !filters[key].value || row[key] === filters[key].value));
    if (state.column) {
      const key = state.column.of;
      const sign = state.down ? -1 : 1;
      shown = [...shown].sort((one, other) => {
        const [a, b] = [key(one), key(other)];
        if (a == null || b == null) return (a == null) - (b == null);
        return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
      });
    }
    body.replaceChildren(...shown.map((row) => make("tr", {}, ...columns.map((column) => tableCell(row, column)))));
  }
  draw();
  const head = make("thead", {}, make("tr", {}, ...heads));
  return make("div", { class: "tableview", "data-table": table.name },
    table.title === heading ? null : make("h3", {}, table.title),
    make("div", { class: "filters" }, filters.model.element, filters.method.element, filters.radius.element),
    make("div", { class: "scroll", tabindex: "0" }, make("table", {}, head, body)),
    make("p", { class: "small" }, "Best of each model in bold; under a number its count and denominator, or the number of properties it is a mean of. Click a number to see its properties."));
}

function tableCell(row, column) {
  if (column.number === undefined) return make("td", { class: column.words ? "words" : "" }, column.label === "ε" ? row.radius : row[column.label.toLowerCase()]);
  const entry = row.entries[column.number];
  if (!entry) return make("td", { class: column.paper ? "paper" : "" }, "–");
  if (column.paper) return make("td", { class: "paper" + (entry.paperBest ? " paperbest" : "") }, entry.paperText);
  const text = entry.value === undefined && entry.note ? entry.note : entry.text;
  const inner = [make("span", { class: "value" }, text), entry.count ? make("span", { class: "count" }, entry.count) : null];
  const has = row.runs.some((run) => COUNTS.has(`${run}/${row.eps}`));
  const content = has ? [make("button", { class: "cell", title: "show its properties", onclick: () => gallery.show(row) }, ...inner)] : inner;
  return make("td", { class: entry.best ? "best" : "" }, ...content);
}

// Charts: drawn by plotly when they come into sight

let loaded = false;
function plotly() {
  if (!loaded) {
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
    loaded = true;
  }
  return window.Plotly;
}

const waiting = new Map();
const sight = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((entry) => entry.isIntersecting)) {
    sight.unobserve(entry.target);
    const draw = waiting.get(entry.target);
    if (document.readyState === "complete") setTimeout(draw, 0);
    else addEventListener("load", () => setTimeout(draw, 0)); // the page first, then what is drawn on it
  }
}, { rootMargin: "300px" });

function panelView(panel) {
  const plot = make("div", { class: "plot", role: "img", "aria-label": panel.title });
  waiting.set(plot, () => {
    const layout = { margin: { l: 55, r: 12, t: 8, b: 45 }, font: { size: 12.5 }, barmode: "group", hovermode: "closest",
      legend: { orientation: "h", y: -0.32, yanchor: "top" }, showlegend: true, paper_bgcolor: "white", plot_bgcolor: "white", ...panel.layout };
    for (const axis of [layout.xaxis, layout.yaxis]) Object.assign(axis, { gridcolor: "#e8ebee", zerolinecolor: "#c0c6cc", linecolor: "#57606a" });
    plotly().newPlot(plot, panel.traces, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  });
  sight.observe(plot);
  return make("div", { class: "panel" }, make("h4", {}, panel.title), plot);
}

const chartView = (chart) => make("div", { class: "chart", "data-chart": chart.name }, make("h3", {}, chart.title),
  chart.note ? make("p", { class: "note" }, chart.note) : null, make("div", { class: "panels" }, ...chart.panels.map(panelView)));

// Claims

function claimView(claim) {
  const parts = claim.parts.map((part) => make("li", {}, outcomeBadge(part.outcome), ` ${part.metric}: ${part.text}. ${part.reason}.`,
    make("details", {}, make("summary", { class: "small" }, `the ${part.comparisons.length} comparisons`),
      make("ul", { class: "small" }, ...part.comparisons.map((text) => make("li", {}, text))))));
  return make("details", { class: "claim", "data-claim": claim.name, open: "" },
    make("summary", {}, make("b", {}, `${claim.name} `), outcomeBadge(claim.outcome), ` ${claim.text} (${claim.table}).`),
    make("ul", {}, ...parts), make("p", { class: "small" }, `The same rule on the paper's own numbers: ${DATA.outcomes[claim.paperOutcome]}.`));
}

// Gallery

const COUNTS = new Map();
GALLERY.columns.run.forEach((run, number) => {
  const key = `${run}/${GALLERY.columns.eps[number]}`;
  COUNTS.set(key, (COUNTS.get(key) || 0) + 1);
});

function galleryView() {
  const columns = GALLERY.columns;
  const runs = GALLERY.runs;
  const cards = make("div", { class: "cards", id: "cards" });
  const count = make("p", { id: "count", "aria-live": "polite" });
  const more = make("button", { class: "more", onclick: () => add() }, "more");
  let found = [];
  let shown = 0;
  let only = null; // the runs of a table's cell
  const option = (label, key, values) => choice(label, `gallery/${key}`, values, () => { only = null; draw(); });
  const radii = unique(columns.eps).sort((a, b) => a - b);
  const filters = {
    table: option("table", "experiment", pairs(runs.map((run) => run.experiment))),
    model: option("model", "model", pairs(runs.map((run) => run.model))),
    method: option("method", "method", pairs(runs.map((run) => run.method))),
    radius: option("radius", "radius", radii.map((eps) => [String(eps), DATA.radii[String(eps)] || String(eps)])),
    verdict: option("verdict", "verdict", GALLERY.verdicts.map((name, number) => [String(number), WORDS[name] || name])),
  };
  const order = choice("order", "gallery/order", [["seconds", "longest time"], ["margin", "smallest margin"], ["stable", "fewest stable"]], () => draw());
  order.select.options[0].textContent = "as decided";
  function draw() {
    const wanted = (number) => {
      const run = runs[columns.run[number]];
      return (!only || only.includes(columns.run[number])) && (!filters.table.value || run.experiment === filters.table.value)
        && (!filters.model.value || run.model === filters.model.value) && (!filters.method.value || run.method === filters.method.value)
        && (!filters.radius.value || String(columns.eps[number]) === filters.radius.value)
        && (!filters.verdict.value || String(columns.verdict[number]) === filters.verdict.value);
    };
    found = [];
    for (let number = 0; number < columns.run.length; number++) if (wanted(number)) found.push(number);
    if (order.value) {
      const values = columns[order.value];
      const sign = order.value === "seconds" ? -1 : 1;
      found.sort((a, b) => (values[a] == null) - (values[b] == null) || sign * (values[a] - values[b]));
    }
    const tally = GALLERY.verdicts.map((name, verdict) => [found.filter((number) => columns.verdict[number] === verdict).length, WORDS[name] || name]);
    count.textContent = `${found.length.toLocaleString("en")} of ${columns.run.length.toLocaleString("en")} properties: ` + (tally.filter(([many]) => many).map(([many, word]) => `${many} ${word}`).join(", ") || "none");
    cards.replaceChildren();
    shown = 0;
    add();
  }
  function add() {
    const next = found.slice(shown, shown + AT_ONCE);
    cards.append(...next.map(cardView));
    shown += next.length;
    more.hidden = shown >= found.length;
    more.textContent = `more (${(found.length - shown).toLocaleString("en")} left)`;
  }
  new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting) && shown && shown < found.length) add(); }, { rootMargin: "400px" }).observe(more);
  const element = make("section", { id: "gallery" }, make("h2", {}, "Gallery of properties"),
    make("p", { class: "note" }, "A property: every input within ε of the image gets its label. It is proved, refuted by a counterexample, or not decided in time. The difference is amplified so that +ε is full orange and −ε full blue."),
    ...GALLERY.notes.map((note) => make("p", { class: "note" }, note)),
    make("div", { class: "filters" }, ...Object.values(filters).map((filter) => filter.element), order.element,
      make("button", { onclick: () => { only = null; for (const filter of Object.values(filters)) filter.value = ""; draw(); } }, "show all")),
    count, cards, more);
  draw();
  return { element, show(row) {
    const run = runs[row.runs[0]];
    only = row.runs;
    filters.table.value = run.experiment; filters.model.value = run.model; filters.method.value = run.method;
    filters.radius.value = String(row.eps); filters.verdict.value = "";
    draw();
    element.scrollIntoView();
  } };
}

const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function drawn(shape, colour) {
  const canvas = make("canvas", { width: shape.width, height: shape.height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(shape.width, shape.height);
  const size = shape.width * shape.height;
  for (let place = 0; place < size; place++) image.data.set([...colour(place, size), 255], 4 * place);
  context.putImageData(image, 0, 0);
  return canvas;
}

function pictures(number) {
  const columns = GALLERY.columns;
  const run = GALLERY.runs[columns.run[number]];
  if (columns.picture[number] === null || run.shape === null) return null;
  const shape = GALLERY.shapes[run.shape];
  const pixels = decode(GALLERY.pictures[columns.picture[number]]);
  const channels = shape.channels === 3 ? [0, 1, 2] : [0, 0, 0];
  const figure = (text, canvas) => make("figure", {}, canvas, make("figcaption", {}, text));
  const figures = [figure("image", drawn(shape, (place, size) => channels.map((channel) => pixels[channel * size + place])))];
  if (columns.difference[number] !== null) {
    const steps = new Int8Array(decode(columns.difference[number]).buffer);
    const eps = columns.eps[number];
    figures.push(figure("counter\u00adexample", drawn(shape, (place, size) => channels.map((channel) => pixels[channel * size + place] + (steps[channel * size + place] / 127) * eps * 255))));
    figures.push(figure(eps ? `difference × ${(1 / eps).toFixed(eps < 0.1 ? 0 : 1)}` : "difference", drawn(shape, (place, size) => {
      let step = 0; // of colours, the largest change of a channel
      for (const channel of unique(channels)) if (Math.abs(steps[channel * size + place]) > Math.abs(step)) step = steps[channel * size + place];
      const much = Math.abs(step) / 127;
      return (step >= 0 ? [213, 94, 0] : [0, 114, 178]).map((full) => 255 + much * (full - 255));
    })));
  }
  return make("div", { class: "pictures" }, ...figures);
}

function cardView(number) {
  const columns = GALLERY.columns;
  const run = GALLERY.runs[columns.run[number]];
  const verdict = GALLERY.verdicts[columns.verdict[number]];
  const classes = run.shape === null ? [] : GALLERY.shapes[run.shape].classes;
  const label = columns.label[number], taken = columns.predicted[number];
  const nameOf = (label) => classes[label] === undefined ? String(label) : classes[label];
  const facts = [
    ["label", nameOf(label)], ["taken for", taken === null ? "" : nameOf(taken)],
    ["network", `${run.model}, ${run.method}${run.seed ? `, seed ${run.seed}` : ""}`],
    ["ε", DATA.radii[String(columns.eps[number])] || String(columns.eps[number])],
    ["time", `${columns.seconds[number].toPrecision(3)} s`],
    ["margin", columns.margin[number] === null ? "–" : String(columns.margin[number])],
    ["stable", columns.stable[number] === null ? "–" : `${(100 * columns.stable[number]).toFixed(1)} %`],
    ["decided by", columns.decidedBy[number]], ["reason", columns.reason[number]],
  ].filter(([, value]) => value);
  return make("article", { class: "card" }, make("div", {}, make("b", {}, `image ${columns.index[number]} `), badge(verdict, WORDS[verdict])),
    pictures(number), make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
}

// The page

const main = document.getElementById("main");
const contents = document.getElementById("contents");
const gallery = galleryView();
document.querySelector("h1").textContent = DATA.title;
document.getElementById("written").textContent = DATA.written;

function section(id, title, ...children) {
  contents.append(make("a", { href: `#${id}` }, title));
  main.append(make("section", { id }, make("h2", {}, title), ...children));
}

for (const experiment of DATA.experiments) {
  const facts = experiment.facts.flatMap(([name, value], number) => [number ? "; " : "", make("b", {}, `${name} `), value]);
  section(slug(experiment.name), experiment.title, make("p", { class: "facts" }, ...facts),
    ...experiment.tables.map((table) => tableView(table, experiment.title)), experiment.tables.length ? null : make("p", {}, "Nothing is measured yet."),
    ...experiment.notes.map((note) => make("p", { class: "note" }, note)), ...experiment.charts.map(chartView));
}
const claimed = DATA.claims.map(claimView);
section("claims", "The paper's claims", make("p", { class: "note" }, DATA.rule), ...claimed,
  DATA.unchecked.length ? make("p", {}, outcomeBadge("NOT_ENOUGH_DATA"), ` ${DATA.unchecked.join(", ")}: no table here has anything to say on them.`) : null);
contents.append(make("a", { href: "#gallery" }, "Gallery"));
main.append(gallery.element);
document.documentElement.dataset.ready = String(Math.round(performance.now()));

if (DATA.live) {
  setInterval(async () => {
    try {
      const answer = await fetch("state.json", { cache: "no-store" });
      if (answer.ok && (await answer.json()).version !== DATA.live) location.reload();
    } catch { /* the server is gone; the page stays */ }
  }, 3000);
}
