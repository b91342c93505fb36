// Making elements. Everything that comes from a task goes in as text, never as markup.

// What colours a terminal, renames its window or moves its cursor: a reader has no use for it.
const SEQUENCES = new RegExp(
  [
    "(?:\\x1b\\[|\\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]",
    "\\x1b\\][^\\x07\\x1b\\n]{0,2000}(?:\\x07|\\x1b\\\\)?",
    "\\x1b[PX^_][^\\x1b\\n]{0,2000}(?:\\x1b\\\\)?",
    "\\x1b[ -/]{0,4}[0-~]",
  ].join("|"),
  "g",
);
const SVG = "http://www.w3.org/2000/svg";

/** Text without the sequences that only a terminal obeys. */
export const plain = (text) => text.replace(SEQUENCES, "");

/** An element with attributes, listeners (`on…`) and children; a string becomes a text node. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : plain(String(value)));
  }
  const given = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  node.append(...given.map((child) => (typeof child === "string" ? plain(child) : child)));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** A short notice; what to do about it below. */
export function toast(message, remedy = "") {
  const note = el("div", { class: "toast" }, el("p", {}, message), remedy ? el("p", { class: "dim" }, remedy) : null);
  const close = el("button", { type: "button", class: "round", "aria-label": "Close", onclick: () => note.remove() }, "×");
  note.append(close);
  const toasts = byId("toasts");
  while (toasts.children.length > 3) toasts.firstChild.remove();
  toasts.append(note);
  setTimeout(() => note.remove(), 12000);
}
