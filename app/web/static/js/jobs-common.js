// What a job's list and its page say alike.

import { bound, el } from "./core.js";

const COLOURS = { succeeded: "good", failed: "bad", cancelled: "warn", paused: "warn" };

const NAMES = {
  zeta_dp_sgd: "DP-SGD, real or complex",
  federated_zeta_dp_sgd: "DP-SGD, federated",
  spectral_dp: "Spectral-DP",
  spof: "SPOF, sound form",
  spof_printed: "SPOF, as printed",
  functional_mechanism: "Functional mechanism",
  dp_sgd_laplace: "DP-SGD with noise on gradients",
  dp_sgd_laplace_printed: "SPOF's DP-SGD, as printed",
  obfuscation: "Obfuscated features",
  non_private: "Without privacy",
  comparison: "Comparison of several",
  private_selection: "Private selection",
};

/** An algorithm by its name. */
export function algorithmName(kind) {
  if (!kind) return "";
  const words = kind.replaceAll("_", " ");
  return NAMES[kind] || `${words[0].toUpperCase()}${words.slice(1)}`;
}

/** Where a job says what it has to guarantee; undefined where it says nothing of the kind. */
export const privacyOf = (job) => job?.spec?.privacy ?? job?.spec?.method?.privacy;

/** A job's state; of one that is paused for an approval, that it waits for it. */
export function tag({ state, waits_for: waits }) {
  return el("span", { class: `tag ${COLOURS[state] || "soft"}` }, waits ? "waits for approval" : state);
}

export function cost(progress) {
  if (!progress) return "";
  return progress.epsilon === "Infinity" ? "no guarantee" : `epsilon ${bound(progress.epsilon)} at delta ${progress.delta}`;
}
