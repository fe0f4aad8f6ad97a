// The sample browser: filters over the stored answers, a page of them at a time, each opened in place.
"use strict";
(() => {
  const data = RT.data("data-samples");
  if (!data) return;
  const PAGE = 25;
  const list = document.getElementById("sample-list");
  const more = document.getElementById("sample-more");
  const box = document.getElementById("sample-search");
  const wanted = { run: "", task: "", verdict: "" };
  // What the search looks through, lowered once.
  const group = (item) => data.groups[item.g];
  const problem = (item) => group(item).problems[item.problem];
  const hay = data.items.map((item) => [item.problem, problem(item).prompt, problem(item).gold, item.answer, item.text].join("\n").toLowerCase());
  let found = [];

  function matches(item, i, needle, withVerdict) {
    return (!wanted.run || group(item).run === wanted.run) && (!wanted.task || group(item).task === wanted.task)
      && (!withVerdict || !wanted.verdict || item.verdict === wanted.verdict) && (!needle || hay[i].includes(needle));
  }

  function body(item) {
    const pre = (text) => RT.el("pre", { dir: "auto", class: item.code ? "code" : "" }, text);
    const grade = RT.el("dl", { class: "grade" });
    for (const [label, value] of [["Answer read", item.answer], ["Expected", problem(item).gold], ["Why", item.why]]) {
      if (value !== null && value !== "") grade.append(RT.el("dt", {}, label), RT.el("dd", { dir: "auto" }, value));
    }
    return RT.el("div", { class: "sample-body" },
      RT.el("div", {}, RT.el("h4", {}, "Prompt"), RT.el("pre", { dir: "auto" }, problem(item).prompt || "not stored")),
      RT.el("div", {}, RT.el("h4", {}, "Model’s answer"), pre(item.text)), grade);
  }

  function entry(item) {
    const kind = item.verdict === "correct" || item.verdict === "wrong" ? item.verdict : "other";
    const line = item.text.replace(/\s+/g, " ").trim().slice(0, 160);
    const details = RT.el("details", { class: "sample" }, RT.el("summary", {},
      RT.el("span", { class: "verdict " + kind }, item.verdict),
      RT.el("span", { class: "id" }, [item.problem, group(item).task, group(item).run].filter(Boolean).join(" · ")),
      RT.el("span", { class: "line", dir: "auto" }, line || "(empty answer)")));
    details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(body(item)); });
    return details;
  }

  function showMore() {
    const from = list.children.length;
    list.append(...found.slice(from, from + PAGE).map((i) => entry(data.items[i])));
    more.hidden = list.children.length >= found.length;
  }

  function refresh() {
    const needle = box.value.trim().toLowerCase();
    found = [];
    const counts = { "": 0 };
    data.items.forEach((item, i) => {
      if (!matches(item, i, needle, false)) return;
      counts[""]++;
      counts[item.verdict] = (counts[item.verdict] || 0) + 1;
      if (matches(item, i, needle, true)) found.push(i);
    });
    for (const span of document.querySelectorAll("#sample-verdicts output")) span.textContent = counts[span.dataset.verdict] || 0;
    document.getElementById("sample-count").textContent = found.length + (found.length === 1 ? " sample" : " samples");
    list.replaceChildren();
    showMore();
  }

  function selector(name, label) {
    const values = [...new Set(data.groups.map((one) => one[name]).filter(Boolean))];
    if (values.length < 2) return null;
    const select = RT.el("select", {}, RT.el("option", { value: "" }, "all"), ...values.map((value) => RT.el("option", { value }, value)));
    select.addEventListener("change", () => { wanted[name] = select.value; refresh(); });
    return RT.el("label", { class: "field" }, RT.el("span", {}, label), select);
  }

  const places = [selector("run", "Model"), selector("task", "Task")].filter(Boolean);
  document.getElementById("sample-groups").append(...places);
  const there = new Set(data.items.map((item) => item.verdict));
  const verdicts = ["", ...data.verdicts.filter((verdict) => there.has(verdict))];
  for (const verdict of verdicts) {
    const radio = RT.el("input", { type: "radio", name: "verdict", value: verdict, checked: verdict === "" });
    const count = RT.el("output", {});
    count.dataset.verdict = verdict;
    document.getElementById("sample-verdicts").append(RT.el("label", {}, radio, RT.el("span", {}, verdict || "all", " ", count)));
  }
  document.getElementById("sample-verdicts").addEventListener("change", (event) => { wanted.verdict = event.target.value; refresh(); });
  box.addEventListener("input", RT.later(refresh, 120));
  more.addEventListener("click", showMore);
  if (data.shown < data.found) {
    document.getElementById("sample-note").append("This page shows ", RT.num(data.shown, "count"), " of ", RT.num(data.found, "count"),
      " samples, the first of every problem in turn; the sample store has all of them.");
  }
  refresh();
})();
