// What a person does: moves, and a new task. Each asks in the dialog for what the move needs.

import { path, post } from "./api.js";
import { byId, el, toast } from "./dom.js";
import { words } from "./format.js";

const REASON = { name: "reason", label: "Reason", optional: true };
const MOVES = {
  complete: { label: "Complete", fields: [{ name: "result", label: "What came out of it", long: true, optional: true }] },
  unblock: { label: "Let it go on", fields: [{ ...REASON, label: "Answer or reason" }] },
  request_changes: { label: "Request changes", fields: [{ name: "reason", label: "What is to change", long: true }] },
  retry: { label: "Run again", fields: [REASON] },
  specify: { label: "Specified", fields: [REASON] },
  block: {
    label: "Block",
    fields: [
      { name: "question", label: "What shall a person answer?" },
      { name: "options", label: "Possible answers, one a line", long: true, list: true, optional: true },
      { name: "waiting_for", label: "Who is asked", optional: true },
    ],
  },
  schedule: { label: "Later", fields: [{ name: "in_s", label: "In how many minutes", number: 60, unit: 60 }, REASON] },
  rethink: { label: "Back to triage", fields: [REASON] },
  archive: { label: "Archive", fields: [] },
  cancel: { label: "Cancel", danger: true, fields: [REASON] },
};
const LABELS = {
  review: { complete: "Approve" },
  handoff_failed: { complete: "Accept the work" },
};
const FIRST = {
  triage: "specify",
  review: "complete",
  handoff_failed: "complete",
  waiting_human: "unblock",
  failed: "retry",
  waiting_system: "unblock",
};

/** Buttons for everything that may be done with the task now. */
export function actions(task, moves) {
  const order = Object.keys(MOVES).filter((move) => moves.includes(move));
  const first = FIRST[task.status];
  order.sort((a, b) => (b === first) - (a === first));
  const buttons = order.map((move) => {
    const label = LABELS[task.status]?.[move] ?? MOVES[move].label;
    const look = move === first ? "primary" : MOVES[move].danger ? "danger" : "";
    return el("button", { type: "button", class: look, "data-move": move, onclick: () => ask(task, move, label) }, label);
  });
  if (task.status === "handoff_failed") {
    const report = () => run(task.id, "retry", { report_only: true });
    buttons.splice(1, 0, el("button", { type: "button", "data-move": "report", onclick: report }, "Ask for the report only"));
  }
  if (task.status === "running") {
    buttons.unshift(el("button", { type: "button", class: "primary", "data-move": "tell", onclick: () => tell(task) }, "Tell the worker"));
  }
  if (task.status !== "running" && !["done", "cancelled", "archived"].includes(task.status)) {
    buttons.push(el("button", { type: "button", "data-move": "assign", onclick: () => assign(task) }, "Assign"));
  }
  return buttons;
}

/** Do it, and say so when it is refused. True when it was done. */
export async function run(id, verb, body) {
  try {
    await post(path("tasks", id, verb), body);
    return true;
  } catch (error) {
    toast(error.message, error.remedy);
    return false;
  }
}

function ask(task, move, label) {
  const { fields, danger } = MOVES[move];
  if (!fields.length) return run(task.id, move, {});
  return dialog(label, task.title, fields, label, async (values) => {
    if (values.result === "") delete values.result;
    return run(task.id, move, values);
  }, danger);
}

function tell(task) {
  const field = { name: "body", label: "The worker gets it with the answer to what it says next", long: true };
  return dialog("Tell the worker", task.title, [field], "Tell", (values) => run(task.id, "tell", values));
}

function assign(task) {
  const field = { name: "assignee", label: "Profile whose workers run it", list_id: "profiles", value: task.assignee, optional: true };
  return dialog("Assign", task.title, [field], "Assign", (values) => run(task.id, "assign", values));
}

/** A new task; `done` gets its id. */
export function create(board, done) {
  const fields = [
    { name: "title", label: "Title", max: 500 },
    { name: "body", label: "What is to be done", long: true, optional: true },
    { name: "assignee", label: "Assignee", list_id: "profiles", optional: true },
    { name: "priority", label: "Priority", number: 0 },
    { name: "parents", label: "Waits for (ids, one a line)", list: true, long: true, rows: 2, optional: true },
    { name: "workspace_kind", label: "Workspace", choice: ["scratch", "dir", "worktree"] },
    { name: "workspace", label: "Path of the directory or repository (not for scratch)", optional: true },
    { name: "triage", label: "Wait until a person has said what to do", flag: true },
    { name: "reviewer", label: "Who is asked to review it", more: true, optional: true },
    { name: "checks", label: "Commands that must succeed before it is done, one a line", list: true, long: true, rows: 2, more: true, optional: true },
    { name: "environment", label: "Environment it runs on, by name", more: true, optional: true },
    { name: "pool", label: "Pool, which a cap can bound", more: true, optional: true },
    { name: "max_attempts", label: "Runs, at most", number: 3, more: true },
    { name: "max_runtime_s", label: "Minutes of one run, at most", number: "", unit: 60, more: true, optional: true },
    { name: "max_tokens", label: "Tokens of all its runs, at most", number: "", more: true, optional: true },
    { name: "max_cost", label: "Dollars of all its runs, at most", number: "", unit: 1e6, more: true, optional: true },
    { name: "in_s", label: "Not before so many minutes from now", number: "", unit: 60, more: true, optional: true },
  ];
  const key = crypto.randomUUID(); // pressed twice, it is made once
  return dialog("New task", `on ${board}`, fields, "Create", async (values) => {
    try {
      const { task } = await post(path("boards", board, "tasks"), { ...values, key });
      done(task.id);
      return true;
    } catch (error) {
      toast(error.message, error.remedy);
      return false;
    }
  });
}

export function dialog(title, about, fields, label, submit, danger = false) {
  const box = byId("dialog");
  const inputs = fields.map((field) => [field, input(field)]);
  const close = () => box.close();
  const send = el("button", { type: "submit", class: danger ? "danger" : "primary" }, label);
  const form = el(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        send.disabled = true;
        const values = Object.fromEntries(inputs.map(([field, node]) => [field.name, value(field, node)]));
        const done = await submit(values).finally(() => (send.disabled = false));
        if (done) close();
      },
    },
    el("h2", { id: "dialog-title" }, title),
    el("p", { class: "dim" }, about),
    labels(inputs.filter(([field]) => !field.more)),
    fields.some((field) => field.more) && el("details", {}, el("summary", {}, "More"), labels(inputs.filter(([field]) => field.more))),
    el("div", { class: "buttons" }, el("button", { type: "button", onclick: close }, "Close"), send),
  );
  box.replaceChildren(form);
  box.showModal();
  inputs[0]?.[1].focus();
}

function labels(inputs) {
  return inputs.map(([field, node]) => el("label", { class: field.flag ? "flag" : "" }, el("span", {}, field.label), node));
}

function input(field) {
  const shared = { name: field.name, required: !field.optional && !field.flag, "aria-label": words(field.label) };
  if (field.long) return el("textarea", { ...shared, rows: field.rows ?? 4 });
  if (field.choice) return el("select", shared, field.choice.map((one) => el("option", {}, one)));
  if (field.flag) return el("input", { ...shared, type: "checkbox" });
  if ("number" in field) return el("input", { ...shared, type: "number", value: field.number, step: field.unit ? "any" : "1" });
  return el("input", { ...shared, type: "text", list: field.list_id, value: field.value, maxlength: field.max, autocomplete: "off" });
}

function value(field, node) {
  if (field.flag) return node.checked;
  if ("number" in field) return node.value === "" ? undefined : Math.round(Number(node.value) * (field.unit ?? 1));
  if (field.list) return node.value.split("\n").map((one) => one.trim()).filter(Boolean);
  return node.value;
}
