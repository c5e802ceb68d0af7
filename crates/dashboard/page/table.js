// A resource's objects, live, as the server's own table shows them: every kind, custom ones included.
import { TABLE, follow, path } from "./api.js";
import { age, h, mood, note } from "./page.js";

export const link = (resource, namespace, name, tab = "") =>
  `#/object/${resource.id}/${encodeURIComponent(namespace || "-")}/${encodeURIComponent(name)}${tab && `/${tab}`}`;

export function showTable(view, resource, namespace, signal) {
  const rows = new Map();
  let columns = [], order = null, isDown = false, words = "";
  const head = h("tr"), body = h("tbody");
  const count = h("span", { class: "faint" });
  const filter = h("input", { placeholder: "Filter", "aria-label": "Filter", oninput: () => { words = filter.value.toLowerCase(); draw(); } });
  const wide = h("input", { type: "checkbox", onchange: () => begin() });
  view.replaceChildren(
    h("div", { class: "bar" }, h("h2", {}, title(resource)), count, h("span", { class: "grow" }),
      h("label", {}, wide, " all columns"), filter),
    h("div", { class: "box" }, h("table", {}, h("thead", {}, head), body)));

  const isShown = (column) => wide.checked || column.priority === 0;
  const hasNamespace = resource.namespaced && !namespace;

  function begin() {
    const shown = columns.map((column, at) => ({ ...column, at })).filter(isShown);
    head.replaceChildren(
      ...(hasNamespace ? [heading("Namespace", "namespace")] : []),
      ...shown.map((column) => heading(column.name, column.at)));
    draw();
  }

  function heading(name, by) {
    const mark = order === by ? (isDown ? " ↓" : " ↑") : "";
    return h("th", { onclick: () => { isDown = order === by && !isDown; order = by; begin(); } }, name + mark);
  }

  const ageOf = (row) => Date.parse(row.object.metadata.creationTimestamp) || 0;
  function sorted() {
    const all = [...rows.values()];
    const place = (row) => `${row.object.metadata.namespace ?? ""}/${row.object.metadata.name}`;
    const value = (row) => order === "namespace" ? row.object.metadata.namespace : row.cells[order];
    const isAge = typeof order === "number" && columns[order]?.name === "Age";
    all.sort((a, b) => {
      if (order === null) return place(a).localeCompare(place(b));
      const [x, y] = isAge ? [-ageOf(a), -ageOf(b)] : [value(a), value(b)];
      const both = typeof x === "number" && typeof y === "number" ? x - y
        : String(x ?? "").localeCompare(String(y ?? ""), undefined, { numeric: true });
      return (isDown ? -both : both) || place(a).localeCompare(place(b));
    });
    return all;
  }

  // Many changes at once are drawn once.
  let isDue = false;
  function draw() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => { isDue = false; drawNow(); });
  }

  function drawNow() {
    const all = sorted();
    const fits = (row) => !words || [row.object.metadata.namespace ?? "", ...row.cells].join(" ").toLowerCase().includes(words);
    const shown = all.filter(fits);
    count.textContent = shown.length === all.length ? `${all.length}` : `${shown.length} of ${all.length}`;
    // A page of thousands is of no use to anybody: the filter is.
    body.replaceChildren(...shown.slice(0, 1000).map(line));
    if (!shown.length) body.replaceChildren(h("tr", {}, h("td", { class: "faint", colspan: "20" }, "Nothing here.")));
  }

  function line(row) {
    const { namespace: where, name, creationTimestamp } = row.object.metadata;
    const cells = columns.map((column, at) => ({ column, at })).filter(({ column }) => isShown(column)).map(({ column, at }) => {
      const value = column.name === "Age" && creationTimestamp ? age(creationTimestamp) : row.cells[at];
      const shown = typeof value === "object" ? JSON.stringify(value) : String(value ?? "");
      if (column.name === "Name" || at === 0 && column.format === "name") {
        return h("td", { class: "narrow" }, h("a", { href: link(resource, where, name) }, shown));
      }
      return h("td", { class: mood(shown) }, shown);
    });
    return h("tr", {}, hasNamespace && h("td", { class: "narrow" }, where), cells);
  }

  const put = (row) => rows.set(row.object.metadata.uid ?? `${row.object.metadata.namespace}/${row.object.metadata.name}`, row);
  follow(path(resource, namespace), {
    accept: TABLE, signal,
    onList(list) {
      columns = list.columnDefinitions ?? [];
      rows.clear();
      (list.rows ?? []).forEach(put);
      begin();
    },
    onEvent({ type, object }) {
      for (const row of object.rows ?? []) {
        if (type === "DELETED") rows.delete(row.object.metadata.uid);
        else put(row);
      }
      draw();
    },
    onTrouble(error) { count.textContent = error.message; note(error.message, true); },
  });
  const ticking = setInterval(draw, 10000);
  signal.addEventListener("abort", () => clearInterval(ticking));
}

const title = (resource) => resource.group ? `${resource.kind} · ${resource.group}/${resource.version}` : resource.kind;
