// Sorting, filtering, copying, pointing at commits and the theme. The page reads well without it.
"use strict";

function sortValue(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.sort ?? cell.textContent.trim();
  const number = Number(value);
  return value !== "" && !Number.isNaN(number) ? number : value.toLowerCase();
}

function compare(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}

function sortBy(header) {
  const table = header.closest("table");
  const column = header.cellIndex;
  const falling =
    header.getAttribute("aria-sort") === "ascending" ||
    (header.getAttribute("aria-sort") === null && header.dataset.first === "falling");
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => [sortValue(row, column), row]);
  rows.sort((a, b) => compare(a[0], b[0]) * (falling ? -1 : 1));
  body.append(...rows.map((pair) => pair[1]));
}

function filterBy(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const item of document.querySelectorAll("[data-filter]")) {
    const haystack = item.dataset.filter.toLowerCase();
    item.hidden = !words.every((word) => haystack.includes(word));
  }
  for (const group of document.querySelectorAll("[data-group]")) {
    group.hidden = words.length > 0 && !group.querySelector("[data-filter]:not([hidden])");
  }
}

async function copyPatch(button) {
  const text = document.getElementById(button.dataset.copies).textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed to copy";
  }
  setTimeout(() => (button.textContent = "Copy patch"), 1500);
}

function save(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The command that writes the patch of the proposals that are selected.
function tellSelected() {
  const boxes = Array.from(document.querySelectorAll("[data-selects]:checked"));
  const numbers = boxes.map((box) => box.dataset.selects).join(",");
  document.getElementById("selected").hidden = numbers === "";
  document.getElementById("selected-numbers").textContent = numbers;
}

function switchTheme() {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
}

function showNearest(drawing, event) {
  const dots = Array.from(drawing.querySelectorAll(".dot"));
  if (!dots.length) return;
  const box = (dot) => dot.getBoundingClientRect();
  const far = (dot) => Math.abs(box(dot).x + box(dot).width / 2 - event.clientX);
  const nearest = dots.reduce((a, b) => (far(b) < far(a) ? b : a));
  for (const dot of dots) dot.classList.toggle("near", dot === nearest);
  const line = drawing.closest("figure").querySelector(".hover");
  line.textContent = nearest.querySelector("title").textContent;
}

function openTarget() {
  const item = location.hash && document.getElementById(location.hash.slice(1));
  const details = item && item.querySelector("details.changes");
  if (details) details.open = true;
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}
for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", () => copyPatch(button));
}
for (const button of document.querySelectorAll("[data-saves]")) {
  const text = document.getElementById(button.dataset.saves).textContent;
  button.addEventListener("click", () => save(text, button.dataset.name));
}
for (const box of document.querySelectorAll("[data-selects]")) {
  box.addEventListener("change", tellSelected);
}
for (const drawing of document.querySelectorAll("svg.history")) {
  drawing.addEventListener("pointermove", (event) => showNearest(drawing, event));
}
const search = document.getElementById("filter");
if (search) search.addEventListener("input", () => filterBy(search.value));
document.getElementById("theme").addEventListener("click", switchTheme);
addEventListener("hashchange", openTarget);
openTarget();
document.documentElement.classList.add("scripted");
