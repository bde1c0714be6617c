// Filters of the matrix. Without this script the table is there in full.
"use strict";
(() => {
  const form = document.getElementById("filters");
  const table = document.getElementById("matrix");
  const shown = document.getElementById("shown");
  const rows = Array.from(table.tBodies[0].rows, (row) => ({
    row,
    states: Array.from(row.cells).slice(1).map((cell) => cell.dataset.state || ""),
  }));
  const style = document.head.appendChild(document.createElement("style"));

  const apply = () => {
    const asked = Object.fromEntries(new FormData(form));
    const text = asked.text.trim().toLowerCase();
    const column = asked.device;
    style.textContent = column === "" ? "" : `#matrix [data-column]:not([data-column="${column}"]) { display: none; }`;
    let count = 0;
    for (const { row, states } of rows) {
      const seen = column === "" ? states : [states[Number(column)]];
      const show =
        row.dataset.text.includes(text) &&
        (asked.state === "" ? column === "" || seen[0] !== "" : seen.includes(asked.state)) &&
        (asked.feature === "" || row.dataset.features.includes(`|${asked.feature}|`)) &&
        (asked.library === "" || row.dataset.libraries.includes(`|${asked.library}|`));
      row.hidden = !show;
      count += show;
    }
    shown.textContent = `${count} of ${rows.length} programs`;
    const kept = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== ""));
    history.replaceState(null, "", kept.size ? `#?${kept}` : location.pathname);
  };

  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault(); // the form's own would come after this
    for (const field of form.elements) {
      if (field.name) field.value = "";
    }
    apply();
  });
  if (location.hash.startsWith("#?")) {
    for (const [name, value] of new URLSearchParams(location.hash.slice(2))) {
      if (form.elements[name]) form.elements[name].value = value;
    }
  }
  apply();
})();
