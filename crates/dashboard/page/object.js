// One object: what it says, what happened to it, and what can be done with it.
import { ask, follow, json, lines, path, text } from "./api.js";
import { age, chips, grid, h, mood, note, pairs, question } from "./page.js";
import { link } from "./table.js";

export async function showObject(view, world, resource, namespace, name, tab, signal) {
  const at = path(resource, namespace, name);
  const place = h("div");
  const isPod = resource.id === "core/pods";
  const tabs = ["summary", "yaml", "events", ...(isPod ? ["logs"] : [])];
  const here = tabs.includes(tab) ? tab : "summary";
  view.replaceChildren(
    h("div", { class: "bar" },
      h("h2", {}, `${resource.kind} `, h("span", {}, name)), namespace && h("span", { class: "faint" }, `in ${namespace}`),
      h("span", { class: "grow" }), actions(world, resource, at, name)),
    h("div", { class: "tabs" }, tabs.map((one) => h("a", {
      class: one === here ? "here" : "", href: link(resource, namespace, name, one),
    }, { summary: "Summary", yaml: "YAML", events: "Events", logs: "Logs" }[one]))),
    place);
  if (here === "yaml") return showYaml(place, at);
  if (here === "events") return showEvents(place, resource, namespace, name, signal);
  if (here === "logs") return showLogs(place, at, signal);
  const collection = path(resource, namespace) + `?fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}`;
  const draw = (object) => place.replaceChildren(...summary(world, resource, object));
  follow(collection, {
    accept: "application/json", signal,
    onList: (list) => list.items?.[0] ? draw({ kind: resource.kind, ...list.items[0] })
      : place.replaceChildren(h("p", { class: "faint" }, "It is not there.")),
    onEvent: ({ type, object }) => type === "DELETED"
      ? place.replaceChildren(h("p", { class: "faint" }, "It has been deleted.")) : draw(object),
    onTrouble: (error) => note(error.message, true),
  });
}

function summary(world, resource, object) {
  const { metadata, spec = {}, status = {} } = object;
  const owners = (metadata.ownerReferences ?? []).map((owner) => {
    const group = owner.apiVersion.includes("/") ? owner.apiVersion.split("/")[0] : "";
    const known = [...world.resources.values()].find((one) => one.kind === owner.kind && one.group === group);
    return known ? h("a", { href: link(known, metadata.namespace, owner.name) }, `${owner.kind} ${owner.name}`)
      : `${owner.kind} ${owner.name}`;
  });
  const parts = [h("div", { class: "box" }, pairs([
    ["Created", `${metadata.creationTimestamp ?? ""} (${age(metadata.creationTimestamp)})`],
    metadata.deletionTimestamp && ["Being deleted", metadata.deletionTimestamp],
    metadata.finalizers && ["Finalizers", chips(Object.fromEntries(metadata.finalizers.map((one) => [one, ""])))],
    owners.length > 0 && ["Owned by", owners],
    ["Labels", chips(metadata.labels)],
    ["Annotations", h("details", {}, h("summary", {}, `${Object.keys(metadata.annotations ?? {}).length}`), chips(metadata.annotations))],
    ...facts(world, resource, spec, status),
  ]))];
  const conditions = status.conditions ?? [];
  if (conditions.length) {
    parts.push(h("h3", {}, "Conditions"), grid(["Type", "Status", "Since", "Reason", "Message"], conditions.map((one) => [
      h("b", {}, one.type), String(one.status), h("span", {}, age(one.lastTransitionTime)), h("span", {}, one.reason ?? ""),
      h("span", {}, one.message ?? "")])));
  }
  if (resource.id === "core/pods") parts.push(...containers(spec, status));
  if (resource.id === "core/secrets" || resource.id === "core/configmaps") parts.push(...data(resource, object));
  return parts;
}

// What matters of the kinds that people look at most.
function facts(world, resource, spec, status) {
  const node = world.resources.get("core/nodes");
  switch (resource.id) {
    case "core/pods": return [
      ["Phase", h("span", { class: mood(status.phase ?? "") }, status.phase ?? "", status.reason ? ` (${status.reason})` : "")],
      status.message && ["Message", status.message],
      ["Node", spec.nodeName && node ? h("a", { href: link(node, "", spec.nodeName) }, spec.nodeName) : "not placed yet"],
      ["Addresses", (status.podIPs ?? []).map((one) => one.ip).join(", ")],
      ["Quality of service", status.qosClass ?? ""],
      ["Service account", spec.serviceAccountName ?? ""]];
    case "core/nodes": return [
      ["Addresses", (status.addresses ?? []).map((one) => `${one.type} ${one.address}`).join(", ")],
      ["Allocatable", chips(status.allocatable)],
      ["System", [status.nodeInfo?.osImage, status.nodeInfo?.kernelVersion, status.nodeInfo?.kubeletVersion].filter(Boolean).join(", ")],
      ["Taints", (spec.taints ?? []).map((one) => `${one.key}${one.value ? `=${one.value}` : ""}:${one.effect}`).join(", ") || "none"],
      ["Schedulable", spec.unschedulable ? "no" : "yes"]];
    case "core/services": return [
      ["Type", spec.type ?? ""], ["Addresses", (spec.clusterIPs ?? []).join(", ")],
      ["Ports", (spec.ports ?? []).map((one) => `${one.name ? `${one.name} ` : ""}${one.port}→${one.targetPort}${one.nodePort ? ` (node ${one.nodePort})` : ""}/${one.protocol}`).join(", ")],
      ["Selector", chips(spec.selector)]];
    default: return [
      spec.replicas !== undefined && ["Replicas", `${status.readyReplicas ?? 0} ready of ${spec.replicas}`],
      spec.selector?.matchLabels && ["Selector", chips(spec.selector.matchLabels)],
      status.phase && ["Phase", h("span", { class: mood(status.phase) }, status.phase)],
      spec.template?.spec?.containers && ["Images", spec.template.spec.containers.map((one) => h("span", { class: "chip" }, one.image))]];
  }
}

function containers(spec, status) {
  const states = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? []), ...(status.ephemeralContainerStatuses ?? [])];
  const said = new Map(states.map((one) => [one.name, one]));
  const all = [...(spec.initContainers ?? []), ...(spec.containers ?? []), ...(spec.ephemeralContainers ?? [])];
  return [h("h3", {}, "Containers"), grid(["Name", "Image", "State", "Ready", "Restarts", "Last end"], all.map((one) => {
    const now = said.get(one.name) ?? {};
    const [state, more] = Object.entries(now.state ?? {})[0] ?? ["waiting", {}];
    const last = now.lastState?.terminated;
    const word = more.reason ?? (state === "running" ? "Running" : state);
    return [h("b", {}, one.name), h("span", {}, one.image), h("span", { class: mood(word), title: more.message ?? "" }, word, more.message ? `: ${more.message}` : ""),
      h("span", {}, now.ready ? "yes" : "no"), h("span", {}, String(now.restartCount ?? 0)),
      h("span", {}, last ? `${last.reason ?? ""} (${last.exitCode}), ${age(last.finishedAt)} ago` : "")];
  }))];
}

// Secrets are shown when somebody asks, one by one.
function data(resource, object) {
  const isSecret = resource.id === "core/secrets";
  const rows = Object.entries({ ...object.data, ...object.binaryData }).map(([name, value]) => {
    const shown = h("pre", {}, isSecret ? "•••" : value);
    const decoded = () => {
      try { return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(value), (one) => one.charCodeAt(0))); } catch { return value; }
    };
    return [h("b", {}, name), h("div", {}, shown, isSecret && h("button", { onclick: () => { shown.textContent = shown.textContent === "•••" ? decoded() : "•••"; } }, "show"))];
  });
  return [h("h3", {}, "Data"), grid(["Key", "Value"], rows)];
}

// Without who manages which field: nobody reads that, and the server keeps what an update leaves out of it.
const readable = async (at) => (await text(at, { accept: "application/yaml" })).replace(/^  managedFields:\n(?:(?:  -|   ).*\n)*/m, "");

async function showYaml(place, at) {
  const area = h("textarea", { class: "code", spellcheck: "false" });
  area.value = await readable(at);
  const save = async () => {
    try {
      await ask(at, { method: "PUT", type: "application/yaml", body: area.value });
      note("Saved.");
      area.value = await readable(at);
    } catch (error) { note(error.message, true); }
  };
  place.replaceChildren(area, h("p", { class: "bar" }, h("button", { class: "first", onclick: save }, "Save"),
    h("span", { class: "faint" }, "What somebody else changed meanwhile is not overwritten: the save is refused then.")));
}

function showEvents(place, resource, namespace, name, signal) {
  const all = new Map();
  const selector = encodeURIComponent(`involvedObject.name=${name},involvedObject.kind=${resource.kind}`);
  const where = namespace ? `/api/v1/namespaces/${encodeURIComponent(namespace)}/events` : "/api/v1/events";
  const draw = () => {
    const moment = (one) => Date.parse(one.lastTimestamp ?? one.series?.lastObservedTime ?? one.eventTime ?? one.metadata.creationTimestamp);
    const rows = [...all.values()].sort((a, b) => moment(b) - moment(a)).map((one) => [
      one.type ?? "", h("b", {}, one.reason ?? ""), h("span", {}, `${age(new Date(moment(one)).toISOString())}${(one.count ?? one.series?.count ?? 1) > 1 ? ` (×${one.count ?? one.series.count})` : ""}`),
      h("span", {}, one.source?.component || one.reportingComponent || ""), h("span", {}, one.message ?? "")]);
    place.replaceChildren(rows.length ? grid(["Type", "Reason", "Age", "From", "Message"], rows) : h("p", { class: "faint" }, "Nothing has happened to it lately."));
  };
  follow(`${where}?fieldSelector=${selector}`, {
    accept: "application/json", signal,
    onList(list) { all.clear(); (list.items ?? []).forEach((one) => all.set(one.metadata.uid, one)); draw(); },
    onEvent({ type, object }) { type === "DELETED" ? all.delete(object.metadata.uid) : all.set(object.metadata.uid, object); draw(); },
    onTrouble: (error) => note(error.message, true),
  });
}

const MOST_LINES = 5000;

async function showLogs(place, at, signal) {
  const pod = await json(at, { signal });
  const names = [...(pod.spec.containers ?? []), ...(pod.spec.initContainers ?? []), ...(pod.spec.ephemeralContainers ?? [])].map((one) => one.name);
  const which = h("select", { "aria-label": "Container" }, names.map((name) => h("option", {}, name)));
  const previous = h("input", { type: "checkbox" }), stamps = h("input", { type: "checkbox" });
  const filter = h("input", { placeholder: "Filter", "aria-label": "Filter" });
  const log = h("pre", { class: "log box", tabindex: "0" });
  place.replaceChildren(h("div", { class: "bar" }, which, h("label", {}, previous, " previous"), h("label", {}, stamps, " timestamps"), h("span", { class: "grow" }), filter), log);
  let reading = null, kept = [];
  const isWanted = (line) => !filter.value || line.toLowerCase().includes(filter.value.toLowerCase());
  const write = (all, isNew) => {
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const shown = all.filter(isWanted).join("\n");
    if (isNew) log.textContent = shown; else if (shown) log.append(log.textContent ? `\n${shown}` : shown);
    if (isAtEnd || isNew) log.scrollTop = log.scrollHeight;
  };
  async function read() {
    reading?.abort();
    const own = reading = new AbortController();
    signal.addEventListener("abort", () => own.abort());
    kept = []; write(kept, true);
    const query = new URLSearchParams({ container: which.value, tailLines: "1000", follow: String(!previous.checked), previous: String(previous.checked), timestamps: String(stamps.checked) });
    let fresh = [];
    const flush = () => {
      if (!fresh.length || own.signal.aborted) return;
      kept.push(...fresh);
      const isOver = kept.length > MOST_LINES;
      if (isOver) kept = kept.slice(-MOST_LINES / 2);
      write(isOver ? kept : fresh, isOver);
      fresh = [];
    };
    const writing = setInterval(flush, 200);
    try {
      for await (const line of lines(`${at}/log?${query}`, { accept: "*/*", signal: own.signal })) fresh.push(line);
    } catch (error) {
      if (!own.signal.aborted) note(error.message, true);
    }
    flush();
    clearInterval(writing);
  }
  [which, previous, stamps].forEach((one) => one.addEventListener("change", read));
  filter.addEventListener("input", () => write(kept, true));
  read();
}

const MERGE = "application/merge-patch+json";

function actions(world, resource, at, name) {
  const attempt = (what) => async () => {
    try { await what(); } catch (error) { note(error.message, true); }
  };
  const patch = (body) => ask(at, { method: "PATCH", type: MERGE, body: JSON.stringify(body) });
  const buttons = [];
  if (resource.parts.includes("scale")) {
    buttons.push(h("button", { onclick: attempt(async () => {
      const scale = await json(`${at}/scale`);
      const wanted = await question(`How many replicas of ${name}?`, { action: "Scale", value: scale.spec.replicas ?? 0 });
      if (wanted === null) return;
      if (!/^\d+$/.test(wanted)) throw new Error(`${wanted} is no number of replicas`);
      await ask(`${at}/scale`, { method: "PATCH", type: MERGE, body: JSON.stringify({ spec: { replicas: Number(wanted) } }) });
      note(`Scaled to ${wanted}.`);
    }) }, "Scale"));
  }
  if (["apps/deployments", "apps/daemonsets", "apps/statefulsets"].includes(resource.id)) {
    buttons.push(h("button", { onclick: attempt(async () => {
      if (await question(`Restart the pods of ${name}, one after another?`, { action: "Restart" }) === null) return;
      await patch({ spec: { template: { metadata: { annotations: { "kubectl.kubernetes.io/restartedAt": new Date().toISOString() } } } } });
      note("Restarting.");
    }) }, "Restart"));
  }
  if (resource.id === "core/nodes") {
    for (const [label, unschedulable] of [["Cordon", true], ["Uncordon", null]]) {
      buttons.push(h("button", { onclick: attempt(async () => { await patch({ spec: { unschedulable } }); note(`${label}ed.`); }) }, label));
    }
  }
  if (resource.verbs.includes("delete")) {
    buttons.push(h("button", { class: "danger", onclick: attempt(async () => {
      if (await question(`Delete ${resource.kind} ${name}?`, { action: "Delete" }) === null) return;
      await ask(at, { method: "DELETE", type: "application/json", body: JSON.stringify({ propagationPolicy: "Background" }) });
      note(`${name} is being deleted.`);
      location.hash = `#/list/${resource.id}`;
    }) }, "Delete"));
  }
  return buttons;
}
