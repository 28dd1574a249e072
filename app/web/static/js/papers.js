// A search in the errata; a row that the address names is unfolded.

import { byId, later } from "./core.js";
import { unfoldNamed } from "./rows.js";

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
window.addEventListener("hashchange", unfoldNamed);
unfoldNamed();
