// What one looks at of a job: kinds of its events, its figures as a file, and another run beside it.

import { Problem, api, byId, csv, download, el, key, moment } from "./core.js";
import { algorithmName } from "./jobs-common.js";

/** Whether a row of the history is of the chosen kind. */
export const isWanted = (kind) => byId("event-kind").value === "" || byId("event-kind").value === kind;

/** Hides what isn't of the chosen kind. */
function filterEvents() {
  for (const row of byId("events").rows) row.hidden = !isWanted(row.dataset.kind);
}

/** All figures of a run, a line for each report: at its step and time, epsilon or a metric. */
export function figuresOf(course) {
  const told = [
    ...course.progress.map((one) => [one.step, one.time, "epsilon", one.epsilon]),
    ...[...course.metrics].flatMap(([name, all]) => all.map(([step, value, time]) => [step, time, name, value])),
  ];
  told.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  return [["step", "time", "figure", "value"], ...told.map(([step, time, name, value]) => [step, new Date(time).toISOString(), name, String(value)])];
}

/** The parts of the page that choose; `course` returns the run's figures as they are now. */
export function offerViews(id, course) {
  byId("event-kind").addEventListener("change", filterEvents);
  byId("figures-csv").addEventListener("click", () => download(`${id}-figures.csv`, csv(figuresOf(course())), "text/csv"));
  byId("overlay").addEventListener("change", () => {
    if (byId("overlay").value) location.assign(`/jobs/compare?${new URLSearchParams([["id", id], ["id", byId("overlay").value]])}`);
  });
}

/** The runs that can be laid over this one: the tenant's newest of the same algorithm. */
export async function findOthers(job) {
  if (!key.get() || !job.algorithm) return;
  try {
    const page = await api(`/v1/jobs?${new URLSearchParams({ limit: "25", algorithm: job.algorithm })}`);
    const others = page.jobs.filter((one) => one.id !== job.id);
    const words = (one) => `${Object.entries(one.labels).map(([name, value]) => `${name}=${value}`).join(", ") || algorithmName(one.algorithm)}, ${one.state}, ${moment(one.created)}`;
    byId("overlay").replaceChildren(el("option", { value: "" }, others.length ? "choose a run" : "no other run yet"), ...others.map((one) => el("option", { value: one.id }, words(one))));
  } catch (error) {
    if (!(error instanceof Problem)) throw error; // the job itself is shown without it
  }
}
