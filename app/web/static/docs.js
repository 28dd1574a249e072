"use strict";
// What Swagger UI leaves out for those who can't see or have no mouse: the name of a choice, and a link inside of a button, which the
// button opens anyway.
function mend() {
  for (const choice of document.querySelectorAll("#swagger-ui select:not([aria-label])")) choice.setAttribute("aria-label", choice.id || "Value");
  for (const link of document.querySelectorAll("button a[href]")) link.removeAttribute("href");
}
new MutationObserver(mend).observe(document.getElementById("swagger-ui"), { childList: true, subtree: true });
// validatorUrl: null keeps Swagger UI from sending the description to a validator on the internet.
window.SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  tryItOutEnabled: true,
  displayRequestDuration: true,
});
