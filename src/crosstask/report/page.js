// Charts, files of them, and tables that sort. Colors of text come from the page (currentColor), so that dark mode
// and print need nothing more.
const specOf = (place) => JSON.parse(document.getElementById(place.dataset.chart).textContent);
const views = new Map();

function draw(place) {
  if (!views.has(place)) {
    const drawing = vegaEmbed(place, specOf(place), { renderer: "svg", actions: false }).then((made) => made.view);
    views.set(place, drawing);
    drawing.catch((error) => { place.textContent = "This chart could not be drawn: " + error.message; });
  }
  return views.get(place);
}

// What is in view comes first; the others follow while the browser has nothing else to do.
const left = [...document.querySelectorAll("[data-chart]")];
const idle = window.requestIdleCallback || ((work) => setTimeout(work, 30));
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
}, { rootMargin: "300px" });
left.forEach((place) => seen.observe(place));
function drawNext() {
  const place = left.shift();
  if (place) draw(place).catch(() => null).then(() => idle(drawNext));
}
requestAnimationFrame(() => idle(drawNext));

function save(text, type, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Every data set of a chart in one table; where there are several, the first column says which.
function csvOf(spec) {
  const sets = Object.entries(spec.datasets).filter(([name]) => !name.startsWith("aside"));
  const rows = sets.flatMap(([name, values]) =>
    values.map((row) => (sets.length > 1 ? { series: name, ...row } : row)));
  const heads = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  // A spreadsheet runs a text that begins like a formula; an apostrophe in front makes it a text again.
  const isFormula = (value) => typeof value === "string" && /^[=+\-@\t\r\n＝＋－＠]/.test(value)
    && !/^[+-]?(\d+([.,]\d*)?|[.,]\d+)(e[+-]?\d+)?%?$/i.test(value);
  const cell = (value) => {
    const text = (isFormula(value) ? "'" : "") + (value === undefined || value === null ? "" : String(value));
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  // The mark in front tells spreadsheets that the file is UTF-8.
  return "\ufeff" + [heads, ...rows.map((row) => heads.map((head) => row[head]))]
    .map((row) => row.map(cell).join(",") + "\r\n").join("");
}

for (const button of document.querySelectorAll("[data-save]")) {
  const place = button.closest("figure").querySelector("[data-chart]");
  const name = place.dataset.name.replace(/[^\p{L}\p{N}]+/gu, "-") + "." + button.dataset.save;
  button.addEventListener("click", async () => {
    if (button.dataset.save === "csv") save(csvOf(specOf(place)), "text/csv;charset=utf-8", name);
    else save(await (await draw(place)).toSVG(), "image/svg+xml", name);
  });
}

// Numbers by what they begin with ("0.61 ± 0.02", "3 of 5", "1,234"), other columns as text; empty cells stay last.
function keyOf(cell) {
  const text = cell.textContent.trim();
  const number = parseFloat(text.replaceAll(",", "").replace(/^< /, ""));
  return { text, number, isEmpty: text === "" || text === "–" };
}
function sortBy(table, column, direction) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row.cells[column]) }));
  const numeric = rows.every(({ key }) => key.isEmpty || !Number.isNaN(key.number));
  rows.sort((a, b) => a.key.isEmpty - b.key.isEmpty || direction * (numeric
    ? (a.key.number - b.key.number) || 0
    : a.key.text.localeCompare(b.key.text, undefined, { numeric: true })));
  body.append(...rows.map(({ row }) => row));
}
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Of numbers one wants the largest first, of names the first.
      const first = head.classList.contains("number") ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort");
      const now = order === null ? first : order === "ascending" ? "descending" : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", now);
      sortBy(table, column, now === "ascending" ? 1 : -1);
    });
  });
}

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
