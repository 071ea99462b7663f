// A form, a question to the service, and its answers. Whatever is typed or answered becomes text, never markup.
const tasks = JSON.parse(document.getElementById("tasks").textContent);
const byId = (id) => document.getElementById(id);
const choice = byId("task");
const task = () => tasks.find((one) => one.name === (choice ? choice.value : tasks[0].name));
const ASKED = {
  text: "Texts, one a line",
  pair: "Pairs of texts, one a line, with a tab or | between the two",
  tokens: "Sentences, one a line, with spaces between the words",
  vector: "Vectors, one a line, with spaces or commas between the numbers",
};
const SHOWN_LABELS = 10;

function describe() {
  byId("ask").textContent = ASKED[task().form];
  const address = location.origin + location.pathname + "predict";
  const body = task().example.replaceAll("'", "'\\''");
  byId("curl").textContent = "curl " + address + " \\\n  -H 'Content-Type: application/json' \\\n  -d '" + body + "'";
}

function inputOf(line) {
  const form = task().form;
  if (form === "pair") {
    const texts = line.split(line.includes("\t") ? "\t" : "|").map((text) => text.trim());
    return texts.length === 2 ? { text: texts[0], pair: texts[1] } : texts;
  }
  if (form === "tokens") return line.split(/\s+/).filter(Boolean);
  if (form === "vector") return line.split(/[\s,;]+/).filter(Boolean).map(Number);
  return line;
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}

const percent = (value) => (100 * value).toFixed(1) + "%";

// The most probable labels first, and in any case those that were chosen.
function bars(probabilities, chosen) {
  const list = element("dl", undefined, "bars");
  const sorted = Object.entries(probabilities).sort((one, other) => other[1] - one[1]);
  sorted.forEach(([label, probability], place) => {
    const isChosen = chosen.includes(label);
    if (place >= SHOWN_LABELS && !isChosen) return;
    const meter = element("meter");
    meter.min = 0;
    meter.max = 1;
    meter.value = probability;
    meter.setAttribute("aria-label", label);
    const middle = element("dd");
    middle.append(meter);
    list.append(element("dt", label, isChosen ? "chosen" : ""), middle, element("dd", percent(probability)));
  });
  return list;
}

function words(tokens, answer) {
  const list = element("ul", undefined, "words");
  tokens.forEach((token, place) => {
    const label = String(answer.labels[place]);
    const probability = answer.probabilities[place][label];
    const isOutside = label === "O" || label === "_";
    const item = element("li", token, isOutside ? "" : "tagged");
    item.append(element("small", probability === undefined ? label : label + " " + percent(probability)));
    list.append(item);
  });
  return list;
}

function shown(line, input, answer) {
  const box = element("article", undefined, "answer");
  box.append(element("p", line));
  if ("value" in answer) box.append(element("strong", answer.value.toPrecision(6)));
  else if (task().form === "tokens" && task().kind === "tagging") box.append(words(input, answer));
  else box.append(bars(answer.probabilities, ("labels" in answer ? answer.labels : [answer.label]).map(String)));
  return box;
}

async function ask() {
  const lines = byId("inputs").value.split("\n").filter((line) => line.trim());
  if (!lines.length) return;
  const inputs = lines.map(inputOf);
  const question = { task: task().name, [task().key]: inputs };
  if (task().kind !== "regression") question.probabilities = true;
  const began = performance.now();
  const response = await fetch("predict", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  byId("results").replaceChildren(...answer.predictions.map((one, place) => shown(lines[place], inputs[place], one)));
  byId("took").textContent = Math.round(performance.now() - began) + " ms";
}

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("send").disabled = true;
  byId("problem").hidden = true;
  byId("took").textContent = "";
  try {
    await ask();
  } catch (error) {
    byId("results").replaceChildren();
    byId("problem").textContent = error instanceof TypeError ? "The service cannot be reached." : error.message;
    byId("problem").hidden = false;
  } finally {
    byId("send").disabled = false;
  }
});
byId("inputs").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
});
if (choice) choice.addEventListener("change", () => { byId("results").replaceChildren(); describe(); });
describe();
