"use strict";
// Replaces the parts of a page that have changed. Without it, pages are complete and can be loaded again.
(() => {
  if (document.body.dataset.live !== "yes" || !window.EventSource) return;
  const connection = document.getElementById("connection");
  const announcement = document.getElementById("announcement");
  const hold = document.getElementById("hold");
  let source = null;
  let held = false;
  let ended = false;
  const state = (text, lost) => {
    if (connection.textContent !== text) connection.textContent = text;
    connection.classList.toggle("bad", lost);
  };
  const key = element => element.id || element.getAttribute("href") || element.getAttribute("aria-label");
  const say = part => {
    const text = part.querySelector("[data-say]")?.dataset.say;
    if (text && announcement.textContent !== text) announcement.textContent = text;
  };
  const stops = part => [...part.querySelectorAll("a, [tabindex]")];
  const replace = html => {
    const part = new DOMParser().parseFromString(html, "text/html").querySelector("[data-part]");
    const old = part && document.getElementById(part.id);
    if (!old || !old.hasAttribute("data-part")) return;
    const active = old.contains(document.activeElement) ? document.activeElement : null;
    const place = active ? stops(old).indexOf(active) : -1;
    const scrolled = [...old.querySelectorAll(".scroll")].map(box => box.scrollLeft);
    old.replaceWith(part);
    [...part.querySelectorAll(".scroll")].forEach((box, index) => { box.scrollLeft = scrolled[index] || 0; });
    if (active) {
      const again = stops(part).find(element => key(element) === key(active)) || stops(part)[place];
      if (again) again.focus({ preventScroll: true });
    }
    say(part);
  };
  const stop = () => {
    if (source) source.close();
    source = null;
  };
  const follow = () => {
    if (source || held || ended || document.hidden) return;
    source = new EventSource("/events?of=" + encodeURIComponent(location.pathname + location.search));
    source.addEventListener("part", event => replace(event.data));
    source.addEventListener("closed", () => {
      ended = true;
      stop();
      state("The session has ended. Load the page again.", true);
    });
    source.onopen = () => state("This page follows the run.", false);
    source.onerror = () => {
      if (source && source.readyState !== EventSource.CLOSED) {
        state("No connection to the gateway. The page shows an earlier state, and tries again.", true);
        return;
      }
      // The gateway has answered something else: the session has ended, or too many pages follow the run.
      stop();
      state("The page shows an earlier state, because the gateway sends no changes. Load it again.", true);
    };
  };
  // A page that is not seen takes none of the few connections that a browser opens to one host.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : follow()));
  hold.hidden = false;
  hold.addEventListener("click", () => {
    held = !held;
    hold.textContent = held ? "Follow the run" : "Stop updates";
    if (held) {
      stop();
      state("Updates are stopped: the page shows an earlier state.", false);
    } else follow();
  });
  follow();
})();
