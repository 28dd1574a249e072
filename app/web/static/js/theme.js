// Loaded before anything is drawn, so that no page flashes in the other colours.
"use strict";
(() => {
  const kept = localStorage.getItem("zetadp-theme");
  const dark = kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
