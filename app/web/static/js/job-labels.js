// A job's labels, shown and changed. They are no part of what is trained or certified.

import { Problem, announce, api, byId } from "./core.js";
import { canShow, labelText, readLabels, say } from "./submit-fields.js";

let shown = null;

/** Shows the labels, but never over what somebody is typing. */
export function showLabels(labels) {
  const text = labelText(labels);
  byId("labels-form").hidden = !canShow(labels);
  byId("labels-other").textContent = canShow(labels) ? "" : `Labels: ${text}`;
  if (shown === text) return;
  const untouched = shown === null || byId("labels").value === shown;
  shown = text;
  if (untouched) byId("labels").value = text;
}

/** Sends a change of them; `taken` gets the job as it then is. */
export function editLabels(base, taken) {
  byId("labels-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const found = readLabels(byId("labels").value);
    say("labels", found.words || "");
    byId("labels-kept").textContent = "";
    if (found.words) {
      byId("labels").focus();
      return;
    }
    try {
      const job = await api(`${base}/labels`, { method: "PATCH", body: { labels: found.value } });
      shown = labelText(job.labels);
      byId("labels").value = shown;
      byId("labels-kept").textContent = "Saved.";
      announce("Labels saved");
      taken(job);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      say("labels", error.message);
      byId("labels").focus();
    }
  });
}
