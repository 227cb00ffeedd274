// The page: the examples, one section per experiment with its figure and tables, then the gallery. Details are folded.

const main = document.getElementById("main");
const contents = document.getElementById("contents");
const gallery = galleryView();
document.getElementById("written").textContent = DATA.written;

function addSection(id, title, ...children) {
  contents.append(make("a", { href: `#${id}` }, title));
  main.append(make("section", { id }, make("h2", {}, title), ...children));
}

function folded(title, ...children) {
  return make("details", { class: "fold" }, make("summary", {}, title), ...children);
}

function claimView(claim) {
  const parts = claim.parts.map((part) => make("li", {},
    outcomeBadge(part.outcome), ` ${part.metric} (${part.text}): ${part.reason}.`,
    part.comparisons.length ? make("details", {},
      make("summary", { class: "small" }, `all ${part.comparisons.length} comparisons`),
      make("ul", { class: "small" }, ...part.comparisons.map((text) => make("li", {}, text)))) : null));
  return make("details", { class: "claim", "data-claim": claim.name },
    make("summary", {}, make("b", {}, `${claim.name} `), outcomeBadge(claim.outcome), ` ${claim.text} (${claim.table}).`),
    make("ul", {}, ...parts),
    make("p", { class: "small" }, `On the paper's own numbers: ${DATA.outcomes[claim.paperOutcome]}.`));
}

function claimsView(claims) {
  return make("div", { class: "claims" }, make("h3", {}, "The paper's claims"),
    ...claims.map(claimView),
    make("p", { class: "note" }, DATA.rule));
}

function factsView(facts, notes) {
  return folded("How it was measured",
    make("dl", { class: "meanings" }, ...facts.flatMap(([fact, value]) => [make("dt", {}, fact), make("dd", {}, value)])),
    ...notes.map((note) => make("p", { class: "note" }, note)));
}

function experimentView({ name, title, headline, warning, facts, tables, notes, verdicts, charts, claims }) {
  const names = charts.map((chart) => chart.title).join(", ");
  addSection(anchor(name), title,
    name === DATA.main ? null : make("p", { class: "headline" }, `${headline.text}.`),
    warning ? make("p", { class: "warning", role: "note" }, warning) : null,
    verdicts ? chartView(verdicts) : null,
    ...(tables.length ? tables.map((table) => tableView(table, title)) : [make("p", {}, "There are no results yet.")]),
    claims.length ? claimsView(claims) : null,
    charts.length ? folded(`More figures: ${names}`, chartsView(charts)) : null,
    factsView(facts, notes));
}

if (DATA.examples.length) main.append(storyView(DATA.examples));
DATA.experiments.forEach(experimentView);
contents.append(make("a", { href: "#gallery" }, "All images"));
main.append(gallery.element);

// A page that is served follows its files: it reloads when the server has a newer version.
if (DATA.live) {
  setInterval(async () => {
    try {
      const answer = await fetch("state.json", { cache: "no-store" });
      if (answer.ok && (await answer.json()).version !== DATA.live) location.reload();
    } catch { /* the server has ended; the page stays as it is */ }
  }, 3000);
}
