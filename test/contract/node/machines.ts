/** Machines are started, and end. */
import { MachineStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { machinePath, newMachineId, type OneMachine, refusal, startSpec } from "../contracted-node.ts";

const AUTHORITY = {
  certificate_pem: "-----BEGIN CERTIFICATE-----\nb25lCg==\n-----END CERTIFICATE-----\n",
  subject_hash: "0123abcd",
};

export function machines(one: OneMachine): void {
  const { machineId, path } = one;

  describe("a machine", () => {
    test("started again with the same body is the same machine, with another body a conflict", async () => {
      const again = await one.node.call("PUT", path, startSpec());
      expect(MachineStatus.parse(again.body)).toMatchObject({ machine_id: machineId, state: "running" });
      const other = await one.node.call("PUT", path, startSpec({ no_sudo: true }));
      expect(other).toMatchObject(refusal(409, "machine_conflict"));
    });

    test("started twice at once is one machine, and gone once it was deleted twice", async () => {
      const twin = `/v1/machines/${randomId()}-2`;
      const answers = await Promise.all([
        one.node.call("PUT", twin, startSpec({ hostname: "twin" })),
        one.node.call("PUT", twin, startSpec({ hostname: "twin" })),
      ]);
      expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
      expect(answers[0].body).toEqual(answers[1].body);
      expect(await one.node.call("DELETE", twin)).toMatchObject({ status: 204 });
      expect(await one.node.call("GET", twin)).toMatchObject(refusal(404, "machine_not_found"));
      expect(await one.node.call("DELETE", twin)).toMatchObject({ status: 204 });
    });

    test("starts with the authority of its session, and is another machine without it", async () => {
      const trusting = machinePath(newMachineId());
      // Without the guest's word that it trusts the authority the start would fail.
      expect(await one.node.call("PUT", trusting, startSpec({ ca: AUTHORITY }))).toMatchObject({
        status: 200,
      });
      expect(await one.node.call("PUT", trusting, startSpec({ ca: AUTHORITY }))).toMatchObject({
        status: 200,
      });
      expect(await one.node.call("PUT", trusting, startSpec())).toMatchObject(
        refusal(409, "machine_conflict"),
      );
      expect(await one.node.call("DELETE", trusting)).toMatchObject({ status: 204 });
    });

    test("deleted while it is started is gone once the delete is answered", async () => {
      const brief = machinePath(newMachineId());
      const started = one.node.call("PUT", brief, startSpec({ hostname: "brief" }));
      await eventually(
        async () => expect(await one.node.call("GET", brief)).toMatchObject({ status: 200 }),
        10_000,
        1,
      );
      expect(await one.node.call("DELETE", brief)).toMatchObject({ status: 204 });
      expect(await one.node.call("GET", brief)).toMatchObject(refusal(404, "machine_not_found"));
      expect((await started).status).toBe(200);
    });
  });
}
