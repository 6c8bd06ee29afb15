import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { clientOptions, hostAlias, sessionOfHost, TYPED_HOST } from "./client-options.ts";

const config = {
  url: "http://127.0.0.1:7400",
  dataDir: "/var/lib/vivarium",
  stateDir: "/home/me/.state/vivarium",
};

test("each form of a host names its session", () => {
  expect([hostAlias("s1"), "s1.viv", "s1"].map(sessionOfHost)).toEqual(["s1", "s1", "s1"]);
});

test("the client goes through a tunnel of this program, as the session's user, with keys of hosts of its own", () => {
  const options = Object.fromEntries(clientOptions(config, "viv-s1"));
  expect(options.ProxyCommand).toMatch(/ \S+\/main\.ts tunnel --data-dir \/var\/lib\/vivarium s1$/);
  expect(options).toMatchObject({
    User: "sandbox",
    HostKeyAlias: "viv-s1",
    UserKnownHostsFile: "/home/me/.state/vivarium/known_hosts",
    StrictHostKeyChecking: "accept-new",
  });
});

test("another service is named in the command, with any characters in its address", () => {
  const other = { ...config, url: "https://a.example/x%20y?'z", stateDir: "/home/a b" };
  const options = Object.fromEntries(clientOptions(other, "viv-s1"));
  expect(options.ProxyCommand).toContain(` tunnel --url 'https://a.example/x%%20y?'\\''z' --data-dir `);
  expect(options.UserKnownHostsFile).toBe('"/home/a b/known_hosts"');
});

test.each(["/home/o'brien", '/home/a "b"', "/home/a b\\", "/home/100 %"])(
  "ssh understands where its hosts are known, also below %s",
  async (stateDir) => {
    for (const host of ["viv-s1", TYPED_HOST]) {
      const set = clientOptions({ ...config, stateDir }, host).flatMap(([name, value]) => [
        "-o",
        `${name}=${value}`,
      ]);
      const { stdout } = await promisify(execFile)("ssh", ["-F", "none", "-G", ...set, "viv-s1"]);
      expect(stdout).toContain(`userknownhostsfile ${stateDir}/known_hosts\n`);
    }
  },
);

test("for all hosts at once, the session comes from the name that was typed", () => {
  const options = clientOptions(config, TYPED_HOST);
  expect(Object.fromEntries(options).ProxyCommand).toMatch(/ %n$/);
  expect(options.map(([name]) => name)).not.toContain("HostKeyAlias");
});
