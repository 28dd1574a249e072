// One paper's experiments, recomputed by the service.

import { Problem, api, bound, byId, el, figure, number, refusal } from "./core.js";
import { erratum, verdict } from "./findings.js";
import { unfoldNamed } from "./rows.js";

const NO_DELTA = 1e-12; // used in place of 0: a calculator needs a delta above it

/** The calculator filled in with an event, or null where no calculator holds it. */
function calculator(event, delta) {
  const query = new URLSearchParams({ mode: "guarantee", delta: String(delta ?? NO_DELTA), count: "1" });
  let inner = event;
  for (; inner.kind !== "release"; inner = inner.event) {
    if (inner.kind === "grouped") query.set("group", inner.size);
    else if (inner.kind === "repeated") query.set("count", inner.count);
    else if (inner.kind === "poisson_sampled") query.set("probability", inner.probability);
    else if (inner.kind === "fixed_size_sampled") {
      for (const [name, value] of Object.entries({ sampling: "fixed", batch: inner.sample_size, records: inner.population_size })) query.set(name, value);
    } else return null;
  }
  if (!query.has("probability")) query.set("probability", "1");
  const { kind, ...mechanism } = inner.mechanism;
  const walk = (value, way) => {
    for (const [name, one] of Object.entries(value)) {
      if (one !== null && typeof one === "object" && !Array.isArray(one)) walk(one, [...way, name]);
      // What isn't given has to be emptied: the calculator's own first values would stand there.
      else query.set([...way, name].join("."), one === null ? "" : Array.isArray(one) ? one.join(", ") : String(one));
    }
  };
  walk(mechanism, []);
  return `/calculators/${kind === "complex_gaussian" && event.kind !== "release" ? "training" : kind}?${query}`;
}

/** Where nothing is accounted since nothing is private: the comparison that shows why, or the row of the errata. */
function shown(paper, experiment, reading) {
  const [printed] = experiment.printed;
  if (paper === "spof" && printed) return `/comparisons/spof?epsilon=${printed.epsilon}`;
  if (paper === "spectral_dp") return experiment.noise_multiplier === null ? "/comparisons/spectral" : `/comparisons/spectral?noise_multiplier=${experiment.noise_multiplier}`;
  return `#${reading.errata[0]}`;
}

function rows(report, { experiment, readings }) {
  return readings.flatMap((reading) => {
    const name = el("a", { href: calculator(reading.event, experiment.delta) || shown(report.paper, experiment, reading) }, reading.name.replaceAll("_", " "));
    const proven = bound(reading.epsilon.upper);
    const shared = [el("th", { scope: "row" }, experiment.task), el("td", { "data-name": "Read as" }, name, ": ", reading.meaning, reading.errata.length ? " (errata " : "", ...reading.errata.flatMap((row, at) => [at ? ", " : "", erratum(row)]), reading.errata.length ? ")" : ""), el("td", { "data-name": "Proven epsilon", class: "mono" }, proven)];
    if (!reading.verdicts.length) return [el("tr", {}, ...shared, el("td", { "data-name": "Printed" }, "none"), el("td", { "data-name": "Verdict" }))];
    return reading.verdicts.map((one) =>
      el("tr", {}, ...shared.map((part) => part.cloneNode(true)), el("td", { "data-name": "Printed", class: "mono" }, `${figure(one.printed)} (${one.where})`), el("td", { "data-name": "Verdict" }, verdict(one.direction), Number.isFinite(number(one.ratio)) ? ` ${figure(one.ratio, 3)} times the proven value` : "")),
    );
  });
}

/** One experiment: what is printed and what holds in a line, its readings folded. */
function experiment(report, each) {
  const found = each.readings.flatMap((reading) => reading.verdicts);
  const over = found.filter((one) => one.direction === "overclaims").length;
  const values = [...new Set(each.experiment.printed.map((one) => figure(one.epsilon)))];
  const words = values.length ? `: prints epsilon ${values.join(", ")}${found.length ? `; promises too much in ${over} of ${found.length} readings` : ""}` : ": prints no epsilon";
  return el(
    "details",
    {},
    el("summary", {}, each.experiment.task, el("span", { class: "plain" }, words)),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `Readings of ${each.experiment.task}` },
      el("table", { class: "stacked" }, el("thead", {}, el("tr", {}, ...["Experiment", "Read as", "Proven epsilon", "Printed", "Verdict"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows(report, each))),
    ),
  );
}

function counted(report) {
  const found = report.experiments.flatMap(({ readings }) => readings.flatMap((reading) => reading.verdicts));
  const over = found.filter((one) => one.direction === "overclaims").length;
  return `${over} of ${found.length} printed epsilons promise too much, counting every reading. Each reading links to its calculator, filled in.`;
}

async function start() {
  const place = byId("paper");
  try {
    const report = await api(`/v1/papers/${place.dataset.paper}`);
    place.replaceChildren(el("p", {}, counted(report)), ...report.experiments.map((each) => experiment(report, each)));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    place.replaceChildren(refusal(error));
  }
  place.setAttribute("aria-busy", "false");
}

document.addEventListener("zetadp-key", start);
window.addEventListener("hashchange", unfoldNamed);
unfoldNamed();
start();
