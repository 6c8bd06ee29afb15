import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { expect, test } from "vitest";
import { lackOfPreviews, requireFreeAddress, urlOf } from "./address.ts";

test.each([
  ["127.0.0.1:7400", "http://127.0.0.1:7400"],
  ["0.0.0.0:80", "http://127.0.0.1:80"],
  ["[::]:7400", "http://[::1]:7400"],
  ["[fd00::1]:1", "http://[fd00::1]:1"],
  ["box.example:7400", "http://box.example:7400"],
])("a service on %s is reached at %s", (listen, url) => {
  expect(urlOf(listen)).toBe(url);
});

test("an address that somebody has is refused with the way out, and a free one is left free", async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const listen = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  await expect(requireFreeAddress(listen)).rejects.toMatchObject({
    hint: expect.stringContaining("--listen"),
  });
  await new Promise((resolve) => server.close(resolve));
  await requireFreeAddress(listen);
  await requireFreeAddress(listen);
});

test("a taken address of previews is a warning that names it and the setting", async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const listen = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  expect(await lackOfPreviews(listen)).toMatch(
    new RegExp(`cannot listen on ${listen}: .*VIV_INGRESS_LISTEN`),
  );
  await new Promise((resolve) => server.close(resolve));
  expect(await lackOfPreviews(listen)).toBeUndefined();
});
