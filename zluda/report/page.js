"use strict";
// What the page can do beyond showing itself: sort tables, copy commands, open what a link leads into.

function value(row, column) {
  const cell = row.cells[column];
  return cell.dataset.sort ?? cell.textContent.trim();
}

function compare(one, other) {
  if (one === "" || other === "") return (one === "") - (other === ""); // nothing comes last
  const difference = Number(one) - Number(other);
  return Number.isNaN(difference) ? one.localeCompare(other, undefined, { numeric: true }) : difference;
}

function sort(table, column, direction) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row, at) => ({ row, at, key: value(row, column) }));
  const sign = direction === "descending" ? -1 : 1;
  rows.sort((a, b) => {
    const order = compare(a.key, b.key);
    return (a.key === "" || b.key === "" ? order : sign * order) || a.at - b.at;
  });
  body.append(...rows.map((one) => one.row));
  for (const [at, head] of Array.from(table.tHead.rows[0].cells).entries()) {
    head.setAttribute("aria-sort", at === column ? direction : "none");
  }
}

for (const [number, table] of document.querySelectorAll("table.sortable").entries()) {
  const heads = Array.from(table.tHead.rows[0].cells);
  const choice = document.createElement("select");
  choice.append(new Option("call order", ""));
  for (const [column, head] of heads.entries()) {
    const name = head.textContent.trim();
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "ascending";
      sort(table, column, up ? "descending" : "ascending");
    });
    head.append(button);
    head.setAttribute("aria-sort", "none");
    choice.append(new Option(`${name}, ascending`, `${column} ascending`));
    choice.append(new Option(`${name}, descending`, `${column} descending`));
  }
  const original = Array.from(table.tBodies[0].rows);
  choice.id = `sort-by-${number}`;
  choice.addEventListener("change", () => {
    const [column, direction] = choice.value.split(" ");
    if (direction) return sort(table, Number(column), direction);
    table.tBodies[0].append(...original);
    heads.forEach((head) => head.setAttribute("aria-sort", "none"));
  });
  const label = document.createElement("label");
  label.htmlFor = choice.id;
  label.textContent = "Sort by ";
  const line = document.createElement("p");
  line.className = "sortby";
  line.append(label, choice);
  table.parentElement.before(line);
}

async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code); // for the reader's own copying
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

for (const code of document.querySelectorAll(".command code")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy: ${code.textContent}`);
  button.addEventListener("click", () => copy(code, button));
  code.after(button);
}

for (const row of document.querySelectorAll(".lines .guilty")) {
  const frame = row.closest(".scroll");
  frame.scrollTop += row.getBoundingClientRect().top - frame.getBoundingClientRect().top - frame.clientHeight / 3;
}

function reveal() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) {
    if (at.tagName === "DETAILS") at.open = true;
  }
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", reveal);
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="#"]');
  if (link && link.hash === location.hash) reveal(); // the same place again is no change
});
reveal();
