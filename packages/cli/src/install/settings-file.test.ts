import { expect, test } from "vitest";
import { newSettings, readSettings, withAbsolutePaths, withSettings } from "./settings-file.ts";

test("a new file sets what was chosen, and shows the rest as comments", () => {
  const text = newSettings("second", { VIV_LISTEN: "127.0.0.1:7500", VIV_NODE_ID: "nod_2" });
  expect(readSettings(text)).toEqual({ VIV_LISTEN: "127.0.0.1:7500", VIV_NODE_ID: "nod_2" });
  expect(text).toContain("#VIV_INGRESS_LISTEN=127.0.0.1:7401");
  expect(text).toContain("systemctl restart second");
});

test("a change of one setting leaves every other line as it is", () => {
  const text = "# mine\nVIV_LISTEN=127.0.0.1:7400\nVIV_MAX_MACHINES=12\n#VIV_LOG_LEVEL=info\n";
  expect(withSettings(text, { VIV_LISTEN: "0.0.0.0:80", VIV_LOG_LEVEL: "debug", VIV_ACCEL: "kvm" })).toBe(
    "# mine\nVIV_LISTEN=0.0.0.0:80\nVIV_MAX_MACHINES=12\nVIV_LOG_LEVEL=debug\nVIV_ACCEL=kvm\n",
  );
  expect(withSettings(text, {})).toBe(text);
  expect(withSettings("A=1", { B: "2" })).toBe("A=1\nB=2\n");
});

test("values with blanks and quotes are read back as they are", () => {
  for (const value of ["postgres://u:p$1@h/d?a=b&c=%20", 'a "b" \\ c', "", "$1 $& `x`"])
    expect(readSettings(newSettings("vivarium", { DATABASE_URL: value }))).toEqual({ DATABASE_URL: value });
  expect(readSettings(withSettings("VIV_X=1\n", { VIV_X: "$& $1" }))).toEqual({ VIV_X: "$& $1" });
});

test("comments, quotes and blanks of an operator's own hand are understood", () => {
  const text = '  VIV_LISTEN = no\n; VIV_A=1\nVIV_B=\' two \'\nVIV_C="t\\"h"  \n';
  expect(readSettings(text)).toEqual({ VIV_B: " two ", VIV_C: 't"h' });
});

test("of equal lines the last one counts, and is the one that is changed", () => {
  const changed = withSettings("A=1\nB=1\n A=2\n#A=3\n", { A: "4" });
  expect(changed).toBe("A=1\nB=1\nA=4\n#A=3\n");
  expect(readSettings(changed)).toEqual({ A: "4", B: "1" });
  expect(withSettings("A=1,\\\n2\nB=1\n", { A: "3" })).toBe("A=3\nB=1\n");
});

test("paths of the caller are absolute in a unit's settings, and words stay words", () => {
  const settings = { VIV_IMAGES_DIR: "images", VIV_CA_BUNDLE: "./p.pem", VIV_NODE_ID: "images" };
  expect(withAbsolutePaths(settings, "/home/a")).toEqual({
    VIV_IMAGES_DIR: "/home/a/images",
    VIV_CA_BUNDLE: "/home/a/p.pem",
    VIV_NODE_ID: "images",
  });
  for (const word of ["auto", "none", "", "/etc/p.pem"])
    expect(withAbsolutePaths({ VIV_CA_BUNDLE: word }, "/home/a")).toEqual({ VIV_CA_BUNDLE: word });
});
