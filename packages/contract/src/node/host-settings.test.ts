import { expect, test } from "vitest";
import { changesIn, type HostSettingChange, recordOfChange, valuesToPutBack } from "./host-settings.ts";

const listing = (changes: HostSettingChange[]) =>
  `table inet vivarium {\n\tset flows {\n\t}\n${["begin", ...changes.map(recordOfChange), "has_0123"]
    .map((name) => `\tchain ${name} {\n\t}\n`)
    .join("")}}\n`;

const raised = (was: string, now: string): HostSettingChange => ({ setting: "conntrack_max", was, now });
const FORWARDING: HostSettingChange = { setting: "forwarding", was: "0", now: "1" };
const COUNTS: HostSettingChange = { setting: "conntrack_acct", was: "0", now: "1" };

test("changes are read from the table as they were recorded, and other chains are not taken for one", () => {
  const changes = [FORWARDING, COUNTS, raised("262144", "1638400")];
  expect(changesIn(listing(changes))).toEqual(changes);
  expect(changesIn(listing([]))).toEqual([]);
});

test.each<[string, HostSettingChange[], string, string | undefined]>([
  ["of one node", [raised("100", "200")], "200", "100"],
  ["of two nodes, one after the other", [raised("100", "200"), raised("200", "300")], "300", "100"],
  ["of a node that was started again", [raised("100", "200"), raised("100", "200")], "200", "100"],
  ["set by somebody else since", [raised("100", "200")], "250", undefined],
  ["set by somebody else, and raised again", [raised("100", "300"), raised("150", "300")], "300", "150"],
  ["put back already", [raised("100", "200")], "100", undefined],
])(
  "a setting %s gets the value of before, unless it has another one by now",
  (_how, changes, value, back) => {
    const expected = back === undefined ? [] : [{ setting: "conntrack_max", value: back }];
    expect(valuesToPutBack(changes, () => value)).toEqual(expected);
  },
);

test("each setting is put back for itself, and one that is gone is left", () => {
  const values: Record<string, string> = { forwarding: "1", conntrack_acct: "1" };
  const changes = [FORWARDING, COUNTS, raised("1", "2")];
  expect(valuesToPutBack(changes, (setting) => values[setting])).toEqual([
    { setting: "forwarding", value: "0" },
    { setting: "conntrack_acct", value: "0" },
  ]);
});
