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

const waiting = new Map(); // from an element to the function that draws it
const inView = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((entry) => entry.isIntersecting)) {
    inView.unobserve(entry.target);
    const draw = waiting.get(entry.target);
    if (document.readyState === "complete") setTimeout(draw, 0);
    else addEventListener("load", () => setTimeout(draw, 0)); // first the page, then its charts
  }
}, { rootMargin: "300px" });

const LAYOUT = {
  margin: { l: 55, r: 12, t: 8, b: 45 },
  font: { size: 12.5 },
  barmode: "group",
  hovermode: "closest",
  legend: { orientation: "h", y: -0.32, yanchor: "top" },
  showlegend: true,
  paper_bgcolor: "white",
  plot_bgcolor: "white",
};
const AXIS = { gridcolor: "#e8ebee", zerolinecolor: "#c0c6cc", linecolor: "#57606a" };

function panelView(panel) {
  const plot = make("div", { class: "plot", role: "img", "aria-label": panel.title });
  waiting.set(plot, () => {
    const { xaxis, yaxis, annotations } = panel.layout;
    const legend = { ...LAYOUT.legend, y: panel.wide ? -0.16 : LAYOUT.legend.y };
    const layout = { ...LAYOUT, legend, annotations, xaxis: { ...xaxis, ...AXIS }, yaxis: { ...yaxis, ...AXIS } };
    plotly().newPlot(plot, panel.traces, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  });
  inView.observe(plot);
  return make("div", { class: panel.wide ? "wide panel" : "panel" }, make("h4", {}, panel.title), plot);
}

function chartView(chart) {
  return make("div", { class: "chart", "data-chart": chart.name },
    make("h3", {}, chart.title),
    chart.note ? make("p", { class: "note" }, chart.note) : null,
    make("div", { class: "panels" }, ...chart.panels.map(panelView)));
}
