/** Files of a session against a process inside it that swaps links as fast as it can. */

import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { expect, test } from "vitest";
import { FOOLED_READER, LINK_SWAPPER } from "../support/guest-programs.ts";
import { ask, client, service, sh, withSession } from "../support/http.ts";

/** More rounds if some kind has not met both sides of the exchange by then. */
const OPERATIONS = size({ ci: 440, full: 5_000 });
const AT_MOST = 5_000;
const AT_ONCE = 8;
const PLACES = ["swap/a/f", "swap/f", "swap/a/new/f", "swap/a"];
const ALLOWED = [200, 400, 404, 409];

const PREPARE = `
mkdir -p /home/sandbox/outside/only-outside /workspace/swap/a /workspace/still
cd /home/sandbox/outside; echo outside > f; echo outside > only-outside/f
cd /workspace/swap; echo inside > a/f; echo inside > f; ln -s /home/sandbox/outside b; ln -s /home/sandbox/outside/f g
cat > /tmp/swapper.py << 'END'
${LINK_SWAPPER}
END
setsid python3 /tmp/swapper.py > /dev/null 2>&1 &
`;
/** Contents, modes and times of everything that must not change, atimes apart. */
const PICTURE =
  "cd /home/sandbox; find . -printf '%p %y %m %U %s %T@ %C@\\n' | sort; cat outside/f outside/*/f";

test(`${OPERATIONS} operations against a process that swaps links neither read nor change anything outside`, {
  timeout: 1_800_000 * SLOWNESS,
}, async () => {
  await withSession(async (id) => {
    const run = async (script: string) =>
      (await client.sessions.exec(id, { command: sh(script), timeout_ms: 90_000 })).stdout;
    await run(PREPARE);
    const before = await run(PICTURE);
    expect(before).toContain("outside/only-outside/f");
    expect(await run(`python3 - << 'END'\n${FOOLED_READER}\nEND`)).toBe("fooled\n");

    const seen = await operate(id);
    for (const [kind, statuses] of Object.entries(seen))
      expect([kind, metBoth(statuses)]).toEqual([kind, true]);
    expect(Object.values(seen).flat().length).toBeGreaterThanOrEqual(OPERATIONS);
    expect(await run(PICTURE)).toBe(before);
  });
});

/** One status from inside /workspace, and one from a link that led outside. */
const metBoth = (statuses: number[]) => statuses.includes(200) && statuses.includes(400);

type Operation = (path: string) => Promise<{ status: number; text: string }>;

/** Each kind of operation at each path, several in flight at any time. No answer contains anything from outside. */
async function operate(id: string): Promise<Record<string, number[]>> {
  const operations = Object.entries(operationsIn(id));
  const seen: Record<string, number[]> = Object.fromEntries(operations.map(([kind]) => [kind, []]));
  let begun = 0;
  const isEnough = () => begun >= AT_MOST || (begun >= OPERATIONS && Object.values(seen).every(metBoth));
  const worker = async () => {
    while (!isEnough()) {
      const number = begun++;
      const [kind, operation] = operations[number % operations.length] as [string, Operation];
      const path = PLACES[Math.floor(number / operations.length) % PLACES.length] as string;
      const { status, text } = await operation(path);
      expect([kind, path, text]).toEqual([kind, path, expect.not.stringContaining("outside")]);
      expect(ALLOWED, `${kind} ${path}: ${status} ${text}`).toContain(status);
      seen[kind]?.push(status);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return seen;
}

function operationsIn(id: string): Record<string, Operation> {
  const call = async (rest: string, init: Parameters<typeof ask>[1] = {}) => {
    const { status, body } = await ask(`/v1/sessions/${id}/files${rest}`, init);
    return { status, text: JSON.stringify(body) };
  };
  const query = (words: Record<string, string>) => `?${new URLSearchParams(words)}`;
  const stream = async (path: string, init: RequestInit = {}) => {
    const url = `${service.url}/v1/sessions/${id}/files/stream${query({ path })}`;
    const response = await fetch(url, { ...init, headers: { authorization: `Bearer ${service.apiKey}` } });
    return { status: response.status, text: await response.text() };
  };
  // A path that is swapped keeps its name: without links there is no race.
  const within = (path: string) => (path === "swap/a/f" ? path : "swap/a/new/f");
  const parent = (path: string) => path.slice(0, path.lastIndexOf("/"));
  return {
    read: (path) => call(query({ path })),
    write: (path) => call("", { method: "PUT", body: { path, content: "inside" } }),
    list: (path) => call(query({ op: "list", path: parent(path) })),
    find: (path) => call(query({ op: "find", path: parent(path), pattern: "**" })),
    grep: (path) => call(query({ op: "grep", path: parent(path), pattern: "side" })),
    mkdir: (path) => call("/mkdir", { method: "POST", body: { path: parent(path) } }),
    upload: (path) => stream(path, { method: "PUT", body: "inside" }),
    download: (path) => stream(path),
    rename: (path) => call("/rename", { method: "POST", body: { path: within(path), dest_path: "still/f" } }),
    renameBack: (path) =>
      call("/rename", { method: "POST", body: { path: "still/f", dest_path: within(path) } }),
    delete: (path) => call(query({ path: within(path), recursive: "true" }), { method: "DELETE" }),
  };
}
