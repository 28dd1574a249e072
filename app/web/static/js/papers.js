// The papers' experiments, recomputed by the service, and a search in the errata.

import { Problem, api, bound, byId, el, figure, later, number, refusal } from "./core.js";

const VERDICTS = {
  overclaims: ["promises too much", "bad"],
  loose: ["looser than needed", "soft"],
  equal: ["right", "good"],
  differs: ["differs", "warn"],
  does_not_apply: ["doesn't apply", "soft"],
};

function calculator(event, delta) {
  const query = new URLSearchParams({ mode: "guarantee" });
  let inner = event;
  let count = 1;
  let probability = 1;
  if (inner.kind === "repeated") {
    count = inner.count;
    inner = inner.event;
  }
  if (inner.kind === "poisson_sampled") {
    probability = inner.probability;
    inner = inner.event;
  }
  if (inner.kind !== "release" || delta === null) return null;
  const { kind, ...mechanism } = inner.mechanism;
  const given = { count, probability, delta };
  for (const [name, value] of Object.entries(given)) query.set(name, String(value));
  const walk = (value, way) => {
    for (const [name, one] of Object.entries(value)) {
      if (one !== null && typeof one === "object" && !Array.isArray(one)) walk(one, [...way, name]);
      else if (one !== null) query.set([...way, name].join("."), Array.isArray(one) ? one.join(", ") : String(one));
    }
  };
  walk(mechanism, []);
  return `/calculators/${kind}?${query}`;
}

function verdict(direction) {
  const [words, colour] = VERDICTS[direction] || [direction, "soft"];
  return el("span", { class: `tag ${colour}` }, words);
}

function rows(report) {
  const { experiment, readings } = report;
  return readings.flatMap((reading) => {
    const link = calculator(reading.event, experiment.delta);
    const name = link ? el("a", { href: link }, reading.name) : reading.name;
    const proven = bound(reading.epsilon.upper);
    const shared = [el("th", { scope: "row" }, experiment.task), el("td", { "data-name": "Read as" }, name, ": ", reading.meaning), el("td", { "data-name": "Proven epsilon", class: "mono" }, proven)];
    if (!reading.verdicts.length) return [el("tr", {}, ...shared, el("td", { "data-name": "Printed" }, "none"), el("td", { "data-name": "Verdict" }))];
    return reading.verdicts.map((one) =>
      el("tr", {}, ...shared.map((part) => part.cloneNode(true)), el("td", { "data-name": "Printed", class: "mono" }, `${figure(one.printed)} (${one.where})`), el("td", { "data-name": "Verdict" }, verdict(one.direction), Number.isFinite(number(one.ratio)) ? ` ${figure(one.ratio, 3)} of what holds` : "")),
    );
  });
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
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `Experiments of ${report.title}` },
      el("table", { class: "stacked" }, el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...report.experiments.flatMap(rows))),
    ),
  );
}

async function start() {
  const place = byId("papers");
  try {
    const reports = await api("/v1/papers");
    place.replaceChildren(...reports.map(paper));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    place.replaceChildren(refusal(error));
  } finally {
    place.setAttribute("aria-busy", "false");
  }
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
