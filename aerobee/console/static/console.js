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
    if (other && !isBusy(part) && other.innerHTML !== part.innerHTML) exchange(part, document.adoptNode(other));
  }
}

// Somebody is about to follow a link or press a button in it, or has marked something.
function isBusy(part) {
  const focused = document.activeElement;
  return String(getSelection()) !== "" || (part.contains(focused) && focused.matches("a, button, input, select, summary"));
}

// Tables stay scrolled as they were.
function exchange(part, other) {
  const places = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  part.replaceWith(other);
  other.querySelectorAll(".scroll").forEach((each, number) => (each.scrollLeft = places[number] ?? 0));
}

if (document.querySelector("[data-live][id]")) setInterval(refresh, EVERY_MS);
