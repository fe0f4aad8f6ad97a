// The token view: one span for each visible character run, coloured by a class; one card for the token at hand.
"use strict";
(() => {
  const data = RT.data("data-tokens");
  if (!data) return;
  const texts = document.getElementById("token-texts");
  const card = document.getElementById("token-card");
  const view = document.getElementById("tokens-view");
  const units = [];  // { row, first, count, node, bin, found }
  const unitOf = data.rows.map(() => []);  // row -> token -> unit
  const under = new Set();
  let signal = data.signals[0];
  let here = null;  // { row, token } of the keyboard
  let matches = [];
  let match = -1;

  const key = (row, token) => row * 1e7 + token;

  function paint(unit) {
    const first = key(unit.row, unit.first);
    let marked = false;
    for (let i = 0; i < unit.count; i++) marked ||= under.has(first + i);
    const on = here && here.row === unit.row && here.token >= unit.first && here.token < unit.first + unit.count;
    unit.node.className = "t b" + unit.bin + (marked ? " u" : "") + (unit.found ? " found" : "") + (on ? " on" : "");
  }

  function binOf(row, token) {
    const values = data.rows[row].v[signal.key];
    let value = values ? values[token] : null;
    if (value === null || value === undefined) return signal.ramp === "d" ? 4 : 0;
    if (signal.relative) value = signal.mean ? value / signal.mean : 1;
    let bin = 0;
    while (bin < signal.stops.length && value >= signal.stops[bin]) bin++;
    return signal.reverse ? signal.stops.length - bin : bin;
  }

  function colour() {
    view.dataset.ramp = signal.ramp;
    const blank = signal.ramp === "d" ? 4 : 0;
    for (const unit of units) {
      unit.bin = binOf(unit.row, unit.first);
      if (unit.count > 1) {
        // Tokens that are parts of one character: a stripe for each.
        const share = 100 / unit.count;
        const stripes = [];
        for (let i = 0; i < unit.count; i++) {
          const bin = binOf(unit.row, unit.first + i);
          const paintOf = bin === blank ? "transparent" : `var(--${signal.ramp}${bin})`;
          stripes.push(`${paintOf} ${i * share}% ${(i + 1) * share}%`);
        }
        unit.node.style.background = `linear-gradient(to right, ${stripes.join(",")})`;
      }
      paint(unit);
    }
    legend();
  }

  function legend() {
    const place = document.getElementById("token-legend");
    const steps = RT.el("ul", { class: "steps", "aria-hidden": "true" });
    const count = signal.stops.length + 1;
    for (let i = 0; i < count; i++) {
      const bin = signal.reverse ? signal.stops.length - i : i;
      const low = i === 0 ? null : signal.stops[i - 1];
      const sign = signal.relative && low !== null ? "×" : "";
      // A number stands under the border between two colours.
      steps.append(RT.el("li", {}, RT.el("i", { class: "b" + bin }), low === null ? null : RT.el("span", {}, sign, RT.num(low, "exact"))));
    }
    place.replaceChildren(steps, RT.el("p", { class: "help" }, signal.help));
  }

  function write(node, text) {
    const lines = text.split("\n");
    lines.forEach((line, i) => {
      if (i) node.append(RT.el("span", { class: "nl", "aria-hidden": "true" }, "↵"), "\n");
      if (line) node.append(line);
    });
  }

  function build() {
    const all = document.createDocumentFragment();
    data.rows.forEach((row, r) => {
      const continued = new Set(row.j);
      const text = RT.el("div", { class: "text" });
      let i = 0;
      while (i < row.t.length) {
        let end = i + 1;
        while (end < row.t.length && continued.has(end)) end++;
        const node = RT.el("span", { class: "t" });
        const unit = { row: r, first: i, count: end - i, node, bin: 0, found: false };
        node.dataset.u = units.length;
        write(node, row.t.slice(i, end).join("") || "▯");
        for (let k = i; k < end; k++) unitOf[r][k] = unit;
        units.push(unit);
        text.append(node);
        i = end;
      }
      for (const token of row.u) under.add(key(r, token));
      const head = RT.el("p", { class: "row-head" }, "Row " + row.id, row.from ? " · " + row.from : "", " · ", RT.num(row.t.length, "count"), " tokens");
      const article = RT.el("div", { class: "row", id: "token-row-" + r }, head);
      if (row.prompt) article.append(RT.el("p", { class: "prompt" }, row.prompt));
      article.append(text);
      all.append(article);
    });
    texts.append(all);
  }

  const ROWS = [
    ["p", "probability p"], ["nll", "−ln p (nats)"], ["rank", "rank R", "count"], ["expected_rank", "expected rank E[R]"],
    ["entropy_bits", "entropy H (bits)"], ["p_max", "top probability"], ["s", "bound s(H)"], ["k", "exponent K"], ["indicator", "indicator I"],
  ];

  const ORDINAL = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];

  function says(v) {
    if (v("indicator") === null) return "";
    if (v("indicator") < 0.98) return "Ranks worse than the model itself expects: there is something to learn here.";
    if (v("indicator") > 1.02) return "Ranks better than the model’s uncertainty suggests: already learnt.";
    return v("p") >= 0.5 ? "The model is sure, and right." : "About as the model expects.";
  }

  function show(r, i) {
    const row = data.rows[r];
    const unit = unitOf[r][i];
    const v = (name) => (row.v[name] && row.v[name][i] !== undefined ? row.v[name][i] : null);
    const word = row.t.slice(unit.first, unit.first + unit.count).join("").replace(/\n/g, "↵").replace(/\t/g, "⇥");
    const list = RT.el("dl", {});
    for (const [name, label, style] of ROWS) {
      if (!row.v[name]) continue;
      const now = name === signal.key ? "now" : "";
      list.append(RT.el("dt", { class: now }, label), RT.el("dd", { class: now }, RT.num(v(name), style)));
    }
    if (data.methods.length) list.append(RT.el("dt", { class: "head" }, "Weight under"));
    for (const method of data.methods) {
      const now = "w:" + method === signal.key ? "now" : "";
      list.append(RT.el("dt", { class: now }, method), RT.el("dd", { class: now }, RT.num(v("w:" + method))));
    }
    const where = RT.el("p", { class: "where" }, "row " + row.id + ", character ", RT.num(row.start[i], "count"));
    if (unit.count > 1) where.append(`, ${ORDINAL[i - unit.first] || "one"} of the tokens that make this character`);
    if (under.has(key(r, i))) where.append(", under-learned");
    const blank = word === "" ? "no text of its own" : word.trim() === "" ? word.replace(/ /g, "␣") : word.replace(/^ +/, (spaces) => "␣".repeat(spaces.length));
    card.replaceChildren(RT.el("p", { class: "word", dir: "auto" }, blank), where, RT.el("p", { class: "says" }, says(v)), list);
  }

  function go(r, i, scroll) {
    const before = here && unitOf[here.row][here.token];
    here = { row: r, token: i };
    const unit = unitOf[r][i];
    if (before && before !== unit) paint(before);
    paint(unit);
    show(r, i);
    if (scroll) unit.node.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function step(delta) {
    if (!here) return start();
    let { row, token } = here;
    token += delta;
    while (row >= 0 && row < data.rows.length && (token < 0 || token >= data.rows[row].t.length)) {
      row += delta;
      if (row < 0 || row >= data.rows.length) return;
      token = delta > 0 ? 0 : data.rows[row].t.length - 1;
    }
    if (row >= 0 && row < data.rows.length) go(row, token, true);
  }

  function start() {
    const row = data.rows.findIndex((one) => one.t.length);
    if (row >= 0) go(row, 0, true);
  }

  // Up and down: the nearest token on the next line of the page, whatever row of data it belongs to.
  function line(delta) {
    if (!here) return start();
    const unit = unitOf[here.row][here.token];
    const box = unit.node.getClientRects()[0];
    let best = null, reach = Infinity, top = null;
    for (let u = units.indexOf(unit) + delta; u >= 0 && u < units.length; u += delta) {
      const one = units[u].node.getClientRects()[0];
      if (!one || (delta > 0 ? one.top < box.bottom - 2 : one.bottom > box.top + 2)) continue;
      if (top === null) top = one.top;
      if (Math.abs(one.top - top) > 3) break;
      const distance = Math.abs(one.left - box.left);
      if (distance < reach) { reach = distance; best = units[u]; }
    }
    if (best) go(best.row, best.first, true);
  }

  function nextUnder(delta) {
    const all = [...under].sort((a, b) => a - b);
    if (!all.length) return;
    const now = here ? key(here.row, here.token) : -1;
    const next = delta > 0 ? all.find((k) => k > now) ?? all[0] : all.findLast((k) => k < now) ?? all.at(-1);
    go(Math.floor(next / 1e7), next % 1e7, true);
  }

  function letGo() {
    const unit = here && unitOf[here.row][here.token];
    here = null;
    if (unit) paint(unit);
    card.replaceChildren(RT.el("p", { class: "empty" }, "Point at a token or tap it, or focus the text and use the arrow keys."));
  }

  const KEYS = {
    ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => line(1), ArrowUp: () => line(-1),
    Home: () => here && go(here.row, 0, true), End: () => here && go(here.row, data.rows[here.row].t.length - 1, true),
    n: () => nextUnder(1), p: () => nextUnder(-1), Escape: letGo,
  };

  function pointed(event) {
    const node = event.target.closest(".t");
    if (!node) return null;
    const unit = units[node.dataset.u];
    const box = node.getBoundingClientRect();
    const part = unit.count > 1 ? Math.min(unit.count - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * unit.count))) : 0;
    return [unit.row, unit.first + part];
  }

  function search(wanted) {
    for (const unit of units) if (unit.found) { unit.found = false; paint(unit); }
    matches = [];
    match = -1;
    const needle = wanted.toLowerCase();
    if (needle) data.rows.forEach((row, r) => find(row, r, needle));
    state();
  }

  function find(row, r, needle) {
    // Lower case may change the length of a text, so places are counted in the lowered pieces.
    const pieces = row.t.map((text) => text.toLowerCase());
    const starts = [];
    let length = 0;
    for (const piece of pieces) { starts.push(length); length += piece.length; }
    const whole = pieces.join("");
    for (let at = whole.indexOf(needle); at >= 0; at = whole.indexOf(needle, at + needle.length)) {
      let first = -1;
      for (let i = 0; i < pieces.length && starts[i] < at + needle.length; i++) {
        if (starts[i] + pieces[i].length <= at) continue;
        if (first < 0) first = i;
        const unit = unitOf[r][i];
        unit.found = true;
        paint(unit);
      }
      matches.push([r, first]);
    }
  }

  function state() {
    const box = document.getElementById("token-search");
    const text = !box.value ? "" : !matches.length ? "no match" : match < 0 ? matches.length + (matches.length === 1 ? " match" : " matches") : `${match + 1} of ${matches.length}`;
    document.getElementById("token-search-state").textContent = text;
  }

  function nextMatch(delta) {
    if (!matches.length) return;
    match = (match + delta + matches.length) % matches.length;
    go(...matches[match], true);
    state();
  }

  function controls() {
    const choice = document.getElementById("signal");
    data.signals.forEach((one, i) => {
      if (one.relative && !(data.signals[i - 1] || {}).relative) choice.append(RT.el("span", { class: "group", "aria-hidden": "true" }, "or by the weight of"));
      const name = one.relative ? "weight of " + one.label : null;
      const radio = RT.el("input", { type: "radio", name: "signal", value: one.key, checked: i === 0, "aria-label": name });
      choice.append(RT.el("label", {}, radio, RT.el("span", {}, one.label)));
    });
    choice.addEventListener("change", (event) => {
      signal = data.signals.find((one) => one.key === event.target.value);
      colour();
      if (here) show(here.row, here.token);
    });
    const rows = document.getElementById("token-row");
    data.rows.forEach((row, r) => rows.append(RT.el("option", { value: r }, row.id + (row.from ? " · " + row.from : ""))));
    rows.addEventListener("change", () => go(Number(rows.value), 0, true));
    const box = document.getElementById("token-search");
    box.addEventListener("input", RT.later(() => search(box.value), 120));
    box.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); nextMatch(event.shiftKey ? -1 : 1); } });
    document.getElementById("token-search-next").addEventListener("click", () => nextMatch(1));
    document.getElementById("next-under").addEventListener("click", () => nextUnder(1));
    texts.addEventListener("keydown", (event) => {
      const action = !event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key];
      if (action) { event.preventDefault(); action(); }
    });
    texts.addEventListener("focus", () => { if (!here && texts.matches(":focus-visible")) start(); });
    texts.addEventListener("mouseover", (event) => { const at = pointed(event); if (at) show(...at); });
    texts.addEventListener("mouseleave", () => { if (here) show(here.row, here.token); });
    texts.addEventListener("click", (event) => { const at = pointed(event); if (at) go(...at, false); });
  }

  build();
  controls();
  colour();
  const note = document.getElementById("token-note");
  note.append("Dotted lines mark the ", RT.num(data.under_learned, "count"), " most under-learned tokens. ");
  if (data.shown_rows < data.rows_found) {
    note.append("This page shows ", RT.num(data.shown_rows, "count"), " of ", RT.num(data.rows_found, "count"), " rows; the JSON beside it has all of them. ");
  }
  if (data.rows_found < data.of_rows) {
    note.append("The token table has ", RT.num(data.of_rows, "count"), " rows; ranktuner diagnose tokens --row shows any of them.");
  }
})();
