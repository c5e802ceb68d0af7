// How the cluster is, at a glance.
import { TABLE, follow, json, path } from "./api.js";
import { age, bytes, grid, h, mood, note, quantity } from "./page.js";
import { link } from "./table.js";

export function showOverview(view, world, namespace, signal) {
  const cards = h("div", { class: "cards" }), usage = h("div"), trouble = h("div"), warnings = h("div");
  view.replaceChildren(h("h2", {}, "Overview"), cards, usage, trouble, warnings);
  const seen = { pods: new Map(), nodes: new Map(), deployments: new Map(), events: new Map() };

  const watch = (id, accept, keep, where = namespace) => {
    const resource = world.resources.get(id);
    if (!resource) return;
    const all = seen[resource.plural];
    const each = (list) => list.rows ?? list.items ?? [];
    const uid = (one) => (one.object ?? one).metadata.uid;
    follow(path(resource, where), {
      accept, signal,
      onList(list) { all.clear(); each(list).forEach((one) => all.set(uid(one), keep(one, list))); draw(); },
      onEvent({ type, object }) {
        for (const one of object.rows ?? [object]) type === "DELETED" ? all.delete(uid(one)) : all.set(uid(one), keep(one, object));
        draw();
      },
      onTrouble: (error) => note(error.message, true),
    });
  };
  let columns = [];
  watch("core/pods", TABLE, (row, table) => {
    if (table.columnDefinitions?.length) columns = table.columnDefinitions.map((one) => one.name);
    const cell = (name) => row.cells[columns.indexOf(name)];
    const { name, namespace: where } = row.object.metadata;
    return { name, namespace: where, status: String(cell("Status") ?? ""), ready: String(cell("Ready") ?? ""), restarts: String(cell("Restarts") ?? "") };
  });
  watch("core/nodes", "application/json", (node) => node, "");
  watch("apps/deployments", "application/json", (one) => ({ is: one.status?.readyReplicas ?? 0, wanted: one.spec?.replicas ?? 0 }));
  watch("core/events", "application/json", (one) => one);

  let isDue = false;
  const draw = () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => { isDue = false; drawNow(); });
  };
  const card = (count, what, href, tone = "") => h("a", { class: "card", href }, h("b", { class: tone }, count), what);

  function drawNow() {
    const pods = [...seen.pods.values()], nodes = [...seen.nodes.values()], deployments = [...seen.deployments.values()];
    const isReady = (node) => (node.status?.conditions ?? []).some((one) => one.type === "Ready" && one.status === "True");
    const ready = nodes.filter(isReady).length;
    const fine = pods.filter((pod) => ["Running", "Completed", "Succeeded"].includes(pod.status) && (pod.status !== "Running" || mood(pod.ready) === ""));
    const rolled = deployments.filter((one) => one.is >= one.wanted).length;
    cards.replaceChildren(
      card(`${ready}/${nodes.length}`, "nodes ready", "#/list/core/nodes", ready < nodes.length ? "bad" : "good"),
      card(`${fine.length}/${pods.length}`, "pods as they should be", "#/list/core/pods", fine.length < pods.length ? "wait" : "good"),
      card(`${rolled}/${deployments.length}`, "deployments rolled out", "#/list/apps/deployments", rolled < deployments.length ? "wait" : "good"));
    const resource = world.resources.get("core/pods");
    const odd = pods.filter((pod) => !fine.includes(pod)).slice(0, 30);
    trouble.replaceChildren(...(odd.length ? [h("h3", {}, "Pods that are not ready"), grid(["Pod", "Namespace", "Status", "Ready", "Restarts"], odd.map((pod) => [
      h("a", { href: link(resource, pod.namespace, pod.name) }, pod.name), h("span", {}, pod.namespace ?? ""), pod.status, pod.ready, h("span", {}, pod.restarts)]))] : []));
    const moment = (one) => one.lastTimestamp ?? one.series?.lastObservedTime ?? one.eventTime ?? one.metadata.creationTimestamp;
    const bad = [...seen.events.values()].filter((one) => one.type === "Warning").sort((a, b) => Date.parse(moment(b)) - Date.parse(moment(a))).slice(0, 20);
    warnings.replaceChildren(h("h3", {}, "Warnings"), bad.length ? grid(["Age", "Object", "Reason", "Message"], bad.map((one) => [
      h("span", {}, age(moment(one))), h("span", {}, `${one.involvedObject?.kind ?? ""} ${one.involvedObject?.name ?? ""}`), h("b", {}, one.reason ?? ""), h("span", {}, one.message ?? "")]))
      : h("p", { class: "faint" }, "None."));
  }

  // Nobody tells of changes here: the metrics API can only be asked.
  async function measure() {
    try {
      const used = await json("/apis/metrics.k8s.io/v1beta1/nodes", { signal });
      const rows = (used.items ?? []).map((one) => {
        const all = [...seen.nodes.values()].find((node) => node.metadata.name === one.metadata.name)?.status?.allocatable ?? {};
        const share = (name) => [quantity(one.usage[name]), quantity(all[name]) || 1];
        const [cpu, cpus] = share("cpu"), [memory, memories] = share("memory");
        return [h("b", {}, one.metadata.name),
          h("div", {}, `${cpu.toFixed(2)} of ${cpus} CPUs`, h("meter", { min: 0, max: 1, high: .85, value: cpu / cpus })),
          h("div", {}, `${bytes(memory)} of ${bytes(memories)}`, h("meter", { min: 0, max: 1, high: .85, value: memory / memories }))];
      });
      usage.replaceChildren(h("h3", {}, "What nodes use"), grid(["Node", "Processor", "Memory"], rows));
    } catch { usage.replaceChildren(); /* There may be no metrics API; the rest does without. */ }
  }
  const first = setTimeout(measure, 500), measuring = setInterval(measure, 15000);
  signal.addEventListener("abort", () => { clearTimeout(first); clearInterval(measuring); });
}
