// Copying the lines of a step.

import { byId, copy } from "./core.js";

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copy(byId(button.dataset.copy).textContent, "The lines"));
}
