// The gallery: one card per property, with its image and its counterexample.

const CARDS_AT_ONCE = 24;
const BRIGHTER = [213, 94, 0]; // the colours of a difference of +ε and of −ε
const DARKER = [0, 114, 178];
const VERIFIED = new Set(GALLERY.columns.run.map((run, number) => `${run}/${GALLERY.columns.eps[number]}`));

function galleryView() {
  const { columns, runs, verdicts } = GALLERY;
  const runOf = (number) => runs[columns.run[number]];
  const cards = make("div", { class: "cards", id: "cards" });
  const count = make("p", { id: "count", "aria-live": "polite" });
  const more = make("button", { class: "more", onclick: () => addCards() });
  let found = []; // the numbers of the properties that match the filters
  let shown = 0; // how many of them have a card
  let onlyRuns = null; // the runs of the table entry that was clicked

  const filter = (label, key, options) => choice(label, `gallery/${key}`, options, () => { onlyRuns = null; draw(); });
  const radii = unique(columns.eps).sort((a, b) => a - b);
  const filters = {
    table: filter("table", "experiment", asOptions(runs.map((run) => run.experiment))),
    model: filter("model", "model", asOptions(runs.map((run) => run.model))),
    method: filter("method", "method", asOptions(runs.map((run) => run.method))),
    radius: filter("radius", "radius", radii.map((eps) => [String(eps), radiusText(eps)])),
    verdict: filter("verdict", "verdict", verdicts.map((name, number) => [String(number), verdictText(name)])),
  };
  const valueOf = {
    table: (number) => runOf(number).experiment,
    model: (number) => runOf(number).model,
    method: (number) => runOf(number).method,
    radius: (number) => String(columns.eps[number]),
    verdict: (number) => String(columns.verdict[number]),
  };
  const orders = [["verified", "as verified"], ["seconds", "longest time"], ["margin", "smallest margin"],
    ["stable", "fewest stable neurons"]];
  const order = choice("order", "gallery/order", orders, () => draw(), "most telling first");

  function matches(number) {
    if (onlyRuns && !onlyRuns.includes(columns.run[number])) return false;
    return Object.entries(filters).every(([key, { value }]) => !value || valueOf[key](number) === value);
  }

  function draw() {
    found = Array.from(columns.run.keys()).filter(matches);
    if (!order.value) found = sorted(found, dullness, false);
    else if (order.value !== "verified") found = sorted(found, (number) => columns[order.value][number], order.value === "seconds");
    const tally = verdicts
      .map((name, verdict) => [found.filter((number) => columns.verdict[number] === verdict).length, verdictText(name)])
      .filter(([many]) => many)
      .map(([many, text]) => `${many} ${text}`);
    const total = `${whole(found.length)} of ${whole(columns.run.length)} properties`;
    count.textContent = tally.length ? `${total}: ${tally.join(", ")}` : total;
    cards.replaceChildren();
    shown = 0;
    addCards();
  }

  function addCards() {
    const next = found.slice(shown, shown + CARDS_AT_ONCE);
    cards.append(...next.map(cardView));
    shown += next.length;
    more.hidden = shown >= found.length;
    more.textContent = `show more (${whole(found.length - shown)} left)`;
  }

  function clear() {
    onlyRuns = null;
    for (const filter of Object.values(filters)) filter.value = "";
    draw();
  }

  function show(row) { // the properties of a table's row
    const run = runs[row.runs[0]];
    const values = { table: run.experiment, model: run.model, method: run.method, radius: String(row.eps), verdict: "" };
    for (const [key, value] of Object.entries(values)) filters[key].value = value;
    onlyRuns = row.runs;
    draw();
    element.scrollIntoView();
  }

  const scrolled = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting) && shown && shown < found.length) addCards();
  }, { rootMargin: "400px" });
  scrolled.observe(more);
  const useful = Object.entries(filters).filter(([key]) => unique(columns.run.map((_, number) => valueOf[key](number))).length > 1)
    .map(([, filter]) => filter);
  const element = make("section", { id: "gallery" },
    make("h2", {}, "All images"),
    make("p", { class: "note" }, "A property says that the network gives every input within ε of an image the image's "
      + "label. It is proved, refuted by a counterexample, or undecided. In the picture of the difference orange means "
      + "brighter, blue means darker, and the full colour means ε."),
    ...GALLERY.notes.map((note) => make("p", { class: "note" }, note)),
    make("div", { class: "filters" }, ...useful.map((filter) => filter.element), order.element,
      make("button", { onclick: clear }, "clear filters")),
    count, cards, more);
  draw();
  return { element, show };
}

function dullness(number) { // first images that a change fools the network on, last images that it misreads as they are
  const verdict = GALLERY.verdicts[GALLERY.columns.verdict[number]];
  if (verdict === "sat") return GALLERY.columns.difference[number] === null ? 3 : 0;
  return verdict === "unsat" ? 2 : 1;
}

function cardView(number) {
  const { columns } = GALLERY;
  const run = GALLERY.runs[columns.run[number]];
  const verdict = GALLERY.verdicts[columns.verdict[number]];
  const predicted = columns.predicted[number];
  const misread = columns.difference[number] === null ? ", without any change" : "";
  const margin = columns.margin[number];
  const stable = columns.stable[number];
  const facts = [
    ["class", className(number, columns.label[number])],
    ["read as", predicted === null ? "" : className(number, predicted) + misread],
    ["network", `${run.model}, ${run.method}${run.seed ? `, seed ${run.seed}` : ""}`],
    ["ε", radiusText(columns.eps[number])],
    ["time", `${columns.seconds[number].toPrecision(3)} s`],
    ["reason", columns.reason[number]],
  ];
  const details = [
    ["proved margin", margin === null ? "–" : String(margin)],
    ["stable neurons", stable === null ? "–" : `${(100 * stable).toFixed(1)} %`],
    ["decided by", columns.decidedBy[number]],
    ["meaning", GALLERY.guarantees[columns.guarantee[number]]],
    ["proof", columns.proof[number]],
  ];
  return make("article", { class: "card" },
    make("div", {}, make("b", {}, `image ${columns.index[number]} `), verdictBadge(verdict)),
    pictures(number), factList(facts),
    make("details", {}, make("summary", { class: "small" }, "details"), factList(details)));
}

function factList(facts) {
  const there = facts.filter(([, value]) => value);
  return make("dl", {}, ...there.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function className(number, label) { // the name of a class of the data set that a property is about
  const { shape } = GALLERY.runs[GALLERY.columns.run[number]];
  return (shape === null ? undefined : GALLERY.shapes[shape].classes[label]) ?? String(label);
}

// Pictures. An image is bytes (channels, height, width); a difference is signed bytes, where 127 stands for ε.

const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function canvas(shape, text, colourAt) {
  const element = make("canvas", { width: shape.width, height: shape.height, role: "img", "aria-label": text });
  const context = element.getContext("2d");
  const image = context.createImageData(shape.width, shape.height);
  for (let place = 0; place < shape.width * shape.height; place++) image.data.set([...colourAt(place), 255], 4 * place);
  context.putImageData(image, 0, 0);
  return element;
}

function pictures(number) {
  const { columns } = GALLERY;
  const run = GALLERY.runs[columns.run[number]];
  if (columns.picture[number] === null || run.shape === null) return null;
  const shape = GALLERY.shapes[run.shape];
  const size = shape.width * shape.height;
  const channels = shape.channels === 3 ? [0, 1, 2] : [0, 0, 0];
  const pixels = decode(GALLERY.pictures[columns.picture[number]]);
  const figure = (text, alt, colourAt) =>
    make("figure", {}, canvas(shape, alt, colourAt), make("figcaption", {}, ...text.map((line) => make("span", {}, line))));
  const label = className(number, columns.label[number]);
  const predicted = columns.predicted[number];
  const read = predicted === null ? "another class" : className(number, predicted);
  const figures = [figure(["image", label], `image ${columns.index[number]}, of class ${label}`, (place) => channels.map((channel) => pixels[channel * size + place]))];
  if (columns.difference[number] !== null) {
    const steps = new Int8Array(decode(columns.difference[number]).buffer);
    const eps = columns.eps[number];
    const change = (channel, place) => steps[channel * size + place] / 127;
    const alt = `counterexample: the image with changes of at most ${radiusText(eps)}, read as ${read}`;
    figures.push(figure(["counter\u00adexample", `read as ${read}`], alt, (place) =>
      channels.map((channel) => pixels[channel * size + place] + change(channel, place) * eps * 255)));
    const factor = eps ? `× ${Number((1 / eps).toFixed(eps < 0.1 ? 0 : 1))}` : "";
    figures.push(figure(["difference", factor], "difference of the two: orange is brighter, blue is darker", (place) => {
      const changes = channels.map((channel) => change(channel, place));
      const largest = changes.reduce((one, other) => (Math.abs(other) > Math.abs(one) ? other : one));
      return (largest >= 0 ? BRIGHTER : DARKER).map((full) => 255 + Math.abs(largest) * (full - 255));
    }));
  }
  return make("div", { class: figures.length === 1 ? "single pictures" : "pictures" }, ...figures);
}
