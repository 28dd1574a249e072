// The papers' experiments, recomputed by the service, and a search in the errata.

import { Problem, api, bound, byId, el, figure, later, number, refusal } from "./core.js";
import { erratum, verdict } from "./findings.js";

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

function counted(report) {
  const found = report.experiments.flatMap(({ readings }) => readings.flatMap((reading) => reading.verdicts));
  const over = found.filter((one) => one.direction === "overclaims").length;
  return `${report.experiments.length} experiments in every reading: ${over} of ${found.length} printed epsilons promise too much`;
}

function paper(report) {
  const head = ["Experiment", "Read as", "Proven epsilon", "Printed", "Verdict"];
  return el(
    "section",
    {},
    el("h2", { id: report.paper }, report.title),
    el("p", { class: "soft" }, `${report.authors}. ${report.proposes}`),
    el("p", {}, report.holds),
    el(
      "details",
      { open: report.experiments.length < 2 },
      el("summary", {}, counted(report)),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": `Experiments of ${report.title}` },
        el("table", { class: "stacked" }, el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...report.experiments.flatMap((each) => rows(report, each)))),
      ),
    ),
  );
}

/** What the address points at has moved down. */
function find() {
  if (/^#[A-Z]\d+$/.test(location.hash)) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

async function start() {
  // Each separately: a busy service has a time limit for every one of them, and the first is shown while the last is computed.
  const places = [...byId("papers").querySelectorAll("[data-paper]")];
  for (const place of places) {
    try {
      place.replaceChildren(paper(await api(`/v1/papers/${place.dataset.paper}`)));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      place.replaceChildren(refusal(error));
    }
  }
  byId("papers").setAttribute("aria-busy", "false");
  find();
}

const search = later(() => {
  const wanted = byId("search").value.trim().toLowerCase().slice(0, 200);
  let shown = 0;
  for (const row of byId("errata").tBodies[0].rows) {
    const name = row.cells[0].textContent.toLowerCase();
    const here = wanted === "" || name === wanted || (!/^[zcspo]\d+$/.test(wanted) && row.textContent.toLowerCase().includes(wanted));
    row.hidden = !here;
    shown += here ? 1 : 0;
  }
  byId("found").textContent = wanted ? `${shown} rows` : "";
}, 100);

byId("search").addEventListener("input", search);
document.addEventListener("zetadp-key", start);
start();
