// The one way to the API server: requests with the key that whoever started the dashboard was given.
// The key comes behind the `#` of the first address, which browsers send to nobody, and is kept for this tab.

const given = new URLSearchParams(location.hash.slice(1)).get("key");
if (given) {
  sessionStorage.setItem("key", given);
  history.replaceState(null, "", location.pathname + "#/overview");
}
const key = sessionStorage.getItem("key") ?? "";

export class Refusal extends Error {
  constructor(code, status) {
    super(status?.message || `the server answered ${code}`);
    this.code = code;
    this.reason = status?.reason ?? "";
  }
}

export const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

export async function ask(path, { method = "GET", accept = "application/json", type, body, signal } = {}) {
  const headers = { Accept: accept, "X-Skiff-Key": key };
  if (type) headers["Content-Type"] = type;
  const answer = await fetch(path, { method, headers, body, signal, cache: "no-store" });
  if (!answer.ok) {
    let status = null;
    try { status = await answer.json(); } catch { /* It was no Status. */ }
    throw new Refusal(answer.status, status);
  }
  return answer;
}

export const json = async (path, options) => (await ask(path, options)).json();
export const text = async (path, options) => (await ask(path, options)).text();

// Each line of an answer that goes on.
export async function* lines(path, options) {
  const answer = await ask(path, options);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
  if (rest) yield rest;
}

// Every resource that can be listed, in the version that the server prefers.
export async function discover() {
  const found = new Map();
  for (const root of ["/api", "/apis"]) {
    const groups = await json(root, { accept: DISCOVERY });
    for (const { metadata, versions = [] } of groups.items ?? []) {
      const group = metadata?.name ?? "";
      for (const { version, resources = [] } of versions) {
        for (const one of resources) {
          const id = `${group || "core"}/${one.resource}`;
          if (found.has(id) || !(one.verbs ?? []).includes("list")) continue;
          found.set(id, {
            id, group, version, plural: one.resource, kind: one.responseKind?.kind ?? one.resource,
            namespaced: one.scope === "Namespaced", verbs: one.verbs,
            parts: (one.subresources ?? []).map((part) => part.subresource),
          });
        }
      }
    }
  }
  return found;
}

export function path(resource, namespace, name, part) {
  const root = resource.group ? `/apis/${resource.group}/${resource.version}` : `/api/${resource.version}`;
  const words = [root];
  if (resource.namespaced && namespace) words.push("namespaces", encodeURIComponent(namespace));
  words.push(resource.plural);
  if (name) words.push(encodeURIComponent(name));
  if (part) words.push(part);
  return words.join("/");
}

const isHidden = () => document.visibilityState === "hidden";
const shown = () => new Promise((resume) => isHidden()
  ? document.addEventListener("visibilitychange", resume, { once: true }) : resume());

// A list and its changes, until `outer` says that it is enough. What the server ends is begun anew, and listed anew
// when it has forgotten where we were. Nobody looks at a tab that is hidden: its connection is given to others, for a
// browser has six of them.
export async function follow(address, { accept, signal: outer, onList, onEvent, onTrouble }) {
  let version = "";
  for (let pause = 1000; !outer.aborted;) {
    await shown();
    const own = new AbortController(), { signal } = own;
    const end = () => own.abort(), hide = () => { if (isHidden()) own.abort(); };
    outer.addEventListener("abort", end);
    document.addEventListener("visibilitychange", hide);
    try {
      if (!version) {
        const list = await json(address, { accept, signal });
        version = list.metadata?.resourceVersion ?? "";
        onList(list);
      }
      const more = address.includes("?") ? "&" : "?";
      const from = `${address}${more}watch=1&allowWatchBookmarks=true&resourceVersion=${version}`;
      for await (const line of lines(from, { accept, signal })) {
        if (!line) continue;
        const event = JSON.parse(line);
        if (event.type === "ERROR") { version = ""; break; }
        const seen = event.object?.metadata?.resourceVersion
          || event.object?.rows?.[0]?.object?.metadata?.resourceVersion;
        if (seen) version = seen;
        if (event.type !== "BOOKMARK") onEvent(event);
        pause = 1000;
      }
    } catch (error) {
      if (outer.aborted) return;
      if (signal.aborted) continue;
      if (error instanceof Refusal && [401, 403, 404, 405, 406].includes(error.code)) return onTrouble(error);
      if (error instanceof Refusal && error.code === 410) { version = ""; continue; }
      onTrouble(error);
      await new Promise((resume) => setTimeout(resume, pause));
      pause = Math.min(pause * 2, 30000);
    } finally {
      outer.removeEventListener("abort", end);
      document.removeEventListener("visibilitychange", hide);
    }
  }
}
