import { expect, test } from "vitest";
import { decideExpose, type RouteSettings, type StoredRoute } from "./decide.ts";

const LOGIN = "https://login.example.com/";
const settings = (
  visibility: "token" | "public",
  auth: "none" | "bearer",
  loginUrl: string | null = null,
) => ({
  visibility,
  auth,
  loginUrl,
});
const stored = (route: RouteSettings, isBearerDelivered = true): StoredRoute => ({
  ...route,
  isBearerDelivered,
});
const T = settings("token", "none");
const TB = settings("token", "bearer");
const P = settings("public", "none");
const PB = settings("public", "bearer");

test.each([
  ["a token route", T, "mint", "keep"],
  ["a token route with bearer", TB, "mint", "mint"],
  ["a public route", P, "keep", "keep"],
  ["a public route with bearer", PB, "keep", "mint"],
] as const)("the first expose of %s creates it with its credentials", (_name, asked, token, bearer) => {
  for (const rotate of [false, true]) {
    expect(decideExpose(undefined, asked, { rotate })).toEqual({
      result: "created",
      token,
      bearer,
      isNewVersion: true,
    });
  }
});

test.each([
  ["token", T],
  ["token, bearer", TB],
  ["public", P],
  ["public, bearer", PB],
  ["token with login_url", settings("token", "none", LOGIN)],
])("rule 1: %s asked for again as it is stored is unchanged and mints nothing", (_name, asked) => {
  expect(decideExpose(stored(asked), asked, { rotate: false })).toEqual({
    result: "unchanged",
    token: "keep",
    bearer: "keep",
    isNewVersion: false,
  });
});

test.each([
  ["rule 4: token → public drops the token", T, P, "drop", "keep", true],
  ["rule 4: public → token mints a new token", P, T, "mint", "keep", true],
  ["rule 4: turning bearer on keeps the token", T, TB, "keep", "mint", true],
  ["rule 4: bearer off mints a new token", TB, T, "mint", "drop", true],
  ["rule 4: a login_url alone keeps everything", T, settings("token", "none", LOGIN), "keep", "keep", false],
  [
    "rule 4: a login_url that goes keeps everything",
    settings("token", "none", LOGIN),
    T,
    "keep",
    "keep",
    false,
  ],
  [
    "rule 4: a login_url under bearer keeps both",
    TB,
    settings("token", "bearer", LOGIN),
    "keep",
    "keep",
    false,
  ],
  ["rule 4: token → public keeps the bearer token", TB, PB, "drop", "keep", true],
  ["rule 4: public → token keeps the bearer token", PB, TB, "mint", "keep", true],
  ["rule 4: token → public and bearer on", T, PB, "drop", "mint", true],
  ["rule 4: public → token and bearer off", PB, T, "mint", "drop", true],
  ["rule 6: a public route may turn bearer on", P, PB, "keep", "mint", true],
  ["rule 6: dropping bearer opens the same hostname", PB, P, "keep", "drop", true],
] as const)("%s", (_name, before, asked, token, bearer, isNewVersion) => {
  expect(decideExpose(stored(before), asked, { rotate: false })).toEqual({
    result: "updated",
    token,
    bearer,
    isNewVersion,
  });
});

test.each([
  ["rule 5: rotate mints a new token", T, T, "mint", "keep", true],
  ["rule 5: rotate under bearer mints both", TB, TB, "mint", "mint", true],
  ["rule 5: rotate while bearer goes on mints both", T, TB, "mint", "mint", true],
  ["rule 5: rotate while bearer goes off mints the token", TB, T, "mint", "drop", true],
  ["rule 6: rotate of a public route has nothing to mint", P, P, "keep", "keep", false],
  ["rule 6: rotate of a public bearer route mints the bearer token", PB, PB, "keep", "mint", true],
  ["rule 6: rotate while a route becomes public drops its token", T, P, "drop", "keep", true],
] as const)("%s", (_name, before, asked, token, bearer, isNewVersion) => {
  expect(decideExpose(stored(before), asked, { rotate: true })).toEqual({
    result: "updated",
    token,
    bearer,
    isNewVersion,
  });
});

test("a bearer token that was never delivered is replaced by every call", () => {
  expect(decideExpose(stored(TB, false), TB, { rotate: false })).toEqual({
    result: "updated",
    token: "keep",
    bearer: "mint",
    isNewVersion: true,
  });
});
