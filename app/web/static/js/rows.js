// Rows of the errata lie folded; the one that an address names is shown.

import { byId } from "./core.js";

/** Unfolds the rows and goes to the one after the address's #. */
export function unfoldNamed() {
  if (!/^#[A-Z]\d+$/.test(location.hash)) return;
  const row = document.getElementById(location.hash.slice(1));
  if (!row) return;
  byId("all").open = true;
  row.scrollIntoView();
}
