import { expect, test } from "vitest";
import { NO_GUEST_SETTINGS, parseGuestSettings } from "./settings.ts";

const parse = (settings: unknown) => parseGuestSettings(JSON.stringify(settings));

test("settings are variables, and lines of apt's sources", () => {
  const settings = {
    variables: {
      PIP_INDEX_URL: "https://user:pass%23word@10.1.2.3:8443/simple/?a=b&c='d'",
      NPM_CONFIG_REGISTRY: "http://10.1.2.3:4873/",
      EMPTY: "",
    },
    apt_sources: ["deb [trusted=yes] http://10.1.2.3/debian trixie main contrib", "deb-src http://a/ b c"],
  };
  expect(parse(settings)).toEqual(settings);
  expect(parse({})).toEqual(NO_GUEST_SETTINGS);
});

test("proxies are set in both cases, unless both are given", () => {
  expect(
    parse({ variables: { http_proxy: "a", NO_PROXY: "b", https_proxy: "c", HTTPS_PROXY: "d" } }),
  ).toEqual({
    variables: {
      ...{ http_proxy: "a", HTTP_PROXY: "a", no_proxy: "b", NO_PROXY: "b" },
      ...{ https_proxy: "c", HTTPS_PROXY: "d" },
    },
    apt_sources: [],
  });
});

const SECRET = "hunter2";
const variable = (value: unknown, name = "A") => ({ variables: { [name]: value } });

test.each([
  ["a misspelt field", { variable: {} }, /"variable"/],
  ["a list of fields", [], /expected object/],
  ["a number", variable(1), /^variables\.A: must be text$/],
  ["an empty name", variable("", ""), /must be a variable's name/],
  ["a name with a sign", variable("", "A-B"), /^variables\.A-B: must be a variable's name/],
  ["a name with a digit first", variable("", "1A"), /^variables\.1A: must be a variable's name/],
  ["a quote", variable(`${SECRET}"`), /^variables\.A: must be printable ASCII without "/],
  ["a backslash", variable(`${SECRET}\\`), /^variables\.A: must be printable ASCII/],
  ["a number sign", variable(`${SECRET}#`), /^variables\.A: must be printable ASCII/],
  ["a line end", variable(`${SECRET}\nB=1`), /^variables\.A: must be printable ASCII/],
  ["a letter that is not ASCII", variable(`${SECRET}ü`), /^variables\.A: must be printable ASCII/],
  ["a long value", variable(SECRET.repeat(400)), /^variables\.A: must be at most 2048 characters/],
  [
    "many variables",
    { variables: Object.fromEntries(Array.from({ length: 65 }, (_, index) => [`A${index}`, ""])) },
    /^variables: must be at most 64/,
  ],
  [
    "a source that is none",
    { apt_sources: [`rm ${SECRET}`] },
    /^apt_sources\.0: must be a line of sources\.list/,
  ],
  ["two lines", { apt_sources: ["deb a b c\ndeb d e f"] }, /^apt_sources\.0: must be a line/],
  ["one text", { apt_sources: "deb a b c" }, /^apt_sources: /],
])("%s is refused by its field's name", (_what, settings, why) => {
  expect(() => parse(settings)).toThrow(why);
  expect(() => parse(settings)).not.toThrow(SECRET);
});

test("what is not JSON is refused without quoting it", () => {
  const attempt = () => parseGuestSettings(`{"variables": {"A": "${SECRET}",}}`);
  expect(attempt).toThrow(/^must be JSON/);
  expect(attempt).not.toThrow(SECRET);
  expect(() => parseGuestSettings(" ".repeat(65 * 1024))).toThrow("at most 64 KiB");
});
