// What a check of the whole history found, and what of it wasn't reached.

import { announce, byId, el } from "./core.js";

const TITLES = { sound: "The history is sound", broken: "The history is broken", incomplete: "The history isn't verified" };
const COLOURS = { sound: "good", broken: "bad", incomplete: "warn" };

function summary({ verdict, entries }) {
  if (verdict === "sound") return `All ${entries} entries were read again: each follows from the one before, and they add up to the balance.`;
  if (verdict === "incomplete") return "What was checked is right, but not everything could be checked within the time that a request may take. The command zetadp ledger verify has no such limit.";
  return `Not all of the ${entries} entries are valid. Don't spend from this budget until somebody has looked into it.`;
}

/** What the limit of time left out. */
function leftOut({ not_read: notRead, not_recomputed: count, first_not_recomputed: first }) {
  const numbers = `${first.join(", ")}${count > first.length ? " and later ones" : ""}`;
  return [
    notRead ? `Not read: the last ${notRead} entries, and what is stored beside them.` : null,
    count ? `Price not recomputed within the limit: ${count === 1 ? "1 entry" : `${count} entries`} (${numbers}).` : null,
  ].filter(Boolean);
}

/** Shows the report. */
export function showReport(report) {
  const { verdict, head } = report;
  const { problems, further_problems: further } = report;
  const found = [...problems, ...(further ? [`${further} further ${further === 1 ? "problem isn't" : "problems aren't"} named.`] : []), ...leftOut(report)];
  byId("verification").replaceChildren(
    el(
      "div",
      { class: `notice ${COLOURS[verdict]}` },
      el("p", {}, el("strong", {}, `${TITLES[verdict]}. `), summary(report)),
      el("p", {}, "Last entry: ", el("span", { class: "mono" }, `${head.number} ${head.sha256}`), ". Write it down: compared with it later, the history shows whether anything before it was changed."),
      found.length ? el("ul", {}, ...found.map((text) => el("li", {}, text))) : null,
    ),
  );
  announce(TITLES[verdict]);
}
