import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { namespaceOf, readProcess } from "../support/host-processes.ts";
import { client, service } from "../support/http.ts";
import { jailFaults, openPaths, writableMounts } from "../support/jail-facts.ts";
import { machinePid } from "../support/machine-traces.ts";
import { servicePid } from "../support/service.ts";

/** All open files of a machine, by the names inside its jail. */
const OPEN_FILES = /^\/(memory|base\.raw|layer\.qcow2|disk\.qcow2|state|dev\/(null|urandom|net\/tun|kvm))$/;

const ids: string[] = [];
let pids: number[] = [];

beforeAll(async () => {
  for (const session of await Promise.all([client.sessions.create(), client.sessions.create()]))
    ids.push(session.session_id);
  await Promise.all(ids.map((id) => client.sessions.waitUntilLive(id)));
  pids = ids.map((id) => machinePid(service.dataDir, id));
});

afterAll(async () => {
  await Promise.all(ids.map((id) => client.sessions.delete(id)));
});

test("every machine is a QEMU in a jail: uid, capabilities, no new privileges, seccomp, namespaces, files", () => {
  for (const pid of pids) {
    expect(readProcess(pid)?.argv[0]).toMatch(/qemu-system/);
    expect(jailFaults(pid)).toEqual([]);
  }
});

test("the check would notice a process without a jail", () => {
  const faults = jailFaults(process.pid).join("\n");
  for (const word of [
    "uid 0",
    "CapEff",
    "may gain privileges",
    "no seccomp",
    "not first to go",
    "net namespace",
    "set-uid files",
  ])
    expect(faults).toContain(word);
});

test("machines share neither uid nor namespaces with each other", () => {
  const [a = 0, b = 0] = pids;
  expect(readProcess(a)?.uid).not.toBe(readProcess(b)?.uid);
  for (const kind of ["mnt", "pid", "net", "ipc", "uts"])
    expect(namespaceOf(a, kind)).not.toBe(namespaceOf(b, kind));
});

test("a machine sees its own files and no other's, neither the data directory nor the host", () => {
  for (const [i, pid] of pids.entries()) {
    const other = ids[1 - i] ?? "";
    expect(readFileSync(`/proc/${pid}/maps`, "utf8")).not.toContain(other);
    for (const path of openPaths(pid)) expect(path).toMatch(OPEN_FILES);
    const seen = readdirSync(`/proc/${pid}/root`);
    for (const name of ["root", "home", "var", "boot", "srv", "opt"]) expect(seen).not.toContain(name);
  }
});

test("a machine can write to its own disk and sockets, and to nothing that it shares with others", () => {
  for (const pid of pids) {
    const ofFiles = writableMounts(pid).filter((at) => !/^\/(dev|dev\/.+)$/.test(at));
    expect(ofFiles.sort()).toEqual(["/disk.qcow2", "/run", "/tmp"]);
  }
  expect(writableMounts(process.pid)).toContain("/");
});

test("the parent snapshot's memory is mapped privately and cannot be written by the machine", () => {
  for (const pid of pids) {
    const writableShared = readFileSync(`/proc/${pid}/maps`, "utf8")
      .split("\n")
      .filter((line) => /^\S+ rw.s .*\/mem(ory)?$/.test(line));
    expect(writableShared).toEqual([]);
  }
});

test("control runs without privilege and away from the machines' sockets", () => {
  const control = readProcess(servicePid(service, "control"));
  expect(control?.uid).not.toBe(0);
});
