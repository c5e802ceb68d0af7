// What views are made of.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  // Texts are never read as HTML: what objects say may come from anybody.
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function note(message, isBad = false) {
  const box = h("div", { class: isBad ? "bad" : "" }, String(message));
  document.getElementById("notes").append(box);
  setTimeout(() => box.remove(), isBad ? 12000 : 5000);
}

// Asks before something is done that cannot be taken back; the answer is what was typed, or null.
export function question(text, { action = "OK", value = null } = {}) {
  return new Promise((resolve) => {
    const input = value === null ? null : h("input", { value: String(value), size: 12 });
    const dialog = h("dialog", {},
      h("p", {}, text), input,
      h("p", { class: "bar" },
        h("button", { class: "first", onclick: () => close(input ? input.value : true) }, action),
        h("button", { onclick: () => close(null) }, "Cancel")));
    const close = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    dialog.addEventListener("cancel", () => close(null));
    document.body.append(dialog);
    dialog.showModal();
  });
}

// As kubectl shows ages.
export function age(since, now = Date.now()) {
  const seconds = Math.max(0, Math.floor((now - Date.parse(since)) / 1000));
  if (Number.isNaN(seconds)) return "<unknown>";
  const minutes = Math.floor(seconds / 60), hours = Math.floor(seconds / 3600), days = Math.floor(hours / 24);
  if (seconds < 120) return `${seconds}s`;
  if (minutes < 10) return seconds % 60 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  if (days < 8) return hours % 24 ? `${days}d${hours % 24}h` : `${days}d`;
  if (days < 365 * 2) return `${days}d`;
  return `${Math.floor(days / 365)}y${days % 365}d`;
}

const GOOD = /^(Running|Ready|Active|Bound|Completed|Succeeded|Available|True|Normal|Established|Approved.*|Complete)$/;
const WAIT = /^(Pending|ContainerCreating|PodInitializing|Init:.*|Terminating|Released|Unknown|SchedulingGated|Suspended|.*SchedulingDisabled)$/;
const BAD = /^(.*Error.*|Err.*|.*BackOff|Failed|Evicted|OOMKilled|NotReady.*|Lost|Warning|Denied|ImageInspect.*|InvalidImageName|FailureTarget)$/;

// How a word of a status looks; `1/2` is not yet what it is to be.
export function mood(word) {
  const share = /^(\d+)\/(\d+)$/.exec(word);
  if (share) return share[1] === share[2] ? "" : "wait";
  if (BAD.test(word)) return "bad";
  if (WAIT.test(word)) return "wait";
  return GOOD.test(word) ? "good" : "";
}

// `12Mi`, `250m`, `1.5G` as a number.
const UNITS = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };
export function quantity(text) {
  const parts = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)$/.exec(String(text ?? "0"));
  return parts ? Number(parts[1]) * (UNITS[parts[2]] ?? 1) : 0;
}

export function bytes(count) {
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (count < 1024 || unit === "TiB") return `${count < 10 && unit !== "B" ? count.toFixed(1) : Math.round(count)} ${unit}`;
    count /= 1024;
  }
}

export const chips = (all) => Object.entries(all ?? {}).map(([name, value]) =>
  h("span", { class: "chip" }, value === "" ? name : `${name}=${value}`));

export const pairs = (all) => h("dl", { class: "pairs" }, all.filter((pair) => pair).map(([name, value]) =>
  [h("dt", {}, name), h("dd", {}, value)]));

export function grid(columns, rows) {
  return h("div", { class: "box" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", {}, name)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) =>
      h("td", { class: typeof cell === "string" ? mood(cell) : "" }, cell)))))));
}
