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

// As render/combine.py: what each patch does to the old lines of each file.
function filesOf(patch) {
  const files = [];
  let file, old, change;
  for (const line of patch.split("\n")) {
    if (line.startsWith("--- ")) {
      files.push((file = { before: line, changes: [], known: new Map() }));
      change = old = null;
    } else if (line.startsWith("+++ ") && old === null) {
      file.after = line;
    } else if (line.startsWith("@@ ")) {
      const [start, length] = line.slice(4).split(" ")[0].split(",").map(Number);
      old = length === 0 ? start + 1 : start;
      change = null;
    } else if (file && old !== null && line !== "") {
      const mark = line[0];
      if (mark === "\\") {
        const last = change && change.added.length ? change.added : null;
        if (last) last[last.length - 1] += "\n" + line;
        else file.known.set(old - 1, file.known.get(old - 1) + "\n" + line);
        continue;
      }
      if (mark === " ") change = null;
      else if (!change) file.changes.push((change = { start: old, end: old, added: [] }));
      if (mark === "+") change.added.push(line.slice(1));
      else file.known.set(old++, line.slice(1));
      if (mark === "-") change.end = old;
    }
  }
  return files;
}

function sameChange(a, b) {
  return a.start === b.start && a.end === b.end && a.added.join("\n") === b.added.join("\n");
}

function overlap(a, b) {
  if (sameChange(a, b)) return false;
  const [inner, outer] = a.start === a.end ? [a, b] : [b, a];
  if (inner.start === inner.end) return outer.start < inner.start && inner.start < outer.end;
  return a.start < b.end && b.start < a.end;
}

function clash(ours, theirs) {
  const isNew = (file) => file.before === "--- /dev/null";
  return ours.some((a) =>
    theirs.some((b) => {
      if (a.after !== b.after) return false;
      const differ = JSON.stringify(a.changes) !== JSON.stringify(b.changes);
      if ((isNew(a) || isNew(b)) && differ) return true;
      return a.changes.some((one) => b.changes.some((other) => overlap(one, other)));
    }),
  );
}

function importedNames(lines) {
  const names = [];
  for (const line of lines) {
    const found = /^(?:from\s+\S+\s+)?import\s+([^(]+)$/.exec(line.trim());
    if (!found) return [];
    for (const one of found[1].split(",")) names.push(one.trim().split(/\s+as\s+/).at(-1));
  }
  return names.map((name) => name.split(".")[0]);
}

// Whether a change only deletes imports, of which another patch adds a use.
function deletesWhatIsUsed(change, file, others) {
  if (change.added.length) return false;
  const removed = [];
  for (let line = change.start; line < change.end; line++) removed.push(file.known.get(line));
  const names = importedNames(removed);
  const added = others.filter((one) => one.after === file.after).flatMap((one) => one.changes);
  const words = new Set(added.flatMap((one) => one.added.join("\n").split(/\W+/)));
  return names.some((name) => words.has(name));
}

function written(file) {
  const changes = file.changes.sort((a, b) => a.start - b.start || a.end - b.end);
  const groups = [];
  for (const one of changes) {
    const last = groups.at(-1);
    if (last && one.start - last.at(-1).end <= 6) last.push(one);
    else groups.push([one]);
  }
  let shift = 0;
  const span = (first, length) => `${length ? first : first - 1},${length}`;
  const hunks = groups.map((group) => {
    let first = group[0].start;
    let end = group.at(-1).end;
    const [top, bottom] = [first - 3, end + 3];
    while (first > top && file.known.has(first - 1)) first--;
    while (end < bottom && file.known.has(end)) end++;
    const body = [];
    let position = first;
    let grown = 0;
    const keep = (until) => {
      for (; position < until; position++) body.push(" " + file.known.get(position));
    };
    for (const one of group) {
      keep(one.start);
      for (; position < one.end; position++) body.push("-" + file.known.get(position));
      body.push(...one.added.map((line) => "+" + line));
      grown += one.added.length - (one.end - one.start);
    }
    keep(end);
    const old = end - first;
    const head = `@@ -${span(first, old)} +${span(first + shift, old + grown)} @@`;
    shift += grown;
    return [head, ...body].join("\n");
  });
  return [file.before, file.after, ...hunks].join("\n") + "\n";
}

function combine(patches) {
  const taken = [];
  let numLeftOut = 0;
  for (const files of patches.map(filesOf)) {
    if (taken.some((other) => clash(other, files))) numLeftOut++;
    else taken.push(files);
  }
  const merged = new Map();
  for (const file of taken.flat()) {
    const others = taken.filter((files) => !files.includes(file)).flat();
    const into = merged.get(file.after) ?? { ...file, changes: [], known: new Map() };
    merged.set(file.after, into);
    for (const [line, text] of file.known) into.known.set(line, text);
    for (const one of file.changes) {
      const isKnown = into.changes.some((other) => sameChange(one, other));
      if (!isKnown && !deletesWhatIsUsed(one, file, others)) into.changes.push(one);
    }
  }
  const files = Array.from(merged.values()).filter((file) => file.changes.length);
  return { patch: files.map(written).join(""), numLeftOut };
}

function selectedPatches() {
  const boxes = Array.from(document.querySelectorAll("[data-selects]:checked"));
  return boxes.map((box) => document.getElementById(box.dataset.selects).textContent);
}

function tellSelected() {
  const { numLeftOut } = combine(selectedPatches());
  const number = selectedPatches().length;
  document.getElementById("save-selected").disabled = number === 0;
  const left = numLeftOut ? `; ${numLeftOut} left out, on lines of a better one` : "";
  document.getElementById("selected-note").textContent = `${number} selected${left}`;
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
const saveSelected = document.getElementById("save-selected");
if (saveSelected) {
  saveSelected.addEventListener("click", () =>
    save(combine(selectedPatches()).patch, saveSelected.dataset.name),
  );
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
