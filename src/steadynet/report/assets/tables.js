// Tables: one row per model, method and radius; a click on a column's name sorts the rows by it.

function tableColumns(table) {
  const columns = [
    { label: "Model", words: true, key: (row) => row.model, text: (row) => row.model },
    { label: "Method", words: true, key: (row) => row.method, text: (row) => row.method },
    { label: "ε", key: (row) => row.eps, text: (row) => row.radius },
  ];
  table.metrics.forEach((metric, number) => {
    const entry = (row) => row.entries[number];
    const { label, name, higher } = metric;
    const meaning = `${name}: ${metric.meaning}`;
    columns.push({ label, meaning, entry, key: (row) => entry(row)?.value, largestFirst: higher });
    if (table.paper && table.rows.some((row) => entry(row)?.paper !== undefined)) {
      const paper = { label: "paper", card: `${label}, paper`, meaning: `${name} in the paper`, entry, paper: true };
      columns.push({ ...paper, key: (row) => entry(row)?.paper, largestFirst: higher });
    }
  });
  return columns;
}

function sorted(rows, key, descending) {
  const sign = descending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a == null || b == null) return (a == null) - (b == null); // what is not there comes last
    return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
  });
}

function tableView(table, heading) {
  const columns = tableColumns(table);
  const state = { column: null, descending: true };
  const body = make("tbody", { role: "rowgroup" });
  const filters = {};
  for (const key of ["model", "method", "radius"]) {
    const values = table.rows.map((row) => row[key]).filter(Boolean);
    filters[key] = choice(key, `${table.name}/${key}`, asOptions(values), draw);
  }
  const heads = columns.map((column) => {
    const classes = (column.words ? "words" : "") + (column.paper ? " paper" : "");
    const attributes = { class: classes, scope: "col", role: "columnheader", title: column.meaning || "" };
    return make("th", attributes, make("button", { onclick: () => sort(column) }, column.label));
  });

  function sort(column) {
    state.descending = state.column === column ? !state.descending : Boolean(column.largestFirst);
    state.column = column;
    heads.forEach((head, number) => {
      if (columns[number] === column) head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    draw();
  }

  function draw() {
    const matches = (row) => Object.entries(filters).every(([key, filter]) => !filter.value || row[key] === filter.value);
    let rows = table.rows.filter(matches);
    if (state.column) rows = sorted(rows, state.column.key, state.descending);
    body.replaceChildren(...rows.map((row) => rowView(row, columns)));
  }

  draw();
  const head = make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads));
  const orders = columns.map((column, number) => [String(number), column.card || column.label]);
  const order = choice("order", `${table.name}/order`, orders, () => order.value && sort(columns[order.value]), "as it is");
  order.element.classList.add("narrow-only");
  const useful = Object.entries(filters).filter(([key]) => unique(table.rows.map((row) => row[key])).length > 1);
  return make("div", { class: table.warning ? "tableview meaningless" : "tableview", "data-table": table.name },
    table.title === heading ? null : make("h3", {}, table.title),
    make("div", { class: "filters" }, ...useful.map(([, filter]) => filter.element), order.element),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title },
      make("table", { role: "table" }, head, body)),
    tableHelp(table));
}

function rowView(row, columns) {
  const cells = columns.map((column) => {
    const cell = tableCell(row, column);
    cell.dataset.label = column.card || column.label; // the name of its value, where a row is shown as a card
    cell.setAttribute("role", "cell");
    if (cell.textContent === "–") cell.classList.add("none");
    return cell;
  });
  return make("tr", { role: "row" }, ...cells);
}

function tableHelp(table) {
  const best = table.differences ? "Improvements are bold." : "The best number of each model and radius is bold.";
  const isAnyBest = table.rows.some((row) => row.entries.some((entry) => entry?.best));
  const bold = table.warning ? "No number of ours is bold: none means anything." : isAnyBest ? best : "";
  const small = "The small print below a number is its count and total, or the number n of values in a mean.";
  const meanings = table.metrics.flatMap(({ label, name, meaning }) =>
    [make("dt", {}, label), make("dd", {}, name === label ? meaning : `${meaning} (${name})`)]);
  return make("div", { class: "small" },
    make("p", {}, `${bold} ${small} Click a number to see its properties.`.trim()),
    make("details", {}, make("summary", {}, "What the columns mean"), make("dl", { class: "meanings" }, ...meanings)));
}

function tableCell(row, column) {
  if (!column.entry) return make("td", { class: column.words ? "words" : "" }, column.text(row));
  const entry = column.entry(row);
  if (!entry) return make("td", { class: column.paper ? "paper" : "" }, "–");
  if (column.paper) return make("td", { class: "paper" + (entry.paperBest ? " paperbest" : "") }, entry.paperText);
  const text = entry.value === undefined && entry.note ? entry.note : entry.text;
  const count = entry.count ? make("span", { class: "count" }, entry.count) : null;
  const content = [make("span", { class: "value" }, text), count];
  const hasProperties = entry.value !== undefined && row.runs.some((run) => VERIFIED.has(`${run}/${row.eps}`));
  const button = { class: "cell", title: "show its properties", onclick: () => gallery.show(row) };
  const shown = hasProperties ? make("button", button, ...content) : make("span", {}, ...content);
  return make("td", { class: entry.best ? "best" : "" }, shown);
}
