// Charts. plotly.js is large, so it is loaded with the first chart, and a chart is drawn when it comes into view.

let isLoaded = false;
function plotly() {
  if (!isLoaded) {
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
    isLoaded = true;
  }
  return window.Plotly;
}

const whenIdle = (draw) => window.requestIdleCallback ? requestIdleCallback(draw, { timeout: 1000 }) : setTimeout(draw, 50);
const waiting = new Map(); // from an element to the function that draws it
const inView = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((entry) => entry.isIntersecting)) {
    inView.unobserve(entry.target);
    const draw = waiting.get(entry.target);
    if (document.readyState === "complete") whenIdle(draw);
    else addEventListener("load", () => whenIdle(draw)); // first the page, then its charts
  }
}, { rootMargin: "300px" });

const LAYOUT = {
  margin: { l: 55, r: 12, t: 8, b: 45 },
  barmode: "group",
  hovermode: "closest",
  legend: { orientation: "h", y: -0.32, yanchor: "top" },
  showlegend: true,
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
};
const isDark = matchMedia("(prefers-color-scheme: dark)");
const ON_DARK = { "#000000": "#f0f3f6", "#0072B2": "#4aa3e0", "#7F7F7F": "#a4acb4", "#FFFFFF": "#30363d", "#4A4A4A": "#c9d1d9" };
const drawn = new Set(); // the functions that draw what is drawn already

function themed(value) { // the same with colours that can be seen on a dark page
  if (!isDark.matches) return value;
  if (typeof value === "string") return ON_DARK[value] || value;
  if (Array.isArray(value)) return value.map(themed);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, themed(part)]));
}

function themedLayout(panel) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: colour("--grid"), zerolinecolor: colour("--line"), linecolor: colour("--soft") };
  const isUnnamed = panel.layout.barmode === "stack" && !panel.layout.xaxis.title.text; // the legend moves up
  const legend = { ...LAYOUT.legend, y: panel.wide || isUnnamed ? -0.16 : LAYOUT.legend.y };
  const font = { size: 13, color: colour("--ink") };
  const { xaxis, yaxis } = panel.layout;
  return { ...LAYOUT, ...panel.layout, legend, font, xaxis: { ...xaxis, ...axis }, yaxis: { ...yaxis, ...axis } };
}

function panelView(panel) {
  const plot = make("div", { class: "plot", role: "img", "aria-label": panel.alt });
  const draw = () => {
    const options = { responsive: true, displaylogo: false, displayModeBar: false };
    plotly().react(plot, themed(panel.traces), themedLayout(panel), options);
    drawn.add(draw);
  };
  waiting.set(plot, draw);
  inView.observe(plot);
  return make("div", { class: panel.wide ? "wide panel" : "panel" }, make("h4", {}, panel.title), plot);
}
isDark.addEventListener("change", () => drawn.forEach((draw) => draw()));

function columnsFor(many) { // as many panels side by side as leave the least of the last row empty
  if (many < 3) return many;
  const empty = (columns) => ((columns - (many % columns)) % columns) / columns;
  return empty(2) < empty(3) ? 2 : 3;
}

function chartView(chart) {
  const size = chart.panels.length === 1 && !chart.panels[0].wide ? "one chart" : "chart";
  return make("div", { class: size, "data-chart": chart.name },
    make("div", {}, make("h3", {}, chart.title), chart.note ? make("p", { class: "note" }, chart.note) : null),
    make("div", { class: `panels across-${columnsFor(chart.panels.length)}` }, ...chart.panels.map(panelView)));
}

function chartsView(charts) { // charts with one panel first, two side by side; the last of an odd number has a row of its own
  const views = charts.map(chartView);
  const single = views.filter((view) => view.classList.contains("one"));
  if (single.length % 2) single[single.length - 1].classList.add("alone");
  return make("div", { class: "charts" }, ...single, ...views.filter((view) => !single.includes(view)));
}
