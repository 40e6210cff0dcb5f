"use strict";
(() => {
  const STEP = 50;
  const count = (number) => number.toLocaleString("en");
  const root = document.documentElement;
  for (const part of document.querySelectorAll(".only-script")) part.hidden = false;

  document.getElementById("theme").addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  });

  // Letters without accents and case, so that a search finds what is meant.
  const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const matcher = (query) => {
    const words = plain(query).split(/\s+/).filter(Boolean);
    return (text) => words.every((word) => text.includes(word));
  };

  const table = document.getElementById("sample-table");
  if (table) {
    const body = table.tBodies[0];
    const words = (row) => Array.from(row.querySelectorAll("td.label, td.caption, td.place"), (cell) => cell.textContent).join(" ");
    const rows = Array.from(body.rows, (row) => ({ row, text: plain(words(row)) }));
    const search = document.getElementById("search");
    const found = document.getElementById("found");
    const more = document.getElementById("more");
    let limit = STEP;

    const show = () => {
      const matches = matcher(search.value);
      let number = 0;
      for (const entry of rows) {
        const match = matches(entry.text);
        number += match;
        entry.row.hidden = !match || number > limit;
      }
      found.textContent = search.value.trim() ? `${count(number)} of ${count(rows.length)} samples` : `${count(rows.length)} samples`;
      more.hidden = number <= limit;
      more.textContent = `Show ${Math.min(STEP, number - limit)} more of ${count(number)}`;
    };

    const value = (entry, column) => {
      const cell = entry.row.cells[column];
      if (!("value" in cell.dataset)) return cell.textContent.trim().toLowerCase();
      return cell.dataset.value === "" ? NaN : Number(cell.dataset.value);
    };
    const compare = (first, second) => {
      if (typeof first === "string") return first.localeCompare(second);
      if (Number.isNaN(first) || Number.isNaN(second)) return Number.isNaN(first) - Number.isNaN(second);
      return first - second;
    };
    const sort = (header) => {
      const column = header.cellIndex;
      const rising = header.getAttribute("aria-sort") === "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const unknown = (entry) => Number.isNaN(value(entry, column));
      rows.sort((a, b) => {
        if (unknown(a) || unknown(b)) return unknown(a) - unknown(b);
        const order = compare(value(a, column), value(b, column));
        return rising ? order : -order;
      });
      body.append(...rows.map((entry) => entry.row));
      show();
    };

    for (const header of table.tHead.querySelectorAll("th[data-sort]"))
      header.querySelector("button").addEventListener("click", () => sort(header));
    search.addEventListener("input", () => { limit = STEP; show(); });
    more.addEventListener("click", () => { limit += STEP; show(); });
    show();
  }

  const anchorSearch = document.getElementById("anchor-search");
  if (anchorSearch) {
    const anchors = Array.from(document.querySelectorAll(".anchor"), (node) => ({
      node, text: plain(node.querySelector("summary").textContent),
    }));
    anchorSearch.addEventListener("input", () => {
      const matches = matcher(anchorSearch.value);
      for (const anchor of anchors) anchor.node.hidden = !matches(anchor.text);
    });
  }

  const card = document.getElementById("map-sample");
  if (card) {
    const look = (event) => {
      const row = event.target.dataset && event.target.dataset.row;
      const source = row && document.getElementById(`s${row}`);
      if (!source) return;
      for (const other of document.querySelectorAll(".map .chosen")) other.classList.remove("chosen");
      for (const same of document.querySelectorAll(`.map [data-row="${row}"]`)) same.classList.add("chosen");
      const name = source.querySelector("td.caption bdi, td.caption span") || source.querySelector("td.place bdi:last-of-type");
      const label = source.querySelector("td.label bdi");
      const text = document.createElement("span");
      if (label) text.append(label.cloneNode(true), " · ");
      text.append(
        name.cloneNode(true), document.createElement("br"),
        Array.from(source.querySelectorAll("td[data-side]"), (cell) => `${cell.dataset.side} τ ${cell.textContent}`).join(" · "),
      );
      const picture = source.querySelector("td.thumb-cell > *");
      card.replaceChildren(...(picture ? [picture.cloneNode(true)] : []), text);
    };
    for (const map of document.querySelectorAll(".map")) {
      map.addEventListener("pointerover", look);
      map.addEventListener("click", look);
    }
  }
})();
