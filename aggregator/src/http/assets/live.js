"use strict";
// Replaces the parts of a page that have changed. Without it, pages are complete and can be loaded again.
(() => {
  if (document.body.dataset.live !== "yes" || !window.EventSource) return;
  const connection = document.getElementById("connection");
  const announcement = document.getElementById("announcement");
  const key = element => element && (element.id || element.getAttribute("href") || element.getAttribute("aria-label"));
  const say = part => {
    const text = part.querySelector("[data-say]")?.dataset.say;
    if (text && announcement && announcement.textContent !== text) announcement.textContent = text;
  };
  const replace = html => {
    const part = new DOMParser().parseFromString(html, "text/html").querySelector("[data-part]");
    const old = part && document.getElementById(part.id);
    if (!old || !old.hasAttribute("data-part")) return;
    const focused = old.contains(document.activeElement) ? key(document.activeElement) : null;
    const scrolled = [...old.querySelectorAll(".scroll")].map(box => box.scrollLeft);
    old.replaceWith(part);
    [...part.querySelectorAll(".scroll")].forEach((box, index) => { box.scrollLeft = scrolled[index] || 0; });
    if (focused) {
      const again = [...part.querySelectorAll("a, [tabindex]")].find(element => key(element) === focused);
      if (again) again.focus({ preventScroll: true });
    }
    say(part);
  };
  const source = new EventSource("/events?of=" + encodeURIComponent(location.pathname + location.search));
  source.addEventListener("part", event => replace(event.data));
  source.addEventListener("closed", () => { source.close(); connection.textContent = "The session has ended. Load the page again."; });
  source.onopen = () => { connection.textContent = "This page follows the run."; };
  source.onerror = () => { connection.textContent = "No connection to the gateway; the page tries again."; };
})();
