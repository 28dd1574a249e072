// A page that queries one endpoint while you type: a comparison with a paper, or the best shape of noise.

import { announce, bound, byId, el, figure } from "./core.js";
import { derivation } from "./derivation.js";
import { directionOf, ordered, summary, table } from "./findings.js";
import { gathered } from "./form.js";
import { keepAsking } from "./keep-asking.js";

const MOST = 6; // statements in view, the gravest of them
const form = byId("form");
const fields = [...form.querySelectorAll("[data-path]")];

function inputOf(name) {
  const plain = name.replace(/\[\d+\]/g, "");
  return fields.find((input) => input.dataset.path === plain) || fields.find((input) => plain.endsWith(`.${input.dataset.path}`));
}

function show(answer) {
  const rest = byId("rest");
  if (answer.published) {
    const findings = ordered(answer.published);
    const over = findings.filter((one) => directionOf(one) === "overclaims").length;
    byId("headline").textContent = over ? `${over} of ${findings.length} promise too much` : "None promise too much";
    byId("sentences").replaceChildren(summary(findings));
    const wasOpen = rest.querySelector("#more-findings")?.open;
    const more = findings.slice(MOST);
    rest.replaceChildren(table(findings.slice(0, MOST), "Published versus proven"));
    if (more.length) rest.append(el("details", { id: "more-findings", open: wasOpen }, el("summary", {}, `${more.length} more printed statements`), table(more, "More statements")));
  } else {
    byId("headline").textContent = `real std ${bound(answer.std_real, { digits: 6 })}, imaginary std ${bound(answer.std_imag, { digits: 6 })}`;
    byId("sentences").replaceChildren(...shape(answer).map((line) => el("p", {}, line)));
    const folded = rest.querySelector("details")?.open;
    rest.replaceChildren(el("div", { class: "below" }, el("details", { open: folded }, el("summary", {}, el("h2", {}, "Derivation")), el("p", {}, el("a", { href: "/proofs/noise_shape" }, "Read the proof"), "."), derivation(answer.derivation))));
  }
  announce(byId("headline").textContent);
}

function shape(answer) {
  return [
    `mu is at most ${bound(answer.mu_optimal)}; circular noise of the same size has ${bound(answer.mu_circular)}.`,
    `For the same privacy, circular noise has a mean squared error about ${figure(1 / answer.squared_error_ratio, 4)} times as large.`,
  ];
}

keepAsking({ form, path: form.dataset.pathAsked, fields, body: () => gathered(fields), show, inputOf });
