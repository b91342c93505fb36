// What a task waits for and what waits for it, as a small drawing.

import { el, svg } from "./dom.js";
import { statusName } from "./format.js";

const WIDE = 190;
const HIGH = 38;
const GAP = 10;
const BETWEEN = 44;
const MOST = 8; // on each side; the rest is counted
const LETTERS = 24;

/** `detail` is of the task in the middle; `open` shows another one. */
export function graph(detail, open) {
  const parents = detail.parents.map((link) => ({ id: link.parent, open: link.open }));
  const children = detail.children.map((link) => ({ id: link.child, open: link.open }));
  if (!parents.length && !children.length) return null;
  const rows = Math.max(1, shown(parents).length, shown(children).length);
  const height = rows * (HIGH + GAP) - GAP;
  const columns = [parents, [{ id: detail.task.id, self: true }], children].filter((side) => side.length);
  const width = columns.length * WIDE + (columns.length - 1) * BETWEEN;
  const drawing = svg("svg", { viewBox: `-2 -2 ${width + 4} ${height + 4}`, class: "graph", role: "group", "aria-label": "Dependencies" });
  const places = columns.map((side, column) => placed(shown(side), column, height));
  for (let column = 1; column < places.length; column += 1) {
    for (const from of places[column - 1]) for (const to of places[column]) drawing.append(edge(from, to));
  }
  for (const place of places.flat()) drawing.append(box(place, detail, open));
  return el(
    "div",
    {},
    el("div", { class: "graph-frame" }, drawing),
    note("more that it waits for", parents),
    note("more that wait for it", children),
  );
}

const shown = (side) => side.slice(0, MOST);

function note(text, side) {
  return side.length > MOST ? el("p", { class: "dim" }, `${side.length - MOST} ${text}`) : null;
}

function placed(side, column, height) {
  const used = side.length * (HIGH + GAP) - GAP;
  return side.map((node, row) => ({
    ...node,
    x: column * (WIDE + BETWEEN),
    y: (height - used) / 2 + row * (HIGH + GAP),
  }));
}

function edge(from, to) {
  const [x1, y1, x2, y2] = [from.x + WIDE, from.y + HIGH / 2, to.x, to.y + HIGH / 2];
  const bend = BETWEEN / 2;
  const waits = (from.self ? to : from).open;
  return svg("path", {
    d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
    class: waits ? "edge waits" : "edge",
  });
}

function box(place, detail, open) {
  const known = place.self ? detail.task : (detail.names[place.id] ?? { title: place.id, status: "" });
  const title = known.title.length > LETTERS ? `${known.title.slice(0, LETTERS - 1)}…` : known.title;
  const go = () => place.self || open(place.id);
  return svg(
    "g",
    {
      class: place.self ? "node self" : "node",
      "data-status": known.status,
      "data-id": place.id,
      transform: `translate(${place.x} ${place.y})`,
      role: place.self ? "img" : "link",
      tabindex: place.self ? -1 : 0,
      "aria-label": `${known.title}, ${statusName(known.status)}`,
      onclick: go,
      onkeydown: (event) => event.key === "Enter" && go(),
    },
    svg("rect", { width: WIDE, height: HIGH, rx: 8 }),
    svg("circle", { cx: 14, cy: HIGH / 2, r: 4, class: "dot" }),
    svg("text", { x: 26, y: 16 }, title),
    svg("text", { x: 26, y: 30, class: "small" }, `${place.id} · ${statusName(known.status)}`),
    svg("title", {}, known.title),
  );
}
