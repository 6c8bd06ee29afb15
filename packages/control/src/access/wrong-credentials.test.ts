import { beforeEach, expect, test } from "vitest";
import { ApiError } from "../errors/api-error.ts";
import { Meter } from "../metrics/meter.ts";
import { WrongCredentials } from "./wrong-credentials.ts";

const WRONG = new ApiError("unauthenticated", "Authorization: the API key is unknown");

let now: number;
let meter: Meter;
beforeEach(() => {
  now = 1_000_000;
  meter = new Meter();
});

const limit = (wrongCredentialsPerMinute: number) =>
  new WrongCredentials({ wrongCredentialsPerMinute, meter, now: () => now });

/** The code and Retry-After of each of `times` wrong credentials in a row. */
function send(limited: WrongCredentials, ip: string, times = 1) {
  return Array.from({ length: times }, () => {
    const { refusal } = limited.count(WRONG, ip);
    return [refusal.code, refusal.retryAfterS];
  });
}

const REFUSED = ["unauthenticated", undefined];

test("the first ones of a minute are 401, further ones 429 until the minute is over", () => {
  const limited = limit(3);
  expect(send(limited, "192.0.2.1")).toEqual([REFUSED]);
  now += 20_000;
  expect(send(limited, "192.0.2.1", 3)).toEqual([REFUSED, REFUSED, ["rate_limited", 40]]);
  now += 39_001;
  expect(send(limited, "192.0.2.1")).toEqual([["rate_limited", 1]]);
  now += 999;
  expect(send(limited, "192.0.2.1", 4)).toEqual([REFUSED, REFUSED, REFUSED, ["rate_limited", 60]]);
});

test("the answer says both what is wrong with the credential and that there were too many", () => {
  const limited = limit(1);
  expect(limited.count(WRONG, "192.0.2.1")).toEqual({ refusal: WRONG, begins: false });
  const { refusal, begins } = limited.count(WRONG, "192.0.2.1");
  expect(refusal.message).toBe(
    "Authorization: the API key is unknown; your address has sent more than 1 wrong credentials within a minute",
  );
  expect([begins, limited.count(WRONG, "192.0.2.1").begins]).toEqual([true, false]);
});

test.each([
  ["192.0.2.1", "192.0.2.2", "another IPv4 address"],
  ["2001:db8:0:1::1", "2001:db8:0:2::1", "another IPv6 /64"],
  ["::ffff:192.0.2.1", "192.0.2.2", "another IPv4 address on a socket of both families"],
])("%s does not count for %s, %s", (one, other) => {
  const limited = limit(1);
  expect(send(limited, one, 2)[1]?.[0]).toBe("rate_limited");
  expect(send(limited, other)).toEqual([REFUSED]);
});

test.each([
  ["2001:db8:0:1::1", "2001:db8:0:1:ffff:1:2:3"],
  ["192.0.2.1", "::ffff:192.0.2.1"],
])("%s and %s count together", (one, other) => {
  const limited = limit(1);
  send(limited, one);
  expect(send(limited, other)[0]?.[0]).toBe("rate_limited");
});

test("0 is no limit", () => {
  expect(send(limit(0), "192.0.2.1", 1000).every(([code]) => code === "unauthenticated")).toBe(true);
});

test("addresses are remembered up to a bound; past it the one that was seen least recently starts anew", () => {
  const limited = limit(1);
  const address = (n: number) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`;
  for (let n = 0; n < 10_000; n++) send(limited, address(n));
  // The first address is the one that was seen last, so the second is forgotten for the next.
  expect(send(limited, address(0))[0]?.[0]).toBe("rate_limited");
  send(limited, address(10_000));
  expect(send(limited, address(0))[0]?.[0]).toBe("rate_limited");
  expect(send(limited, address(1))).toEqual([REFUSED]);
});

test("refusals are counted by their status, from zero", async () => {
  const counted = async () =>
    (await meter.registry.metrics())
      .split("\n")
      .filter((line) => line.startsWith("vivarium_wrong_credentials_total"));
  expect(await counted()).toEqual([
    'vivarium_wrong_credentials_total{status="401"} 0',
    'vivarium_wrong_credentials_total{status="429"} 0',
  ]);
  send(limit(2), "192.0.2.1", 5);
  expect(await counted()).toEqual([
    'vivarium_wrong_credentials_total{status="401"} 2',
    'vivarium_wrong_credentials_total{status="429"} 3',
  ]);
});
