// Every table sorts by the column whose header is pressed, and the other way round when it is pressed again.
"use strict";

const EMPTY = /^(–|nan)?$/;
const texts = new Intl.Collator(undefined, { numeric: true }); // k=8 before k=16
const number = (text) => parseFloat(text.replaceAll(",", "").replace("inf", "Infinity")); // of the start of a cell

function sort(table, column) {
  const headers = [...table.tHead.rows[0].cells];
  const direction = headers[column].ariaSort === "ascending" ? "descending" : "ascending";
  headers.forEach((header) => header.removeAttribute("aria-sort"));
  headers[column].setAttribute("aria-sort", direction);

  const text = (row) => row.cells[column].textContent.trim();
  const [body] = table.tBodies;
  const filled = [...body.rows].filter((row) => !EMPTY.test(text(row)));
  const empty = [...body.rows].filter((row) => EMPTY.test(text(row))); // last in both directions
  const compare = filled.some((row) => isNaN(number(text(row)))) ? texts.compare : (a, b) => number(a) - number(b);
  const sign = direction === "ascending" ? 1 : -1;
  filled.sort((a, b) => sign * compare(text(a), text(b)));
  body.append(...filled, ...empty);
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button"); // also takes Enter and Space
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(table, column));
    header.append(button);
  });
}
