"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  root.classList.add("js");

  // Tooltips: text only, for pointer and keyboard alike.
  const tip = byId("tip");
  const show = (target, x, y) => {
    tip.textContent = target.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, x + 14), window.innerWidth - box.width - 8);
    const top = y + 18 + box.height > window.innerHeight ? y - box.height - 14 : y + 18;
    tip.style.left = `${left}px`;
    tip.style.top = `${Math.max(8, top)}px`;
  };
  const beside = (target) => {
    const box = target.getBoundingClientRect();
    show(target, box.left + box.width / 2, box.top + box.height / 2);
  };
  let focused = null;  // what the keyboard stands on: moving there scrolls the page, and the tip goes along
  const hide = () => { tip.hidden = true; focused = null; };
  const tipped = (event) => event.target instanceof Element && event.target.closest("[data-tip]");
  document.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return;
    const target = tipped(event);
    if (target) show(target, event.clientX, event.clientY);
    else if (!tip.hidden) hide();
  });
  document.addEventListener("focusin", (event) => {
    const target = tipped(event);
    if (!target || !target.matches(":focus-visible")) return hide();
    focused = target;
    return beside(target);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", () => (focused ? beside(focused) : hide()), { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Trials: unfold, select from a chart, sort, filter.
  const table = byId("trial-table");
  const unfold = (body, open) => {
    body.classList.toggle("open", open);
    body.querySelector(".unfold").setAttribute("aria-expanded", String(open));
  };
  const select = (number) => {
    const body = byId(`trial-${number}`);
    if (!body) return;
    filter.checked = filter.checked && getComputedStyle(body).display !== "none";
    table.classList.toggle("only-improved", filter.checked);
    all(".selected").forEach((other) => other.classList.remove("selected"));
    all(`.point[data-trial="${number}"]`).forEach((point) => point.classList.add("selected"));
    body.classList.add("selected");
    unfold(body, true);
    body.scrollIntoView({ block: "center" });
    body.querySelector(".unfold").focus({ preventScroll: true });
  };
  const filter = byId("only-improved");
  filter.addEventListener("change", () => table.classList.toggle("only-improved", filter.checked));
  document.addEventListener("click", (event) => {
    const point = event.target.closest("a.point");
    if (point) {
      event.preventDefault();
      hide();
      select(point.dataset.trial);
      return;
    }
    const row = event.target.closest(".trials .main");
    if (row && window.getSelection().isCollapsed) unfold(row.parentElement, !row.parentElement.classList.contains("open"));
  });

  const key = (body, column, numeric) => {
    const text = body.rows[0].cells[column].dataset.key;
    if (text === "") return null;
    return numeric ? Number(text) : text.toLowerCase();
  };
  all(".sort", table).forEach((button) => button.addEventListener("click", () => {
    const head = button.closest("th");
    const numeric = button.dataset.type === "n";
    const column = Number(button.dataset.column);
    const was = head.getAttribute("aria-sort");
    const first = button.textContent === "Gain" ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const now = was === first ? other : first;
    all("th", table.tHead).forEach((th) => th.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", now);
    const sign = now === "ascending" ? 1 : -1;
    const bodies = [...table.tBodies].map((body) => [key(body, column, numeric), Number(body.dataset.number), body]);
    bodies.sort(([a, i], [b, j]) => {
      if (a === null || b === null) return (a === null) - (b === null) || i - j;
      return sign * (a < b ? -1 : a > b ? 1 : 0) || i - j;
    });
    table.append(...bodies.map((entry) => entry[2]));
  }));
  const linked = /^#trial-(\d+)$/.exec(window.location.hash);
  if (linked) select(linked[1]);

  // The snippet and the data leave the page on request only.
  const selectText = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };
  all(".copy").forEach((button) => button.addEventListener("click", async () => {
    const node = byId(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(node.textContent);
      button.textContent = "Copied";
    } catch {
      selectText(node);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }));
  byId("download").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([byId("data").textContent], { type: "application/json" }));
    link.download = "run.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
})();
