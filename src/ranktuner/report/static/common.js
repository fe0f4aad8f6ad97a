// What the other scripts share: reading the data blocks, making elements, writing numbers as the Python side does.
"use strict";
const RT = {
  data(id) {
    const block = document.getElementById(id);
    return block ? JSON.parse(block.textContent) : null;
  },
  // Text only ever enters the page as text: nothing here parses HTML.
  el(name, attributes, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === true) node.setAttribute(key, "");
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  },
  digits(value) {
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 999.5) return size < 1e9 ? Math.round(value).toLocaleString("en-US") : value.toExponential(2).replace("+", "");
    if (size < 1e-3) return value.toExponential(1);
    return value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(Number(size.toPrecision(3))))));
  },
  written(value, style) {
    if (value === null || value === undefined) return "–";
    let text;
    if (style === "count") text = Math.round(value).toLocaleString("en-US");
    else if (style === "percent") text = (100 * value).toFixed(1) + "\u202f%";
    else if (style === "exact") text = String(value);
    else text = RT.digits(value);
    return text.replace(/-/g, "\u2212");
  },
  num(value, style) {
    if (value === null || value === undefined) return RT.el("span", { class: "none" }, "–");
    return RT.el("data", { value: String(value) }, RT.written(value, style));
  },
  later(action, wait) {
    let timer = 0;
    return (...args) => {
      clearTimeout(timer);
      timer = setTimeout(() => action(...args), wait);
    };
  },
};

(() => {
  const root = document.documentElement;
  const choices = document.getElementById("theme");
  const apply = (value) => {
    if (value === "auto") delete root.dataset.theme;
    else root.dataset.theme = value;
  };
  let kept = null;
  // Some browsers keep no storage for files; the choice then lasts as long as the page.
  try { kept = localStorage.getItem("ranktuner-theme"); } catch { kept = null; }
  const known = kept && choices.querySelector(`input[value="${CSS.escape(kept)}"]`);
  if (known) { known.checked = true; apply(kept); }
  choices.addEventListener("change", (event) => {
    apply(event.target.value);
    try { localStorage.setItem("ranktuner-theme", event.target.value); } catch { /* as above */ }
  });

  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) entry.isIntersecting ? seen.add(entry.target.id) : seen.delete(entry.target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    for (const [id, a] of links) id === first ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current");
  }, { rootMargin: "-10% 0px -60% 0px" });
  for (const id of links.keys()) watch.observe(document.getElementById(id));

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.numbers:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
})();
