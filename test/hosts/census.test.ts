import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { describeDifferences, differencesOf } from "./census.ts";

const HOST = [
  "process /sbin/init",
  "process /usr/sbin/sshd -D",
  "mount /",
  "link lo",
  "setting net.ipv4.ip_forward = 0",
  "setting net.netfilter.nf_conntrack_max = 262144",
  "user root:0:0",
  "group root:0",
  "unit-file ssh.service",
  "unit ssh.service",
  "cgroup system.slice/ssh.service",
  "file /etc/passwd -rw-r--r-- 0:0",
  "file /etc/passwd- -rw-r--r-- 0:0",
  "file /var/lib/dpkg/lock",
];
const text = (lines: string[]) => `${lines.join("\n")}\n`;

/** One thing of each kind that an uninstall could leave. */
const LEFT = [
  "process /usr/bin/qemu-system-x86_64 -nodefaults",
  "mount /var/lib/vivarium/pool",
  "loop /var/lib/vivarium/pool.img",
  "namespace viv-7",
  "link viv7",
  "nft table inet vivarium",
  "user vivarium:998:997",
  "group vivarium:997",
  "unit-file vivarium.service",
  "unit vivarium-machines.service",
  "cgroup system.slice/vivarium-machines.service/slot-7",
  "file /etc/vivarium drwxr-xr-x 0:0",
  "file /usr/local/lib/vivarium drwxr-xr-x 0:0",
  "file /run/vivarium/slots/7",
  "file /var/lib/vivarium/control/pepper",
];

test("a host as it was before has no differences, whatever logins, counting and systemd's timers do", () => {
  const passing = [
    "process bash test/hosts/census",
    "process grep -E x",
    "process sshd: root@notty",
    "cgroup user.slice/user-0.slice",
    "unit session-4.scope",
    "mount /run/user/0",
    "unit apt-daily.service",
    "unit ldconfig.service",
    "unit network-online.target",
    "file /run/systemd/units/log-extra",
    "file /etc/subuid- -rw-r--r-- 0:0",
  ];
  expect(differencesOf(text(HOST), text([...HOST, ...passing]))).toEqual([]);
  expect(differencesOf(text([...HOST, ...passing]), text(HOST))).toEqual([]);
});

test.each(LEFT)("what is left is a difference: %s", (line) => {
  expect(differencesOf(text(HOST), text([...HOST, line]))).toEqual([`left: ${line}`]);
});

test("a setting with another value, what is gone, and a second one of a name are differences", () => {
  const changed = HOST.map((line) => line.replace("ip_forward = 0", "ip_forward = 1"));
  expect(differencesOf(text(HOST), text(changed))).toEqual([
    "gone: setting net.ipv4.ip_forward = 0",
    "left: setting net.ipv4.ip_forward = 1",
  ]);
  expect(differencesOf(text(HOST), text(HOST.filter((line) => line !== "group root:0")))).toEqual([
    "gone: group root:0",
  ]);
  expect(differencesOf(text(HOST), text([...HOST, "mount /", "mount /"]))).toEqual([
    "left: mount / (2 times)",
  ]);
});

test("a counting that did not work is no host without anything", () => {
  expect(() => differencesOf(text(HOST), "")).toThrow("the counting after has no process: it did not work");
  expect(() => differencesOf(text(["process x"]), text(HOST))).toThrow("the counting before has no mount");
});

test("a failure shows the first differences of each kind", () => {
  const found = Array.from({ length: 30 }, (_, index) => `left: file /run/${index}`);
  const shown = describeDifferences([...found, "gone: user x"]);
  expect(shown).toContain("31 differences");
  expect(shown).toContain("… and 10 more of this kind\ngone: user x");
});

test("the counting of this host finds a process, a mount, a namespace, a link and a file that came to it", () => {
  const dir = mkdtempSync(path.join(tmpdir(), "census-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const counting = path.join(import.meta.dirname, "census");
  // Files are those of a small /etc, /usr/local, /var/lib and /run of the test's own.
  const script = `
    for place in /etc /usr/local /var/lib /run; do
      mkdir -p "$1/small$place"
      [ "$place" != /etc ] || cp /etc/passwd /etc/group "$1/small/etc/"
      mount --bind "$1/small$place" "$place"
    done
    mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns
    echo 0 > /proc/sys/net/ipv4/ip_forward
    "$2" > "$1/before"
    sleep 1000.5 > /dev/null 2>&1 & slept=$!
    trap 'kill "$slept"' EXIT
    mkdir /run/mounted; mount -t tmpfs none /run/mounted; touch /run/netns/viv-1 /run/viv-file; ip link add viv1 type veth peer name other
    nft add table inet vivarium; echo 1 > /proc/sys/net/ipv4/ip_forward; echo 'vivarium:x:998:' >> /etc/group
    "$2" > "$1/after"`;
  const alone = path.join(import.meta.dirname, "../../scripts/in-own-network");
  execFileSync(alone, ["bash", "-ec", script, "bash", dir, counting], { stdio: "pipe" });
  const read = (name: string) => execFileSync("cat", [path.join(dir, name)], { encoding: "utf8" });
  // Other processes of this host come and go meanwhile, and their mounts, groups and loop devices.
  const found = differencesOf(read("before"), read("after")).filter((line) =>
    /viv|1000\.5|mounted|ip_forward/.test(line),
  );
  expect(found).toEqual(
    expect.arrayContaining([
      "left: process sleep 1000.5",
      "left: mount /run/mounted",
      "left: namespace viv-1",
      "left: link viv1",
      "left: nft table inet vivarium",
      "gone: setting net.ipv4.ip_forward = 0",
      "left: setting net.ipv4.ip_forward = 1",
      "left: group vivarium:998:",
      "left: file /run/viv-file",
    ]),
  );
});
