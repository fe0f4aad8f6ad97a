// Draws each plot when it comes near the window, and the rest when the browser is idle (so that printing finds all of them).
"use strict";
(() => {
  const specs = RT.data("data-figures") || {};
  const waiting = new Map(Object.entries(specs).map(([id, spec]) => [document.getElementById(id), spec]));
  // Data arrive in columns to save space; Vega wants rows.
  const unpack = (tree) => {
    if (Array.isArray(tree)) return tree.map(unpack);
    if (tree === null || typeof tree !== "object") return tree;
    if (tree.columns && typeof tree.columns === "object") {
      const names = Object.keys(tree.columns);
      return { values: tree.columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, tree.columns[name][i]]))) };
    }
    return Object.fromEntries(Object.entries(tree).map(([key, value]) => [key, unpack(value)]));
  };
  const draw = async (place) => {
    const spec = waiting.get(place);
    if (!spec) return;
    waiting.delete(place);
    watch.unobserve(place);
    try {
      // The place is one image with a name; the library's roles for parts of it would only contradict that.
      const inside = RT.el("div", { "aria-hidden": "true", class: "canvas" });
      place.replaceChildren(inside);
      // ast: expressions are interpreted, so the page's policy can forbid eval.
      await vegaEmbed(inside, unpack(spec), { renderer: "svg", ast: true, actions: false, tooltip: { theme: "custom" } });
      place.dataset.drawn = "yes";
    } catch (error) {
      place.dataset.drawn = "no";
      place.textContent = "This plot could not be drawn: " + error.message;
    }
  };
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "500px 0px" });
  for (const place of waiting.keys()) watch.observe(place);
  // On a busy machine a browser may not be idle for long: then a plot comes all the same.
  const idle = (action) => window.requestIdleCallback ? requestIdleCallback(action, { timeout: 200 }) : setTimeout(action, 60);
  const rest = () => {
    const next = waiting.keys().next();
    if (!next.done) draw(next.value).then(() => idle(rest));
  };
  addEventListener("load", () => idle(rest));
})();
