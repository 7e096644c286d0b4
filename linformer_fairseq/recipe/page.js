// Every table sorts by the column whose header is pressed, and the other way round when it is pressed again.
"use strict";

const NOTHING = /^(?:[-–—]|nan)?$/i;
// a number at the start of a cell, with thousands separators; what follows (%, ±, an interval) does not count
const NUMBER = /^[<>≈~]?\s*([+−-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?|inf))(?!\w|[.,:/-]\d)/i;
const texts = new Intl.Collator(undefined, { numeric: true }); // k=8 before k=16

function value(text) {
  return Number(NUMBER.exec(text)[1].replaceAll(",", "").replace("−", "-").replace(/inf/i, "Infinity"));
}

function sort(table, column) {
  const headers = [...table.tHead.rows[0].cells];
  const sign = headers[column].getAttribute("aria-sort") === "ascending" ? -1 : 1;
  headers.forEach((header) => header.removeAttribute("aria-sort"));
  headers[column].setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");

  const rows = [...(table.tBodies[0]?.rows ?? [])];
  const text = new Map(rows.map((row) => [row, row.cells[column].textContent.trim()]));
  const empty = rows.filter((row) => NOTHING.test(text.get(row)));
  const filled = rows.filter((row) => !NOTHING.test(text.get(row)));
  const compare = filled.every((row) => NUMBER.test(text.get(row)))
    ? (a, b) => value(a) - value(b)
    : texts.compare;
  filled.sort((a, b) => sign * compare(text.get(a), text.get(b)));
  table.tBodies[0]?.append(...filled, ...empty); // what there is nothing of stays last, whatever the direction
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button"); // takes the keyboard's Enter and Space by itself
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(table, column));
    header.append(button);
  });
}
