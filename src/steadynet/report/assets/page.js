// The page: one section per experiment, then the claims and the gallery.

const main = document.getElementById("main");
const contents = document.getElementById("contents");
const gallery = galleryView();
document.querySelector("h1").textContent = DATA.title;
document.getElementById("written").textContent = DATA.written;

function addSection(id, title, ...children) {
  contents.append(make("a", { href: `#${id}` }, title));
  main.append(make("section", { id }, make("h2", {}, title), ...children));
}

function claimView(claim) {
  const parts = claim.parts.map((part) => make("li", {},
    outcomeBadge(part.outcome), ` ${part.metric} (${part.text}): ${part.reason}.`,
    make("details", {},
      make("summary", { class: "small" }, `all ${part.comparisons.length} comparisons`),
      make("ul", { class: "small" }, ...part.comparisons.map((text) => make("li", {}, text))))));
  return make("details", { class: "claim", "data-claim": claim.name, open: "" },
    make("summary", {}, make("b", {}, `${claim.name} `), outcomeBadge(claim.outcome), ` ${claim.text} (${claim.table}).`),
    make("ul", {}, ...parts),
    make("p", { class: "small" }, `On the paper's own numbers: ${DATA.outcomes[claim.paperOutcome]}.`));
}

for (const { name, title, facts, tables, notes, charts } of DATA.experiments) {
  const texts = facts.flatMap(([fact, value], number) => [number ? "; " : "", make("b", {}, `${fact} `), value]);
  addSection(anchor(name), title,
    make("p", { class: "facts" }, ...texts),
    ...(tables.length ? tables.map((table) => tableView(table, title)) : [make("p", {}, "There are no results yet.")]),
    ...notes.map((note) => make("p", { class: "note" }, note)),
    ...charts.map(chartView));
}
if (DATA.claims.length) {
  addSection("claims", "The paper's claims",
    make("p", { class: "note" }, DATA.rule),
    ...DATA.claims.map(claimView),
    DATA.unchecked.length
      ? make("p", {}, outcomeBadge("NOT_ENOUGH_DATA"), ` ${DATA.unchecked.join(", ")}: no table here has data on them.`)
      : null);
}
contents.append(make("a", { href: "#gallery" }, "Gallery"));
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
