// SPDX-License-Identifier: Apache-2.0
// Two comforts; every page works without them: "/" goes to the search, and parts marked data-live are kept fresh.
"use strict";

const EVERY_MS = 5000;

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById("find").focus();
  }
  if (event.key === "Escape" && typing) typing.blur();
});

async function refresh() {
  const parts = document.querySelectorAll("[data-live][id]");
  if (document.hidden || parts.length === 0) return;
  let fresh;
  try {
    const answer = await fetch(location.href, { headers: { "x-refresh": "1" }, redirect: "error" });
    if (!answer.ok) return;
    fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return; // the cluster or the console is away; the page stays as it is
  }
  for (const part of parts) {
    const other = fresh.getElementById(part.id);
    const busy = part.contains(document.activeElement) || String(getSelection()) !== "";
    if (other && !busy && other.innerHTML !== part.innerHTML) part.replaceWith(document.adoptNode(other));
  }
}

if (document.querySelector("[data-live][id]")) setInterval(refresh, EVERY_MS);
