// Draws every chart of the page. Colours of text come from the page (currentColor), so dark mode and print need no more.
for (const place of document.querySelectorAll("[data-chart]")) {
  const spec = JSON.parse(document.getElementById(place.dataset.chart).textContent);
  const actions = { export: { svg: true, png: true }, source: false, compiled: false, editor: false };
  vegaEmbed(place, spec, { renderer: "svg", actions, downloadFileName: place.dataset.chart }).catch((error) => {
    place.textContent = "This chart could not be drawn: " + error.message;
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
