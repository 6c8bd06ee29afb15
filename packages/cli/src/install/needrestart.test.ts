import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { hasNeedrestart, removeNeedrestart, writeNeedrestart } from "./needrestart.ts";

inOwnDirectories();

const fileIn = (place: string) => path.join(dir, place, "conf.d/vivarium.conf");

test("needrestart reads it as: the unit of the machines is not restarted, others as before", async () => {
  const file = fileIn("needrestart");
  await writeNeedrestart(file);
  // As needrestart does: it evaluates each file, and the first expression that a unit's name matches decides.
  const program = `
    my %nrconf = (override_rc => { qr(^dbus) => 0 });
    my $file = shift;
    eval do { local(@ARGV, $/) = $file; <> }; die $@ if $@;
    for my $unit (qw(vivarium-machines.service vivarium.service vivarium-machinesXservice)) {
      my ($found) = grep { $unit =~ /$_/ } keys %{$nrconf{override_rc}};
      print "$unit ", defined $found ? $nrconf{override_rc}{$found} : "restart", "\\n";
    }`;
  const { stdout, stderr } = await runHostCommand("perl", ["-Mstrict", "-e", program, file]);
  expect(stderr).toBe("");
  expect(stdout).toBe(
    "vivarium-machines.service 0\nvivarium.service restart\nvivarium-machinesXservice restart\n",
  );
});

test("it goes with the directories that were made for it, and not with those of needrestart", async () => {
  const own = fileIn("made");
  await writeNeedrestart(own);
  expect(hasNeedrestart(own)).toBe(true);
  await removeNeedrestart(own);
  expect(existsSync(path.join(dir, "made"))).toBe(false);

  const file = fileIn("installed");
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(path.join(path.dirname(file), "operator.conf"), "");
  await writeNeedrestart(file);
  await removeNeedrestart(file);
  expect(await readdir(path.dirname(file))).toEqual(["operator.conf"]);
  expect(await readFile(path.join(path.dirname(file), "operator.conf"), "utf8")).toBe("");
});
