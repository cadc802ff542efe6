// The theme, and the samples: filters over the index, a page of rows, texts as they are asked for.
// Whatever a model wrote becomes text of an element and never markup.
"use strict";

const PER_PAGE = 25;
const PER_PIECE = 100;
const RUN = 0, STAGE = 1, STEP = 2, TASK = 3, STATUS = 4, SPEEDUP = 5, REWARD = 6, PROMPT = 7;

document.documentElement.classList.add("scripted");
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// The pieces that were looked at last; all of them would be the whole file in memory.
const pieces = new Map();
async function item(kind, number) {
  const id = `${kind}-${Math.floor(number / PER_PIECE)}`;
  if (!pieces.has(id)) {
    if (pieces.size >= 12) pieces.delete(pieces.keys().next().value);
    pieces.set(id, unpacked(id));
  }
  return (await pieces.get(id))[number % PER_PIECE];
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function speedupText(speedup) {
  return speedup === null ? "" : `${speedup.toFixed(2)}x`;
}

function section(parent, title, text) {
  parent.append(element("h4", title), element("pre", text));
}

async function fill(inside, names, row, number) {
  const found = await item("samples", number);
  const told = [];
  if (found.refused !== null) told.push(`not judged: ${found.refused}`);
  if (row[REWARD] !== null) told.push(`reward ${row[REWARD].toFixed(3)}`);
  if (found.was_confirmed !== null) {
    told.push(found.was_confirmed ? "a jump, confirmed" : "a jump that did not come again");
  }
  if (found.is_known) told.push("the verdict was known");
  if (found.was_rehearsed) told.push("settled on the CPU");
  told.push(`seed ${found.seed}`, "");
  const about = inside.appendChild(element("p", told.join("; "), "muted"));
  about.append(Object.assign(element("a", `sample ${number}`), { href: `#sample-${number}` }));
  if (found.exemplars.length) {
    inside.append(element("p", `exemplars shown: ${found.exemplars.join(", ")}`, "muted"));
  }
  if (found.findings.length) section(inside, "Findings", found.findings.join("\n"));
  section(inside, "Completion", found.completion);
  if (row[PROMPT] >= 0) {
    for (const [role, content] of await item("prompts", row[PROMPT])) {
      section(inside, `Prompt, ${role}`, content);
    }
  }
}

function line(names, row, number) {
  const details = element("details");
  const summary = element("summary");
  const status = names.status[row[STATUS]];
  summary.append(
    element("span", names.task[row[TASK]]),
    element("span", status, status === "passed" ? "status passed" : "status"),
    element("span", speedupText(row[SPEEDUP]), row[SPEEDUP] > 1 ? "number faster" : "number"),
    element("span", `${names.stage[row[STAGE]]} ${row[STEP]}${names.run.length > 1 ? `, ${names.run[row[RUN]]}` : ""}`, "when"),
  );
  details.append(summary);
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const inside = details.appendChild(element("div", undefined, "inside"));
    fill(inside, names, row, number);
  });
  return details;
}

function chosen(names, rows, form) {
  const text = (name) => form.elements[name].value;
  const number = (name) => (text(name) === "" ? null : Number(text(name)));
  const place = (name) => (text(name) === "" ? null : names[name].indexOf(text(name)));
  const run = place("run"), stage = place("stage"), status = place("status");
  const low = number("low"), high = number("high");
  const part = text("task").toLowerCase();
  const tasks = names.task.map((name) => name.toLowerCase().includes(part));
  const found = [];
  rows.forEach((row, i) => {
    if (run !== null && row[RUN] !== run) return;
    if (stage !== null && row[STAGE] !== stage) return;
    if (status !== null && row[STATUS] !== status) return;
    if (!tasks[row[TASK]]) return;
    if (low !== null && !(row[SPEEDUP] !== null && row[SPEEDUP] >= low)) return;
    if (high !== null && !(row[SPEEDUP] !== null && row[SPEEDUP] <= high)) return;
    found.push(i);
  });
  if (text("order") === "fastest") found.sort((a, b) => (rows[b][SPEEDUP] ?? 0) - (rows[a][SPEEDUP] ?? 0));
  if (text("order") === "latest") found.reverse();
  return found;
}

async function browse() {
  const form = document.getElementById("filters");
  if (!form) return;
  const { names, rows } = await unpacked("index");
  for (const name of ["run", "stage", "status"]) {
    const select = form.elements[name];
    for (const value of names[name]) select.append(new Option(value, value));
    select.parentElement.hidden = names[name].length < 2;
  }
  const [list, before, after] = ["list", "before", "after"].map((id) => document.getElementById(id));
  let found = [], page = 0;
  function show() {
    const first = page * PER_PAGE;
    const shown = found.slice(first, first + PER_PAGE);
    list.replaceChildren(...shown.map((number) => line(names, rows[number], number)));
    document.getElementById("place").textContent = found.length
      ? `${first + 1} to ${first + shown.length} of ${found.length}`
      : "no sample is so";
    before.disabled = page === 0;
    after.disabled = first + PER_PAGE >= found.length;
  }
  function filter() {
    found = chosen(names, rows, form);
    page = 0;
    show();
  }
  before.addEventListener("click", () => { page -= 1; show(); });
  after.addEventListener("click", () => { page += 1; show(); });
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  // #sample-12 is the address of a sample.
  function follow() {
    const asked = /^#sample-(\d+)$/.exec(location.hash);
    if (!asked || Number(asked[1]) >= rows.length) return;
    form.reset();
    filter();
    const place = found.indexOf(Number(asked[1]));
    page = Math.floor(place / PER_PAGE);
    show();
    const opened = list.children[place % PER_PAGE];
    opened.open = true;
    opened.scrollIntoView();
  }
  addEventListener("hashchange", follow);
  filter();
  follow();
}

browse();
