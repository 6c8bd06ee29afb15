import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { findAccount, requireAccount } from "./account.ts";

const BECOME = `
const { becomeAccount, findAccount } = await import(process.argv[1]);
becomeAccount(await findAccount("nobody"));
console.log(JSON.stringify([process.getuid(), process.geteuid(), process.getgid(), process.getgroups()]));`;

test("finds a user by the whole name", async () => {
  expect(await findAccount("root")).toEqual({ name: "root", uid: 0, gid: 0 });
  expect(await findAccount("roo")).toBeUndefined();
});

test("names the missing user and the setting that chooses another", async () => {
  await expect(requireAccount("no-such-user", "VIV_USER")).rejects.toThrow(
    'there is no system user "no-such-user": make it (useradd --system no-such-user) or set VIV_USER',
  );
});

test("keeps nothing of root after becoming another user", async () => {
  const { uid, gid } = await requireAccount("nobody", "-");
  const argv = ["--input-type=module", "-e", BECOME, path.join(import.meta.dirname, "account.ts")];
  const { stdout } = await promisify(execFile)(process.execPath, argv);
  expect(JSON.parse(stdout)).toEqual([uid, uid, gid, [gid]]);
});
