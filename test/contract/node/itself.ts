/** A node describes itself, and refuses unknown names. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { MachineList, NodeInfo } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { describe, expect, test } from "vitest";
import { type OneMachine, refusal, startSpec } from "../contracted-node.ts";

export function nodeItself(one: OneMachine): void {
  const { machineId } = one;

  describe("a node", () => {
    test("describes itself", async () => {
      const { status, body } = await one.node.call("GET", "/v1/info");
      expect(status).toBe(200);
      const info = NodeInfo.parse(body);
      expect(info.baselines).toContainEqual(expect.objectContaining({ template: "base", size: "small" }));
      expect(info.disk.free_bytes).toBeLessThanOrEqual(info.disk.total_bytes);
    });

    test("keeps a connection open as long as its caller does, so that none closes under a request", async () => {
      const asked = one.node.beginGuest(machineId, "GET", "/processes");
      asked.setHeader("connection", "keep-alive");
      asked.end();
      const [{ headers, socket }] = (await once(asked, "response")) as [IncomingMessage];
      socket.destroy();
      expect(headers.connection).toBe("keep-alive");
      // Reports after how much idle time the server closes, if it does.
      expect(headers).not.toHaveProperty("keep-alive");
    });

    test("lists its machines", async () => {
      const { body } = await one.node.call("GET", "/v1/machines");
      const ids = MachineList.parse(body).machines.map((machine) => machine.machine_id);
      expect(ids).toContain(machineId);
    });

    test("reports with which generation of its network a machine was started", async () => {
      const { body } = await one.node.call("GET", "/v1/machines");
      const listed = MachineList.parse(body).machines.find(({ machine_id: id }) => id === machineId);
      expect(listed).toMatchObject({ network_generation: 1 });
    });

    test("refuses an unknown machine, an unknown template and a malformed body", async () => {
      const nobody = `/v1/machines/${randomId()}-1`;
      expect(await one.node.call("GET", nobody)).toMatchObject(refusal(404, "machine_not_found"));
      const exec = { argv: ["true"], env: {}, timeout_ms: 1000 };
      expect(await one.node.call("POST", `${nobody}/exec`, exec)).toMatchObject(
        refusal(404, "machine_not_found"),
      );
      const unknown = startSpec({ template: "no-such-template" });
      expect(await one.node.call("PUT", nobody, unknown)).toMatchObject(refusal(404, "template_unavailable"));
      const unknownVersion = startSpec({ template: "base@no-such-version" });
      expect(await one.node.call("PUT", nobody, unknownVersion)).toMatchObject(
        refusal(404, "template_unavailable"),
      );
      expect(await one.node.call("PUT", nobody, { size: 7 })).toMatchObject(refusal(400, "invalid"));
      const malformed = await one.node.call("PUT", "/v1/machines/UPPER", startSpec());
      expect(malformed).toMatchObject(refusal(404, "machine_not_found"));
      expect(await one.node.call("DELETE", "/v1/machines/UPPER")).toMatchObject(
        refusal(404, "machine_not_found"),
      );
      expect(await one.node.call("GET", nobody)).toMatchObject(refusal(404, "machine_not_found"));
    });
  });
}
