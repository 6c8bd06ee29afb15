/** Events of an organisation (docs/spec/events.md): one envelope, the same on every transport. */
import { z } from "zod";
import { named, page, timestamp } from "./wire-types.ts";

/** The event types of this version. Readers skip types that they do not know. */
export const EVENT_TYPES = [
  "session.created",
  "session.live",
  "session.paused",
  "session.resumed",
  "session.restored",
  "session.recovered",
  "session.forked",
  "session.lifetime_expired",
  "session.node_lost",
  "session.failed",
  "session.destroyed",
  "session.wake_refused",
  "session.create_refused",
  "session.pause_refused",
  "egress.session_capped",
  "egress.denied",
  "dns.anomaly",
  "preview.exposed",
  "preview.updated",
  "preview.unexposed",
  "connection.created",
  "connection.replaced",
  "connection.expired",
  "connection.revoked",
  "connection.reflected",
  "connection.suspended",
  "checkpoint.created",
  "checkpoint.deleted",
  "artifact.ready",
  "artifact.failed",
  "artifact.expired",
  "archive.complete",
  "archive.failed",
  "template.queued",
  "template.building",
  "template.ready",
  "template.failed",
  "template.deleted",
  "volume.created",
  "volume.saved",
  "volume.deleted",
] as const;
export type EventType = (typeof EVENT_TYPES)[number];

/** Type of the event with which a stream reports that it cannot continue after the event that its reader named. */
export const STREAM_GAP = "stream.gap";

/** Filter of event types: one type, or all types of a group, such as `session.*`. */
export const EVENT_TYPE_FILTER_PATTERN = /^[a-z][a-z_]*\.(\*|[a-z0-9_.-]+)$/;

export const Event = named("Event", {
  id: z.string(),
  type: z.string().meta({ description: `one of ${EVENT_TYPES.join(", ")}, or ${STREAM_GAP}` }),
  created_at: timestamp,
  org_id: z.string(),
  project_id: z.string().optional(),
  session_id: z.string().optional(),
  data: z.record(z.string(), z.unknown()),
});
export type Event = z.infer<typeof Event>;

/** A page of events, oldest first. */
export const EventList = page("EventList", { events: z.array(Event) });
export type EventList = z.infer<typeof EventList>;
