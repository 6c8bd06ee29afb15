/** Forms of public identifiers. The form shows the kind of an id, never that it exists. */
export const SESSION_ID_PATTERN = /^[a-z0-9]{21}$/;
export const CHECKPOINT_ID_PATTERN = /^chk_[a-z0-9]{21}$/;
export const VOLUME_ID_PATTERN = /^vol_[a-z0-9]{21}$/;
export const ARTIFACT_ID_PATTERN = /^art_[a-z0-9]{21}$/;
export const AUDIT_ID_PATTERN = /^aud_[a-z0-9]{21}$/;
export const EVENT_ID_PATTERN = /^evt_[a-z0-9]{21}$/;
export const KEY_ID_PATTERN = /^key_[a-z0-9]{21}$/;
export const PROJECT_ID_PATTERN = /^prj_[a-z0-9]{21}$/;
export const API_KEY_PATTERN = /^viv_[A-Za-z0-9_]{1,76}$/;
export const REQUEST_ID_PATTERN = /^[A-Za-z0-9._:-]{1,128}$/;
export const IDEMPOTENCY_KEY_PATTERN = /^[A-Za-z0-9_.:=+/-]{1,255}$/;

/** Prefix of every id kind but the session id, which has none because it must fit a DNS label beside a port. */
export const ID_PREFIXES = {
  checkpoint: "chk_",
  artifact: "art_",
  volume: "vol_",
  registryCredential: "rcr_",
  project: "prj_",
  org: "org_",
  apiKey: "key_",
  request: "req_",
  audit: "aud_",
  event: "evt_",
} as const;
