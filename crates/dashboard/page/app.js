// The frame: a menu of what the server has, and one view at a time, named behind the `#`.
import { discover, json } from "./api.js";
import { h, note } from "./page.js";
import { showObject } from "./object.js";
import { showOverview } from "./overview.js";
import { showTable } from "./table.js";

const MENU = [
  ["Workloads", ["core/pods", "apps/deployments", "apps/statefulsets", "apps/daemonsets", "apps/replicasets", "batch/jobs", "batch/cronjobs"]],
  ["Network", ["core/services", "networking.k8s.io/ingresses", "gateway.networking.k8s.io/gateways", "gateway.networking.k8s.io/httproutes", "discovery.k8s.io/endpointslices", "networking.k8s.io/networkpolicies"]],
  ["Configuration", ["core/configmaps", "core/secrets", "autoscaling/horizontalpodautoscalers", "policy/poddisruptionbudgets", "core/resourcequotas"]],
  ["Storage", ["core/persistentvolumeclaims", "core/persistentvolumes", "storage.k8s.io/storageclasses"]],
  ["Cluster", ["core/nodes", "core/namespaces", "core/events", "apiextensions.k8s.io/customresourcedefinitions"]],
];

const world = { resources: new Map(), namespaces: [], namespace: sessionStorage.getItem("namespace") ?? "" };
const view = document.getElementById("view");
let showing = new AbortController();

function drawMenu(here) {
  const item = (resource) => h("a", { href: `#/list/${resource.id}`, class: resource.id === here ? "here" : "" }, plural(resource.kind));
  const listed = new Set(MENU.flatMap(([, ids]) => ids));
  const groups = MENU.map(([name, ids]) => [h("h2", {}, name), ids.map((id) => world.resources.get(id)).filter(Boolean).map(item)]);
  const others = [...world.resources.values()].filter((one) => !listed.has(one.id)).sort((a, b) => a.kind.localeCompare(b.kind));
  const choice = h("select", { "aria-label": "Namespace", onchange: () => {
    world.namespace = choice.value;
    sessionStorage.setItem("namespace", world.namespace);
    show();
  } }, h("option", { value: "" }, "All namespaces"), world.namespaces.map((name) => h("option", { value: name, selected: name === world.namespace }, name)));
  document.getElementById("menu").replaceChildren(
    h("h1", {}, h("img", { src: "icon.svg", alt: "" }), "Skiff"), choice,
    h("h2", {}, ""), h("a", { href: "#/overview", class: here === "overview" ? "here" : "" }, "Overview"), ...groups.flat(Infinity),
    h("h2", {}, ""), h("details", { open: others.some((one) => one.id === here) }, h("summary", {}, "Everything else"), others.map(item)));
}

const plural = (kind) => kind.endsWith("s") ? `${kind}es` : kind.endsWith("y") && !/[aeiou]y$/.test(kind) ? `${kind.slice(0, -1)}ies` : `${kind}s`;

async function show() {
  showing.abort();
  showing = new AbortController();
  const [what, ...words] = location.hash.slice(2).split("/").map(decodeURIComponent);
  try {
    if (what === "list" || what === "object") {
      const id = `${words[0]}/${words[1]}`;
      // A definition may be newer than this page.
      if (!world.resources.has(id)) world.resources = await discover();
      const resource = world.resources.get(id);
      drawMenu(id);
      if (!resource) throw new Error(`The server has no ${words[1]} of ${words[0]}.`);
      if (what === "list") showTable(view, resource, world.namespace, showing.signal);
      else await showObject(view, world, resource, words[2] === "-" ? "" : words[2], words[3], words[4], showing.signal);
    } else {
      drawMenu("overview");
      showOverview(view, world, world.namespace, showing.signal);
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    view.replaceChildren(h("p", { class: "bad" }, error.message));
  }
}

async function begin() {
  try {
    world.resources = await discover();
  } catch (error) {
    const hint = error.code === 401 || error.code === 403 ? " Open the address that `skiff dashboard` printed: it has the key." : "";
    view.replaceChildren(h("p", { class: "bad" }, error.message + hint));
    return;
  }
  try {
    world.namespaces = (await json("/api/v1/namespaces")).items.map((one) => one.metadata.name);
  } catch (error) { note(error.message, true); }
  addEventListener("hashchange", show);
  show();
}
begin();
