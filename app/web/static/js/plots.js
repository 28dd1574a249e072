// Plots as SVG by Observable Plot, each with its figures as a table and as files: no picture is the only source of anything.
/* global Plot */

import { Problem, csv, download, el } from "./core.js";
import { within } from "./zoom.js";

const LIBRARIES = ["/static/vendor/d3/d3.min.js", "/static/vendor/observable-plot/plot.umd.min.js"];
const WIDEST = 520;
let library = null;

/** Loads the drawing library once, when a plot is wanted for the first time: most visits want none. */
function loaded() {
  library ??= LIBRARIES.reduce((before, path) => before.then(() => script(path)), Promise.resolve());
  return library;
}

function script(path) {
  return new Promise((resolve, reject) => {
    const failed = () => {
      library = null;
      reject(new Problem(0, { title: "The plot couldn't be loaded.", detail: "The plot couldn't be loaded: the service doesn't answer." }));
    };
    document.head.append(el("script", { src: path, on: { load: resolve, error: failed } }));
  });
}

const SERIES = ["var(--series-1)", "var(--series-2)", "var(--series-3)", "var(--series-4)"];
const POINTED = "pointed"; // the class of what follows the pointer
const DASHES = ["none", "6 3", "2 3", "8 3 2 3"];

/** What a plot of an attacker's errors shows, in the words of its neighbours. */
export function attackerWords({ absent, present }) {
  return `For each probability with which an attack names the unit although ${absent}, the least probability that it misses the unit when ${present}.`;
}

/**
 * A figure with lines, once the library that draws it is there.
 * @param {object} of title, about (what it shows, in a sentence), x and y: {label, log}, series: [{name, points: [[x, y], ...]}],
 *   marks: [[x, y, name], ...], dots: whether its points are shown,
 *   part: [from, to] of the horizontal axis that is shown alone, an open end as null; all of it where there is none,
 *   file: name without ending, heading: the title's element (h3). A series may say by itself what is drawn between points (curve): a bound keeps to its safe side.
 */
export async function linePlot(of) {
  const drawn = of.series.map((series) => ({ ...series, points: within(series.points.filter(([x, y]) => usable(x, of.x) && usable(y, of.y)), of.part) }));
  const shown = drawn.some((series) => series.points.length);
  const figure = el("figure", {}, el(of.heading || "h3", { class: "title" }, of.title));
  if (!shown) {
    figure.append(el("p", { class: "soft" }, "Nothing to draw: no finite values."));
    return figure;
  }
  await loaded();
  const svg = draw(of, drawn);
  // The library names groups that have no role; the drawing is one picture with one description.
  for (const part of svg.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${of.title}. ${of.about}`);
  const rows = [["series", of.x.label, of.y.label], ...of.series.flatMap((series) => series.points.map(([x, y]) => [series.name, x, y]))];
  figure.append(
    svg,
    reading(svg, drawn.length),
    el("figcaption", {}, of.about, legend(drawn)),
    el(
      "div",
      { class: "row noprint" },
      el("button", { type: "button", class: "quiet", on: { click: () => download(`${of.file}.csv`, csv(rows), "text/csv") } }, "CSV"),
      el("button", { type: "button", class: "quiet", on: { click: () => download(`${of.file}.svg`, standalone(svg), "image/svg+xml") } }, "SVG"),
    ),
    el("details", {}, el("summary", {}, "Show as a table"), table(rows)),
  );
  return figure;
}

function usable(value, axis) {
  return Number.isFinite(value) && (!axis.log || value > 0);
}

function draw(of, drawn) {
  const marks = [Plot.gridX({ stroke: "var(--line)" }), Plot.gridY({ stroke: "var(--line)" })];
  drawn.forEach((series, place) => {
    const options = {
      x: (point) => point[0],
      y: (point) => point[1],
      stroke: SERIES[place % SERIES.length],
      strokeDasharray: DASHES[place % DASHES.length],
      strokeWidth: 2,
      curve: series.curve || "linear",
      clip: of.part ? true : undefined,
    };
    marks.push(Plot.line(series.points, options));
    if (of.dots || series.points.length < 3) marks.push(Plot.dot(series.points, { ...options, strokeDasharray: undefined, curve: undefined }));
  });
  for (const [x, y] of of.marks || []) {
    if (usable(x, of.x) && usable(y, of.y)) marks.push(Plot.dot([[x, y]], { x: (point) => point[0], y: (point) => point[1], r: 5, fill: "var(--focus)" }));
  }
  marks.push(...crosshair(drawn));
  const axis = (given) => ({ label: given.label, type: given.log ? "log" : "linear", tickFormat: given.log ? short : undefined, nice: !given.log });
  // Drawn at the size it is shown in: text that was scaled down would be too small to read.
  const width = Math.max(280, Math.min(WIDEST, document.documentElement.clientWidth - 64));
  const ends = drawn.flatMap((series) => series.points.map(([x]) => x));
  const seen = of.part ? { domain: [of.part[0] ?? Math.min(...ends), of.part[1] ?? Math.max(...ends)], nice: false } : {};
  return Plot.plot({ width, height: 300, marginLeft: 66, marginBottom: 46, style: { fontSize: "13px" }, x: { ...axis(of.x), ...seen }, y: axis(of.y), marks });
}

/** Lines through the point nearest to the pointer. */
function crosshair(drawn) {
  const points = drawn.flatMap((series) => series.points.map(([x, y]) => ({ x, y, name: series.name })));
  const at = (more) => Plot.pointer({ x: "x", y: "y", maxRadius: Infinity, className: POINTED, ...more });
  return [
    Plot.ruleX(points, at({ y: null, py: "y", stroke: "var(--soft)", strokeDasharray: "2 2" })),
    Plot.ruleY(points, at({ x: null, px: "x", stroke: "var(--soft)", strokeDasharray: "2 2" })),
    Plot.dot(points, at({ r: 4, fill: "var(--focus)" })),
  ];
}

/** The figures of that point, in full: rounded ones might promise more. */
function reading(svg, series) {
  const line = el("p", { class: "reading mono noprint" }, "\u00a0");
  svg.addEventListener("input", () => {
    const point = svg.value;
    line.textContent = point ? `${series > 1 ? `${point.name}: ` : ""}${point.x}, ${point.y}` : "\u00a0";
  });
  return line;
}

/** A tick that fits its margin. */
function short(value) {
  return value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5) ? value.toExponential().replace("+", "") : String(value);
}

function legend(drawn) {
  if (drawn.length < 2) return null;
  return el("ul", { class: "legend" }, ...drawn.map((series, place) => el("li", { class: `series-${(place % SERIES.length) + 1}` }, series.name)));
}

function table(rows) {
  const [head, ...body] = rows;
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "figures" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...body.map((row) => el("tr", {}, ...row.map((value) => el("td", { class: typeof value === "number" ? "number" : null }, String(value)))))),
    ),
  );
}

/** The drawing as a separate file: colours resolved, since it has no style sheet, and without what only shows where somebody points. */
function standalone(svg) {
  const copied = svg.cloneNode(true);
  for (const part of copied.querySelectorAll(`.${POINTED}`)) part.remove();
  const style = getComputedStyle(document.documentElement);
  let text = new XMLSerializer().serializeToString(copied);
  text = text.replace(/var\((--[a-z0-9-]+)\)/g, (_, name) => style.getPropertyValue(name).trim() || "black");
  if (!text.includes("xmlns=")) text = text.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"');
  return text;
}
