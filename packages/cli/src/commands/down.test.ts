import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { identify } from "@vivarium/kit/process-identity";
import { afterAll, expect, test, vi } from "vitest";
import { dir, inOwnDirectories, viv } from "../../test-support/program.ts";

inOwnDirectories();

// Other files of tests share modules of this process, without what is put in their place here.
vi.hoisted(() => vi.resetModules());
afterAll(() => void vi.resetModules());
vi.mock("../service/stop-service.ts", () => ({ stopService: async () => {} }));

const machine = path.join("pool/m/mch_1/machine.json");

async function leaveLiveMachine(): Promise<void> {
  await mkdir(path.dirname(path.join(dir, machine)), { recursive: true });
  await writeFile(
    path.join(dir, machine),
    JSON.stringify({ state: "running", process: identify(process.pid) }),
  );
}

test.each(["--pause", "--sessions"])(
  "down %s fails while a machine lives and no service runs",
  async (fate) => {
    await leaveLiveMachine();
    const { code, err } = await viv("http://127.0.0.1:1", ["down", fate]);
    expect(code).toBe(1);
    expect(err).toContain(`1 session is live, and no service runs for ${dir}`);
    expect(err).toContain(`then repeat viv down ${fate}`);
  },
);

test("a plain down beside a live machine, and one with --pause where none lives, find nothing to do", async () => {
  expect(await viv("http://127.0.0.1:1", ["down", "--pause"])).toMatchObject({ code: 0 });
  await leaveLiveMachine();
  const { code, err } = await viv("http://127.0.0.1:1", ["down"]);
  expect([code, err]).toEqual([0, `viv: no service runs for ${dir}\n`]);
});

test("down --pause fails if a session stayed live, as control leaves one whose pause was refused", async () => {
  await mkdir(path.join(dir, "run"));
  const holder = { ...identify(process.pid), url: "http://127.0.0.1:1", pauses: true };
  await writeFile(path.join(dir, "run/supervisor.lock"), JSON.stringify(holder));
  expect(await viv("http://127.0.0.1:1", ["down", "--pause"])).toMatchObject({ code: 0 });
  await leaveLiveMachine();
  const { code, err } = await viv("http://127.0.0.1:1", ["down", "--pause"]);
  expect(code).toBe(1);
  expect(err).toContain(`the service has stopped, and 1 session is still live in ${dir}`);
  expect((await viv("http://127.0.0.1:1", ["down"])).code).toBe(0);
});
