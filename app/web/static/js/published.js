// The papers' formulas at a calculator's values, each next to the proven answer. They are requested after the answer, which never waits.

import { Problem, api, byId, el, number, refusal } from "./core.js";
import { counted, directionOf, ordered, summary, table } from "./findings.js";

/** What each comparison is asked, from the mechanism as typed and the answer's epsilon; a text says why it can't be. */
const BODIES = {
  complex_gaussian: ({ mechanism, delta }) => ({ mechanism, deltas: [delta] }),
  classic_gaussian: ({ epsilon, delta }) => (epsilon > 0 && Number.isFinite(epsilon) ? { epsilon, delta } : "The classic formula needs a finite epsilon above 0."),
  spectral: ({ mechanism, delta }) => ({ shape: mechanism.shape, kept: mechanism.kept, clip: clip(mechanism.sensitivity), std: mechanism.std, deltas: [delta] }),
  spof: ({ mechanism, epsilon, count }) =>
    epsilon > 0 && Number.isFinite(epsilon)
      ? { dimension: mechanism.dimension ?? 1, expansion_point: mechanism.expansion_point ?? 0, stabilisation: mechanism.stabilisation ?? 0, epsilon, releases: count }
      : "The paper's algorithm needs a finite epsilon above 0.",
  training: ({ mechanism, delta, count, beyond, ...samples }) => {
    if (beyond) return "The papers account for one training with Poisson samples or samples of fixed size. Choose such a training to see their formulas.";
    if (!mechanism.std || mechanism.correlation) return "The papers train with circular noise (one deviation, correlation 0). Enter such noise to see their formulas.";
    const sizes = samples.sampler === "fixed_size" ? { batch_size: samples.batch_size, population_size: samples.population_size } : { sampling_probability: samples.probability };
    return { ...sizes, noise_multiplier: mechanism.std / clip(mechanism.sensitivity), convention: "per_component", sampler: samples.sampler, steps: count, delta, unit: mechanism.sensitivity.unit };
  },
};

/** S, to which a unit's part was clipped: replacing a unit moves a sum by twice that. */
function clip(sensitivity) {
  if (sensitivity.l2_contribution !== undefined && sensitivity.l2_contribution !== null) return sensitivity.l2_contribution;
  return sensitivity.adjacency === "replace_one" ? sensitivity.l2 / 2 : sensitivity.l2;
}

/** Fills the page's section with the statements at these values. */
export async function compare(values, signal) {
  const place = document.getElementById("published"); // what is only declared has none
  if (!place?.dataset.endpoint) return;
  const { endpoint, rows } = place.dataset;
  place.setAttribute("aria-busy", "true");
  try {
    const body = BODIES[endpoint](values);
    if (typeof body === "string") {
      forget(body);
      return;
    }
    const answer = await api(`/v1/compare/${endpoint}`, { method: "POST", signal, body });
    const mine = rows.split(" ");
    const findings = ordered(answer.published);
    const first = findings.filter((one) => directionOf(one) !== "does_not_apply" && (mine.includes(one.erratum) || endpoint === "training"));
    const rest = findings.filter((one) => !first.includes(one));
    byId("published-count").textContent = counted(first);
    place.replaceChildren(summary(first));
    if (first.length) place.append(table(first, "Published versus proven"));
    if (rest.length) place.append(el("details", {}, el("summary", {}, `${rest.length} more printed statements`), table(rest, "More statements")));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId("published-count").textContent = "";
    place.replaceChildren(refusal(error));
  } finally {
    if (!signal.aborted) place.setAttribute("aria-busy", "false");
  }
}

/** Shows no statements, and why; a page without a comparison keeps what it says. */
export function forget(why) {
  const place = document.getElementById("published");
  if (!place?.dataset.endpoint) return;
  byId("published-count").textContent = "";
  place.replaceChildren(el("p", {}, why));
  place.setAttribute("aria-busy", "false");
}

/** The comparison's epsilon: the requested one, else the answer's. */
export function epsilonOf(mode, asked, profile) {
  return mode === "guarantee" ? number(profile.epsilon[0].upper) : asked;
}
