"use strict";
// The page works without this: it adds tooltips, marks what belongs together, and filters.
(() => {
  const root = document.documentElement;
  window.addEventListener("error", () => { root.dataset.errors = "1"; });

  // Tooltips, by pointer and by keyboard; the browser's own ones are put aside.
  const tips = new Map();
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  for (const title of document.querySelectorAll("svg title")) {
    tips.set(title.parentElement, title.textContent);
    title.remove();
  }
  for (const element of document.querySelectorAll("[title]")) {
    tips.set(element, element.title);
    element.removeAttribute("title");
  }
  const owner = (target) => {
    let at = target instanceof Element ? target : null;
    while (at && !tips.has(at)) at = at.parentElement;
    return at;
  };
  const place = (x, y) => {
    const room = 8, width = tip.offsetWidth, height = tip.offsetHeight;
    const below = y + 16 + height + room <= innerHeight;
    tip.style.left = `${Math.max(room, Math.min(x + 12, innerWidth - width - room))}px`;
    tip.style.top = `${Math.max(room, below ? y + 16 : y - height - 10)}px`;
  };
  const show = (element, x, y) => {
    tip.textContent = tips.get(element);
    tip.hidden = !tip.textContent;
    place(x, y);
  };

  // A call's bar, text and row belong together.
  const numberOf = (element) => {
    const at = element && element.closest("[data-call]");
    return at ? at.dataset.call : null;
  };
  let lit = [];
  const light = (number) => {
    for (const element of lit) element.classList.remove("lit");
    lit = number === null ? [] : [...document.querySelectorAll(`[data-call="${number}"]`)];
    for (const element of lit) element.classList.add("lit");
  };

  document.addEventListener("pointermove", (event) => {
    const element = owner(event.target);
    if (element) show(element, event.clientX, event.clientY); else tip.hidden = true;
  });
  document.addEventListener("pointerover", (event) => light(numberOf(event.target)));
  document.addEventListener("focusin", (event) => {
    light(numberOf(event.target));
    const element = owner(event.target);
    if (!element || !event.target.matches(":focus-visible")) return;
    const box = event.target.getBoundingClientRect();
    show(element, box.left, box.bottom - 8);
  });
  document.addEventListener("focusout", () => { tip.hidden = true; light(null); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);

  // The legend shows one origin at a time.
  const chips = [...document.querySelectorAll(".chip")];
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      const on = chip.getAttribute("aria-pressed") !== "true";
      for (const other of chips) {
        other.setAttribute("aria-pressed", String(on && other === chip));
        document.body.classList.toggle(`only-${other.dataset.origin}`, on && other === chip);
      }
      document.body.classList.toggle("only", on);
    });
  }

  // A name that does not fit into its bar is left out.
  const fit = () => {
    for (const text of document.querySelectorAll(".bar text")) {
      const room = text.ownerSVGElement.getBoundingClientRect().width;
      const box = text.getBBox();
      text.style.visibility = box.x + box.width + 4 > room ? "hidden" : "visible";
    }
  };
  fit();
  window.addEventListener("resize", fit);
  root.dataset.ready = "1";
})();
